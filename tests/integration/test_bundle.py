"""The bundle alone: in a root folder that has nothing else, the shim talks to a daemon and the thin plugin attaches pods.

Around it are only /proc, /sys and /var, and what the test asks for: no C library, no shell, no Python, no CNI plugin.  The
networks are made by the in-process delegates of ``plugins/netlink``, which are in the bundle.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from multus.adapters.installation import FOLDER, Installation
from multus.testing.node import UPLINK, Node
from multus.testing.pods import Answer, Pod
from multus.testing.thick import ThickNode

BIN_DIR = "/opt/cni/bin"
SIZE_MAX = 40_000_000
ENTER = """#!/bin/sh -e
# A call as of a runtime, in mounts of its own: they are gone with it.
exec unshare --mount sh -ec '
mount --bind /proc {root}/proc
mount -t sysfs sysfs {root}/sys
{mounts}
exec chroot {root} {executable} "$@"' call "$@"
"""


@pytest.fixture
def root(bundle: Path, tmp_path: Path) -> Path:
    """The root folder of a host that has the bundle and nothing else."""
    root = tmp_path / "root"
    for name in ("proc", "sys", "var", "run/multus", "opt/cni/bin"):
        (root / name).mkdir(parents=True)
    installation = Installation(str(root / BIN_DIR[1:]), BIN_DIR)
    installation.install(str(bundle), ("multus", "multus-shim", "passthru"))
    return root


@pytest.fixture
def entered(root: Path, tmp_path: Path) -> Callable[..., Path]:
    """Makes executables that run one of the host's, with further mounts: from outside to inside."""

    def make(executable: str, mounts: Mapping[str, str] = {}) -> Path:
        lines = [f"mount --bind {outside} {root}{inside}" for outside, inside in mounts.items()]
        path = tmp_path / f"call-{executable}"
        path.write_text(ENTER.format(root=root, executable=f"{BIN_DIR}/{executable}", mounts="\n".join(lines)))
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def thin(root: Path, entered: Callable[..., Path], certificates) -> Iterator[ThinHost]:
    folder = root / "var" / "node"
    folder.mkdir()
    settings = {"delegatePreference": "in-process"}
    with ThinHost(str(entered("multus")), folder, certificates=certificates, settings=settings) as node:
        node.root = str(root)
        yield node


class ThinHost(Node):
    """A node whose paths are those of the host below ``root``."""

    root = ""

    def call(self, command: str, pod: Pod, **settings: object) -> Answer:
        config = json.loads(json.dumps({**self.config, **settings}).replace(self.root, ""))
        with self.namespace.entered():
            return pod.call(self.multus, command, {**config, "binDir": BIN_DIR}, plugin_folder=BIN_DIR)

    def add_network(self, name: str, *plugins: Mapping[str, object], namespace: str = "default", version: str = "1.0.0") -> None:
        super().add_network(name, *json.loads(json.dumps(plugins).replace(self.root, "")), namespace=namespace, version=version)


def test_thin_attaches_a_pod_to_two_networks_and_moves_its_default_route(thin: ThinHost) -> None:
    """Over TLS, with a kubeconfig in YAML, by netlink: all that loads late is there."""
    thin.kubeconfig = thin.api.kubeconfig(Path(thin.folder) / "kubeconfig.yaml", style="yaml", inline=True)
    thin.add_network("blue", {"type": "macvlan", "master": UPLINK, "ipam": thin.host_local("10.55.0.0/24")})
    with thin.pod("web", [{"name": "blue", "default-route": ["10.55.0.254"]}]) as pod:
        answer = thin.attach(pod)
        assert answer.error == ""
        assert ["eth0", "net1"] == sorted(pod.links())
        assert {"cluster", "default/blue"} == {entry["name"] for entry in thin.statuses(pod)}
        assert any(route.startswith("default via 10.55.0.254") for route in pod.routes())
        assert thin.call("CHECK", pod, prevResult=answer.document).error == ""
        assert thin.detach(pod).error == ""
        assert {} == pod.links()
    assert {} == thin.remains()


def test_thin_says_which_package_a_kubeconfig_would_need(thin: ThinHost) -> None:
    thin.kubeconfig = thin.api.kubeconfig(Path(thin.folder) / "kubeconfig", user={"username": "a", "password": "b"}, inline=True)
    with thin.pod("web", "blue") as pod:
        answer = thin.attach(pod)
        assert (answer.status, answer.document["code"]) == (1, 7)
        assert "user tester: username: needs the Python package kubernetes" in answer.document["msg"]


def test_shim_talks_to_a_daemon(entered: Callable[..., Path], daemon_binary: str, certificates, tmp_path: Path) -> None:
    """The daemon is outside, its socket's folder is mounted where the shim looks by default."""
    folder = tmp_path / "node"
    (folder / "run").mkdir(parents=True)
    shim = entered("multus-shim", {str(folder / "run"): "/run/multus"})
    settings = {"daemonSocketDir": "/run/multus"}
    with ThickNode(str(shim), daemon_binary, folder, certificates=certificates, settings=settings) as node:
        node.add_network("blue", {"type": "macvlan", "master": UPLINK, "ipam": node.host_local("10.56.0.0/24")})
        with node.pod("web", "blue") as pod:
            assert node.attach(pod).error == ""
            assert ["eth0", "net1"] == sorted(pod.links())
            assert node.detach(pod).error == ""
        assert {} == node.remains()


@pytest.mark.parametrize("executable", ["multus", "multus-shim", "passthru"])
def test_each_executable_tells_its_versions(entered: Callable[..., Path], executable: str) -> None:
    environment = {"CNI_COMMAND": "VERSION", "PATH": os.environ["PATH"], "PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}
    done = subprocess.run([entered(executable)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "1.1.0" in json.loads(done.stdout)["supportedVersions"]


def test_nothing_is_loaded_from_elsewhere(bundle: Path, tmp_path: Path) -> None:
    """On a machine that has a C library and a Python of its own."""
    Installation(str(tmp_path), str(tmp_path)).install(str(bundle), ("multus",))
    (home,) = (tmp_path / FOLDER).iterdir()
    libraries = "(line.split()[-1] for line in open('/proc/self/maps') if '.so' in line)"
    code = f"import _ctypes, _ssl, sys, yaml; print(*sys.path, *{libraries}, sep='\\n')"
    done = subprocess.run([home / "bin" / "python3", "-IS", "-c", code], capture_output=True, text=True, check=True)
    assert {str(home)} == {str(home) if path.startswith(f"{home}/") else path for path in done.stdout.split()}


def test_size(bundle: Path) -> None:
    assert SIZE_MAX > sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())


def test_files_are_the_owners_to_change_alone(root: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root / BIN_DIR[1:]).rglob("*") if path.is_file()}
    assert modes <= {0o755, 0o644}
