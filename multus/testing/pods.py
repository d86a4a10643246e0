"""Pods to try CNI plugins on: network namespaces that this process holds, and calls as a container runtime makes them.

A namespace here has no name and no mount: it lives by an open file, so that even a killed test leaves nothing behind.
Needs root and iproute2::

    with Namespace() as node, Pod("web") as pod:
        with node.entered():
            answer = pod.call("/opt/cni/bin/bridge", "ADD", {"cniVersion": "1.0.0", "name": "blue", "type": "bridge", ...})
        print(pod.links()["eth0"].addresses)
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from multus.adapters.netns import KernelNetns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

PLUGIN_FOLDER = os.environ.get("CNI_PLUGIN_FOLDER") or ("/usr/lib/cni" if os.path.isdir("/usr/lib/cni") else "/opt/cni/bin")
"""Where the CNI plugins are: as the environment says, else where Debian, or everybody else, keeps them."""
CALL_TIMEOUT_S = 120.0


class Link(NamedTuple):
    """A network interface; addresses with their prefix length, in the kernel's order, link-local ones left out."""

    name: str
    kind: str
    mac: str
    mtu: int
    is_up: bool
    addresses: tuple[str, ...]


class Answer(NamedTuple):
    """How a plugin ended: its exit status, what it printed as JSON (None: nothing, or no JSON), and its standard error."""

    status: int
    document: Any
    stderr: str

    @property
    def error(self) -> str:
        """One line that tells what went wrong; empty after success."""
        if self.status == 0:
            return ""
        document = self.document if isinstance(self.document, dict) else {}
        said = " ".join(str(document[key]) for key in ("msg", "details") if document.get(key))
        return said or f"exit status {self.status}: {self.stderr.strip() or 'nothing said'}"


class Namespace:
    """A network namespace with ``lo`` up, from ``with`` to the end of the block or of the process."""

    def __enter__(self) -> Self:
        self._fd = _new_namespace()
        try:
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._fd)

    @property
    def path(self) -> str:
        """For ``CNI_NETNS``, in any process of this machine."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def entered(self) -> AbstractContextManager[None]:
        """A context in which the calling thread, and every process that it starts, is in the namespace."""
        return KernelNetns().entered(self.path)

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command inside; its standard output.

        Raises:
            subprocess.CalledProcessError: It failed, and ``check`` is set.
        """
        with self.entered():
            return subprocess.run(command, check=check, capture_output=True, text=True, timeout=CALL_TIMEOUT_S).stdout

    def links(self) -> dict[str, Link]:
        """All interfaces but ``lo``, by name."""
        found = json.loads(self.run("ip", "-json", "-details", "address", "show"))
        links = [_link(entry) for entry in found if entry.get("ifname") != "lo"]
        return {link.name: link for link in links}

    def routes(self, family: int = 4) -> tuple[str, ...]:
        """The routes of the main table as ``ip route`` tells them, link-local and multicast ones left out."""
        lines = self.run("ip", f"-{family}", "route", "show").splitlines()
        return tuple(" ".join(line.split()) for line in lines if not line.startswith(("fe80::", "multicast", "ff00::")))

    def processes(self) -> tuple[int, ...]:
        """The processes that are inside, by their first thread."""
        here = os.fstat(self._fd).st_ino
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{name}/ns/net").st_ino == here:
                    found.append(int(name))
            except OSError:
                continue  # it has ended
        return tuple(found)

    def pings(self, address: str, ifname: str = "") -> bool:
        """Whether an address answers within five seconds, asked through an interface if one is named."""
        through = ("-I", ifname) if ifname else ()
        with self.entered():
            command = ("ping", "-n", "-q", "-c", "1", "-w", "5", *through, address)
            return subprocess.run(command, check=False, capture_output=True, timeout=CALL_TIMEOUT_S).returncode == 0


class Pod(Namespace):
    """A pod's sandbox: a namespace, and what a container runtime says of it to a plugin."""

    def __init__(self, name: str, namespace: str = "default", *, uid: str = "", container_id: str = "", ifname: str = "eth0") -> None:
        self.name = name
        self.namespace = namespace
        self.uid = uid or str(uuid.uuid4())
        self.container_id = container_id or uuid.uuid4().hex
        self.ifname = ifname

    def environment(self, command: str, plugin_folder: str = PLUGIN_FOLDER, ifname: str = "") -> dict[str, str]:
        """The variables of one call, with ``CNI_ARGS`` as the kubelet's runtimes send them.  Spec: CNI 1.1.0 §2.

        Args:
            ifname: Another interface than the pod's first.
        """
        args = {
            "IgnoreUnknown": "1",
            "K8S_POD_NAMESPACE": self.namespace,
            "K8S_POD_NAME": self.name,
            "K8S_POD_INFRA_CONTAINER_ID": self.container_id,
            "K8S_POD_UID": self.uid,
        }
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": self.container_id,
            "CNI_NETNS": self.path,
            "CNI_IFNAME": ifname or self.ifname,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in args.items()),
            "CNI_PATH": plugin_folder,
        }

    def call(
        self, binary: str, command: str, config: Mapping[str, object], *, plugin_folder: str = PLUGIN_FOLDER, ifname: str = ""
    ) -> Answer:
        """Run a plugin on this pod and wait for its end; it works in the namespace of the calling thread, as on a node.

        Raises:
            subprocess.TimeoutExpired: It took more than two minutes.
        """
        completed = subprocess.run(
            [binary],
            check=False,
            env=self.environment(command, plugin_folder, ifname),
            input=json.dumps(config),
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT_S,
        )
        try:
            document = json.loads(completed.stdout)
        except ValueError:
            document = None
        return Answer(completed.returncode, document, completed.stderr)


def _new_namespace() -> int:
    """An open file of a new namespace, made by a thread of its own, so that no other one is moved."""
    made: list[int] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            _unshare_network()
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as exc:
            failed.append(exc)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _unshare_network() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000) != 0:  # CLONE_NEWNET
        number = ctypes.get_errno()
        raise OSError(number, f"cannot make a network namespace: {os.strerror(number)}")


def _link(entry: Mapping[str, Any]) -> Link:
    addresses = [f"{each['local']}/{each['prefixlen']}" for each in entry["addr_info"] if each.get("scope") != "link"]
    kind = entry.get("linkinfo", {}).get("info_kind", "")
    return Link(entry["ifname"], kind, entry.get("address", ""), entry["mtu"], "UP" in entry["flags"], tuple(addresses))
