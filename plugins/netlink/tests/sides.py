"""One network tried by the binary and by our object, each on a node and a pod of its own, and what both leave to be seen."""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from deviations import seen_alike
from kinds import take_addresses_at_once, why_declined
from multus_netlink.bridge import Bridge
from multus_netlink.host_device import HostDevice
from multus_netlink.host_local import HostLocal
from multus_netlink.loopback import Loopback
from multus_netlink.macvlan import Macvlan
from multus_netlink.ptp import Ptp
from multus_netlink.static import Static
from observed import ASKED_MAC, GENERATED_NAME, look

from multus.errors import MultusError
from multus.testing.pods import PLUGIN_FOLDER, Namespace, Pod
from multus.types.invocation import CNICommand, Invocation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TypeVar

    from multus.hooks.delegates import InProcessDelegate

    T = TypeVar("T")

DELEGATES: dict[str, InProcessDelegate] = {
    "bridge": Bridge(), "host-device": HostDevice(), "host-local": HostLocal(), "loopback": Loopback(), "macvlan": Macvlan(),
    "ptp": Ptp(), "static": Static(),
}  # fmt: skip
UPLINK = "uplink"
BRIDGES = ("br7", "cni0")
DATA = "@DATA@"
"""Stands in configurations for a side's own folder of address stores."""
_FORWARDING = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")
_GENERATED_MAC = re.compile(rf'"(?!{ASKED_MAC}|00:00:00)[0-9a-f]{{2}}(:[0-9a-f]{{2}}){{5}}"')
_SETTLE_S = 3.0
_SETTLE_STEP_S = 0.02
_READY = (
    f"link add {UPLINK} type veth peer outside", f"link set {UPLINK} up", "link set outside up",
    f"address add 192.0.2.1/24 dev {UPLINK}", "route add default via 192.0.2.254",
)  # fmt: skip


class Told(NamedTuple):
    """How a call ended: its result, which is None for an error, and that one's code and text."""

    result: Any
    code: int = 0
    msg: str = ""

    @property
    def is_error(self) -> bool:
        return self.code != 0


class Side:
    """A node with an uplink, and a pod; ``is_binary`` says who serves it unless a call says otherwise."""

    def __init__(self, is_binary: bool, data_dir: str) -> None:
        self.is_binary = is_binary
        self.data_dir = data_dir
        self.node = Namespace()
        self.pod = Pod("web", container_id="c1")
        self.messages: list[str] = []
        """What the errors of our object said in ``call``."""

    def __enter__(self) -> Self:
        self.node.__enter__()
        self.pod.__enter__()
        for namespace in (self.node, self.pod):
            take_addresses_at_once(namespace)
        self.change(self.node, *_READY)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.pod.__exit__(None, None, None)
        self.node.__exit__(None, None, None)

    def call(self, verb: str, config: dict[str, Any], args: str = "") -> Any:
        """The result; None after an error."""
        told = self.ask(verb, config, args)
        if told.is_error and not self.is_binary:
            self.messages.append(told.msg)
        return told.result

    def ask(self, verb: str, config: dict[str, Any], args: str = "", container: str = "c1", *, by_other: bool = False) -> Told:
        """Call a network; ``by_other``: the other implementation than this side's."""
        self.pod.container_id = container
        config = json.loads(json.dumps(config).replace(DATA, self.data_dir))
        with self.node.entered():
            if self.is_binary is by_other:
                try:
                    return Told(run_object(self.pod, verb, config, args) or {})
                except MultusError as exc:
                    return Told(None, exc.code, exc.msg)
            done = run_binary(self.pod, verb, config, args)
        document = json.loads(done.stdout or "{}")
        if done.returncode == 0:
            return Told(document)
        return Told(None, document.get("code", -1), f"{document.get('msg')} {document.get('details', '')}")

    def plain(self, told: Told) -> Told:
        """An answer with generated names, MACs and paths replaced, so that those of two sides compare."""
        text = GENERATED_NAME.sub("veth*", json.dumps(told.result)).replace(self.pod.path, "(the pod)")
        return told._replace(result=json.loads(_GENERATED_MAC.sub('"(a MAC)"', text)))

    def look(self) -> list[str]:
        """What the kernel and the address stores hold."""
        return [*look(self.node, self.pod), *(f"store {name} = {text!r}" for name, text in sorted(self.store().items()))]

    def store(self) -> dict[str, str]:
        """The files of the address stores but locks."""
        found = {}
        for folder, _, names in os.walk(self.data_dir):
            for name in names:
                if name != "lock":
                    path = os.path.join(folder, name)
                    found[os.path.relpath(path, self.data_dir)] = _content(path)
        return found

    def addresses(self) -> list[str]:
        """The files of addresses that are given away."""
        return sorted(name for name in self.store() if "last_reserved_ip" not in name)

    def change(self, where: Namespace, *commands: str) -> None:
        """Commands for ``ip``; of those that fail nothing is said."""
        lines = "\n".join(commands).encode()
        with where.entered():
            subprocess.run(["ip", "-force", "-batch", "-"], input=lines, capture_output=True, timeout=60, check=False)

    def clean(self) -> None:
        """Remove what networks leave on a node on purpose, and a failed binary anywhere."""
        with self.node.entered():
            left = [name for _, name in socket.if_nameindex() if name in (*BRIDGES, "wire")]
            for path in _FORWARDING:
                with open(f"/proc/sys/net/{path}", "w") as file:
                    file.write("0")
        # The binary makes a link promiscuous before it sees that it is no bridge.
        self.change(self.node, *(f"link del {name}" for name in left), f"link set {UPLINK} promisc off")
        self.change(self.pod, f"link del {self.pod.ifname}", "link set lo up")
        for name in self.store():
            os.unlink(os.path.join(self.data_dir, name))


class Sides:
    """The binary's side and ours, which work at the same time."""

    def __init__(self, folder: str) -> None:
        self.theirs = Side(True, os.path.join(folder, "binary"))
        self.ours = Side(False, os.path.join(folder, "object"))
        self.fresh: list[str] = []
        """What a look at either side says before the first call."""

    def __enter__(self) -> Self:
        self._threads = ThreadPoolExecutor(2)
        self.theirs.__enter__()
        self.ours.__enter__()
        self.fresh = self.assert_same("before the first call")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._threads.shutdown()
        self.ours.__exit__(None, None, None)
        self.theirs.__exit__(None, None, None)

    def both(self, work: Callable[[Side], T]) -> tuple[T, T]:
        """What ``work`` says of the binary's side and of ours."""
        theirs, ours = self._threads.map(work, (self.theirs, self.ours))
        return theirs, ours

    def ask(
        self, verb: str, config: dict[str, Any], args: str = "", container: str = "c1", *, by_other: bool = False
    ) -> tuple[Told, Told]:
        return self.both(lambda side: side.ask(verb, config, args, container, by_other=by_other))

    def check(
        self, config: dict[str, Any], args: str, made: tuple[Told, Told], container: str = "c1", *, by_binary: bool
    ) -> tuple[Told, Told]:
        """CHECK, by one implementation, of what each side has made."""
        results = {True: made[0].result, False: made[1].result}

        def check(side: Side) -> Told:
            document = {**config, "prevResult": results[side.is_binary]}
            return side.ask("CHECK", document, args, container, by_other=side.is_binary is not by_binary)

        return self.both(check)

    def assert_same(self, when: str) -> list[str]:
        """What both hold, which is the same once the kernel has settled; it is late with IPv6 and with carriers."""
        theirs, ours = self._settled(lambda looks: looks[0] == looks[1])
        assert_equal(theirs, ours, when)
        return ours

    def assert_fresh(self, when: str) -> None:
        """Both hold what they did before the first call, after what stays on purpose is cleaned away."""
        expected = (self.fresh, self.fresh)
        if self.both(lambda side: seen_alike(side.look())) == expected:
            return
        self.both(Side.clean)
        looks = self._settled(lambda looks: looks == expected)
        for each, what in zip(looks, ("the binary's side", "our side"), strict=True):
            assert_equal(self.fresh, each, f"{when}, {what}", ("at first", "now"))

    def _settled(self, is_at_rest: Callable[[tuple[list[str], list[str]]], bool]) -> tuple[list[str], list[str]]:
        """What both hold as soon as that is at rest, or three seconds later."""
        end = time.monotonic() + _SETTLE_S
        while True:
            theirs, ours = self.both(lambda side: seen_alike(side.look()))
            if is_at_rest((theirs, ours)) or time.monotonic() >= end:
                return theirs, ours
            time.sleep(_SETTLE_STEP_S)


def assert_equal(theirs: list[str], ours: list[str], when: str, names: tuple[str, str] = ("binary", "in-process")) -> None:
    """Fails with the lines that differ, some around them, and who said which."""
    if theirs != ours:
        lines = difflib.unified_diff(theirs, ours, *names, n=1, lineterm="")
        raise AssertionError(f"{when}:\n" + "\n".join(lines))


def run_binary(pod: Pod, verb: str, config: dict[str, Any], args: str = "") -> subprocess.CompletedProcess[bytes]:
    environment = {**pod.environment(verb), "CNI_ARGS": args}
    binary = os.path.join(PLUGIN_FOLDER, config["type"])
    return subprocess.run([binary], env=environment, input=json.dumps(config).encode(), capture_output=True, check=False, timeout=60)


def invocation_of(pod: Pod, verb: str, config: dict[str, Any], args: str = "") -> Invocation:
    return Invocation(CNICommand(verb), str(config["type"]), config, pod.container_id, pod.path, pod.ifname, args)


def run_object(pod: Pod, verb: str, config: dict[str, Any], args: str = "") -> Any:
    invocation = invocation_of(pod, verb, config, args)
    delegate = DELEGATES[config["type"]]
    assert why_declined(delegate, invocation) == ""
    if verb == "ADD":
        return json.loads(json.dumps(dict(delegate.add(invocation).document)))
    {"DEL": delegate.delete, "CHECK": delegate.check, "GC": delegate.gc, "STATUS": delegate.status}[verb](invocation)
    return None


def can_run() -> str:
    """Why the tests in namespaces cannot run here; empty: they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in DELEGATES if not os.path.exists(os.path.join(PLUGIN_FOLDER, name))]
    return f"no {', '.join(missing)} in {PLUGIN_FOLDER}" if missing else ""


def _content(path: str) -> str:
    with open(path, newline="") as file:
        return file.read()

