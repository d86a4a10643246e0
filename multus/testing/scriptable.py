"""Scriptable CNI delegates: executables that answer as a test tells them, and note every call.

The same file is both halves.  Imported, it is the API; a copy of it under a type's name is the executable, which therefore needs
nothing but the standard library.  Answers and calls are in two files of the folder above the executables::

    delegates = ScriptedDelegates(folder, "bridge", "tuning")
    delegates.answer("bridge", "ADD", Answer(error={"code": 11, "msg": "busy"}), Answer(addresses=("192.0.2.2/24",)))
    ...  # run what calls them, with CNI_PATH=delegates.bin
    assert [call.command for call in delegates.calls()] == ["ADD", "DEL", "ADD"]
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWERS = "answers.json"
CALLS = "calls.jsonl"
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


class Answer(NamedTuple):
    """What one call gets.  Nothing set: ADD answers with one address, or with the previous result in a chain; the rest succeed."""

    result: Mapping[str, Any] | None = None
    """Of ADD; ``$IFNAME`` and ``$NETNS`` in its texts stand for the call's; ``cniVersion`` is put in if it is missing."""
    error: Mapping[str, Any] | None = None
    """An error object; the exit status is then 1."""
    stdout: bytes | None = None
    """Printed as it is, in place of result and error."""
    stderr: bytes = b""
    exit: int | None = None
    """The exit status, where it is not to follow from the rest."""
    sleep_s: float = 0.0
    addresses: tuple[str, ...] | None = None
    """Not None: ADD makes a real link in the namespace, up and with these addresses, and a later DEL of the type removes it."""
    routes: tuple[tuple[str, str], ...] = ()
    """Destination and gateway (or "") of routes by that link."""


class DelegateCall(NamedTuple):
    """One call as the delegate saw it."""

    type: str
    command: str
    config: Any
    """Standard input, decoded; text if it was no JSON, None if it was empty."""
    environment: Mapping[str, str]
    """The ``CNI_*`` variables."""
    started: float
    """Seconds since the epoch."""
    ended: float | None = None
    """None: it has not come to its end."""

    @property
    def ifname(self) -> str:
        return self.environment.get("CNI_IFNAME", "")


class ScriptedDelegates:
    """The delegates of one folder: ``bin`` holds the executables."""

    def __init__(self, folder: str | os.PathLike[str], *types: str) -> None:
        self._folder = os.fspath(folder)
        self.bin = os.path.join(self._folder, "bin")
        os.makedirs(self.bin, exist_ok=True)
        self._answers: dict[str, dict[str, list[dict[str, object]]]] = {}
        self._seen = 0
        self._save()
        self.install(*types)

    def install(self, *types: str) -> None:
        """Put an executable of each type into ``bin``."""
        with open(__file__, encoding="utf-8") as source:
            script = f"#!{sys.executable} -IS\n{source.read()}"
        for delegate_type in types:
            path = os.path.join(self.bin, delegate_type)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755), "w", encoding="utf-8") as executable:
                executable.write(script)

    def remove(self, delegate_type: str) -> None:
        """Take an executable away, as an uninstalled plugin."""
        os.remove(os.path.join(self.bin, delegate_type))

    def answer(self, delegate_type: str, command: str, *answers: Answer) -> None:
        """Set what a type answers to a verb from now on: one answer per call, the last one for all that follow."""
        self._answers.setdefault(delegate_type, {})[command] = [_storable(answer) for answer in answers]
        self._save()

    def calls(self) -> list[DelegateCall]:
        """All calls so far, in the order in which they began."""
        made: dict[int, DelegateCall] = {}
        for entry in _entries(self._folder):
            if "ended" in entry:
                made[entry["call"]] = made[entry["call"]]._replace(ended=entry["ended"])
            else:
                made[len(made)] = DelegateCall(**entry)
        return list(made.values())

    def new_calls(self) -> list[DelegateCall]:
        """The calls since this was asked last."""
        calls = self.calls()
        new, self._seen = calls[self._seen :], len(calls)
        return new

    def _save(self) -> None:
        path = os.path.join(self._folder, ANSWERS)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(self._answers, file)
        os.replace(f"{path}.new", path)


def main(executable: str) -> int:
    """Be the delegate that an executable's name says, for one call; its exit status."""
    delegate_type = os.path.basename(executable)
    folder = os.path.dirname(os.path.dirname(os.path.abspath(executable)))
    command = os.environ.get("CNI_COMMAND", "")
    config = _decoded(sys.stdin.buffer.read())
    with open(os.path.join(folder, ANSWERS), encoding="utf-8") as file:
        scripted = json.load(file).get(delegate_type, {})
    environment = {name: value for name, value in os.environ.items() if name.startswith("CNI_")}
    started = DelegateCall(delegate_type, command, config, environment, time.time())._asdict()
    del started["ended"]
    number, earlier = _note(folder, started)
    count = sum(entry.get("type") == delegate_type and entry.get("command") == command for entry in earlier)
    answers = scripted.get(command)
    answer = Answer(**answers[min(count, len(answers) - 1)]) if answers else Answer()
    makes_links = any(each.get("addresses") is not None for each in scripted.get("ADD", ()))
    status = _serve(command, config if isinstance(config, dict) else {}, answer, makes_links)
    _note(folder, {"call": number, "ended": time.time()})
    return status


def _serve(command: str, config: dict[str, Any], answer: Answer, makes_links: bool) -> int:
    time.sleep(answer.sleep_s)
    sys.stderr.buffer.write(_bytes(answer.stderr))
    version = config.get("cniVersion") or VERSIONS[0]
    if answer.stdout is not None:
        sys.stdout.buffer.write(_bytes(answer.stdout))
    elif answer.error is not None:
        print(json.dumps({"cniVersion": version, **answer.error}))
    elif command == "VERSION":
        print(json.dumps({"cniVersion": version, "supportedVersions": VERSIONS}))
    elif command == "ADD":
        if answer.addresses is not None:
            _make_link(answer)
        print(json.dumps(_result(answer, config, version)))
    elif command == "DEL" and makes_links and os.path.exists(os.environ.get("CNI_NETNS", "")):
        _ip(f"link del {os.environ['CNI_IFNAME']}\n", must_succeed=False)
    if answer.exit is not None:
        return answer.exit
    return 1 if answer.error is not None else 0


def _result(answer: Answer, config: dict[str, Any], version: str) -> dict[str, Any]:
    ifname, netns = os.environ.get("CNI_IFNAME", ""), os.environ.get("CNI_NETNS", "")
    if answer.result is not None:
        text = json.dumps({"cniVersion": version, **answer.result})
        filled: dict[str, Any] = json.loads(text.replace("$IFNAME", ifname).replace("$NETNS", netns))
        return filled
    if config.get("prevResult") is not None:
        previous: dict[str, Any] = config["prevResult"]
        return previous
    texts = answer.addresses if answer.addresses is not None else ("198.51.100.2/24",)
    if version in VERSIONS[:2]:
        return {"cniVersion": version, **{f"ip{_family(text)}": {"ip": text} for text in texts}}
    ips: list[dict[str, Any]] = [{"address": text, "interface": 0} for text in texts]
    if version.startswith("0."):
        ips = [{"version": _family(ip["address"]), **ip} for ip in ips]
    routes = [{"dst": dst, **({"gw": gateway} if gateway else {})} for dst, gateway in answer.routes]
    return {"cniVersion": version, "interfaces": [{"name": ifname, "sandbox": netns}], "ips": ips, **({"routes": routes} if routes else {})}


def _make_link(answer: Answer) -> None:
    ifname = os.environ["CNI_IFNAME"]
    lines = [
        f"link add {ifname} type veth peer name p{ifname}",
        f"link set {ifname} up",
        f"link set p{ifname} up",
        *(f"addr add {address} dev {ifname}{' nodad' if ':' in address else ''}" for address in answer.addresses or ()),
        *(f"route append {dst}{f' via {gateway}' if gateway else ''} dev {ifname}" for dst, gateway in answer.routes),
    ]
    _ip("".join(f"{line}\n" for line in lines))


def _ip(batch: str, *, must_succeed: bool = True) -> None:
    import subprocess  # 5 ms, for calls that make links

    command = ["nsenter", f"--net={os.environ['CNI_NETNS']}", "ip", "-batch", "-"]
    subprocess.run(command, input=batch.encode(), check=must_succeed, stderr=None if must_succeed else subprocess.DEVNULL)


def _note(folder: str, entry: dict[str, object]) -> tuple[int, list[dict[str, Any]]]:
    """Append a line; the number of calls noted before it, and their lines."""
    with open(os.path.join(folder, CALLS), "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        earlier = _entries(folder)
        file.write(f"{json.dumps(entry)}\n")
    return sum("ended" not in each for each in earlier), earlier


def _entries(folder: str) -> list[dict[str, Any]]:
    try:
        with open(os.path.join(folder, CALLS), encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def _decoded(text: bytes) -> object:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return text.decode(errors="replace")


def _storable(answer: Answer) -> dict[str, object]:
    return {key: value.decode("latin-1") if isinstance(value, bytes) else value for key, value in answer._asdict().items()}


def _bytes(stored: Any) -> bytes:
    """Bytes that went through JSON as text of one character per byte."""
    return stored.encode("latin-1") if isinstance(stored, str) else stored


def _family(cidr: str) -> str:
    return "6" if ":" in cidr else "4"


if __name__ == "__main__":
    sys.exit(main(sys.argv[0]))
