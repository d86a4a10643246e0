"""A node in a box: containerd with its own root, state, socket and CNI folders, and what attachments leave behind on it.

All of the node's files lie below one temporary folder; the box (``box.py``) holds the rest.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.runtime.box import Box
from tests.runtime.cri import Runtime
from tests.runtime.image import archive

IMAGE = "localhost/busybox:static"
PLUGINS = Path("/usr/lib/cni")
CLUSTER_BRIDGE, SECOND_BRIDGE, UPLINK = "cluster0", "second0", "uplink0"

_OWN_LINKS = {"lo", CLUSTER_BRIDGE, SECOND_BRIDGE, UPLINK}
_TOOLS = ("containerd", "ctr", "runc", "unshare", "setpriv", "nsenter", "ip")
_START_TIMEOUT_S = 20.0
_POLL_S = 0.02

_SCRIPT = f"""
for bridge in {CLUSTER_BRIDGE} {SECOND_BRIDGE} {UPLINK}; do ip link add "$bridge" type bridge; ip link set "$bridge" up; done
containerd --config "$CONFIG" &
wait
"""

_CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{folder}/containerd.sock"
[debug]
level = "warn"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{folder}/bin"
conf_dir = "{folder}/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
"""


def host_local(folder: Path, subnet: str) -> dict[str, object]:
    """Configure host-local for one subnet; leases are kept in ``<folder>/leases/<network>/``."""
    return {"type": "host-local", "dataDir": str(folder / "leases"), "ranges": [[{"subnet": subnet}]]}


def bridge_plugin(folder: Path, bridge: str, subnet: str) -> dict[str, object]:
    """Configure the bridge plugin on one of the node's bridges, with addresses from host-local and a gateway."""
    return {"type": "bridge", "bridge": bridge, "isGateway": True, "ipam": host_local(folder, subnet)}


def missing_tools() -> list[str]:
    """List what this machine lacks for a node in a box; busybox must be the static one."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    busybox = shutil.which("busybox")
    if busybox is None or b"/ld-" in Path(busybox).read_bytes()[:4096]:
        missing.append("busybox-static")
    plugins = (PLUGINS / name for name in ("bridge", "host-local", "loopback", "macvlan", "tuning"))
    return missing + [str(path) for path in plugins if not path.exists()]


class Node:
    """A running node; ``with Node({"multus": path}, configuration) as node:``.

    Args:
        binaries: CNI binaries to install beside ``bridge``, ``host-local`` and ``loopback``, by name.
        configuration: Given the node's folder, the CNI configuration that the runtime uses for every sandbox.
    """

    def __init__(self, binaries: Mapping[str, Path], configuration: Callable[[Path], Mapping[str, object]]) -> None:
        self._binaries = {name: PLUGINS / name for name in ("bridge", "host-local", "loopback")} | dict(binaries)
        self._configuration = configuration

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="multus-node-"))  # short: the path of a Unix socket holds 107 bytes
        self.cni_dir = self.folder / "multus"
        self.log = self.folder / "containerd.log"
        self._write_files()
        self.box = Box(_SCRIPT, {"CONFIG": f"{self.folder}/config.toml"}, self.log, self.folder.name)
        try:
            self._wait_for((self.folder / "containerd.sock").exists)
            self.runtime = Runtime(f"{self.folder}/containerd.sock", IMAGE, f"/{self.folder.name}")
            self._import_image()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.runtime.close()
        self._end()

    def _end(self) -> None:
        self.box.end()
        shutil.rmtree(self.folder)

    def _write_files(self) -> None:
        for name in ("bin", "net.d", "leases"):
            (self.folder / name).mkdir()
        for name, path in self._binaries.items():
            (self.folder / "bin" / name).symlink_to(path)
        self._snapshotter = "overlayfs" if self._carries_overlays() else "native"
        config = _CONFIG.format(folder=self.folder, image=IMAGE, snapshotter=self._snapshotter)
        (self.folder / "config.toml").write_text(config)
        (self.folder / "net.d" / "00-default.conf").write_text(json.dumps(self._configuration(self.folder)))

    def _carries_overlays(self) -> bool:
        """Whether overlayfs works on the folder's file system, which a container's own root often refuses."""
        probe = self.folder / "probe"
        for part in ("lower", "upper", "work", "merged"):
            (probe / part).mkdir(parents=True)
        options = f"lowerdir={probe}/lower,upperdir={probe}/upper,workdir={probe}/work"
        command = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, f"{probe}/merged"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _import_image(self) -> None:
        image = self.folder / "image.tar"
        image.write_bytes(archive(Path(shutil.which("busybox") or "busybox").read_bytes(), IMAGE))
        ctr = ["ctr", "--address", f"{self.folder}/containerd.sock", "--namespace", "k8s.io"]
        subprocess.run([*ctr, "images", "import", "--snapshotter", self._snapshotter, str(image)], check=True, capture_output=True)
        self._wait_for(lambda: self.runtime.has_image(IMAGE))  # the runtime learns of it by an event

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not condition():
            if not self.box.runs() or time.monotonic() > deadline:
                raise RuntimeError(f"containerd did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(_POLL_S)

    def network_remains(self) -> dict[str, list[str]]:
        """Gather what attachments left behind, by kind; empty when there is nothing.

        Kinds: ``links``, ``namespaces`` (network namespaces that the runtime keeps), ``leases`` (addresses that host-local
        still holds), ``journal`` (files in ``cni_dir``), ``results`` (what the runtime itself remembers).
        """
        return _present(
            links=sorted(set(self.box.links()) - _OWN_LINKS),
            namespaces=_files(self.folder / "state/io.containerd.grpc.v1.cri/netns"),
            leases=[path for path in _files(self.folder / "leases") if Path(path).name[0].isdigit()],
            journal=_files(self.cni_dir),
            results=_files(self.box.root / "var/lib/cni"),
        )

    def process_remains(self, patience_s: float = 5.0) -> dict[str, list[str]]:
        """Gather sandboxes, shims and their control groups still there after ``patience_s``: shims end in their own time."""
        deadline = time.monotonic() + patience_s
        while True:
            found = _present(
                sandboxes=list(self.runtime.sandboxes()),
                shims=[command for command in self.box.commands() if "containerd-shim" in command],
                cgroups=[str(folder) for folder in self.box.cgroups() if folder.parent.name.startswith("pod")],
            )
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(_POLL_S)


def _present(**found: list[str]) -> dict[str, list[str]]:
    return {kind: names for kind, names in found.items() if names}


def _files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if not path.is_dir())
