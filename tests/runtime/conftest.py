"""Tests with a real container runtime as the caller of multus.

Each test starts Debian's containerd in a box of Linux namespaces (``box.py``, ``node.py``), talks CRI to it as the kubelet does
(``cri.py``), and gives it a cluster that lives in the API stand-in (``cluster.py``). The sandbox image is made on the
spot from a static busybox (``image.py``); nothing is downloaded. Interfaces are looked at by a command in a container
of the pod.

Needed: root, and the Debian packages containerd, runc, busybox-static, containernetworking-plugins and iproute2; without
them, or without grpcio, these tests are skipped. ``MULTUS_BIN`` names the executable under test; by default it is the
``multus`` beside the running interpreter, else the one on the search path.

A node starts in a third of a second. It leaves an empty ``/var/lib/cni`` on the machine; when the test run is killed, also
its temporary folder and empty control groups, but no process, mount or link.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.runtime.cluster import Cluster
    from tests.runtime.node import Node

_LOG_TAIL = 6000

# Fixtures import what they start: without grpcio this file must load all the same, for the tests to be skipped.


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip where no container runtime can be started."""
    from tests.runtime.node import missing_tools

    if os.geteuid() != 0:
        pytest.skip("a container runtime needs root")
    if missing := missing_tools():
        pytest.skip(f"not installed here: {', '.join(missing)}")


@pytest.fixture(scope="session")
def multus_binary() -> Path:
    """The multus executable under test."""
    beside = Path(sys.executable).with_name("multus")
    found = os.environ.get("MULTUS_BIN") or (str(beside) if beside.exists() else shutil.which("multus"))
    if found is None:
        pytest.skip("no multus executable: install the package, or name one in MULTUS_BIN")
    return Path(found).absolute()


@pytest.fixture
def node(machine: None, multus_binary: Path) -> Iterator[Node]:
    """A node whose runtime calls multus for every sandbox."""
    from tests.runtime.cluster import multus_configuration
    from tests.runtime.node import Node

    with Node({"multus": multus_binary}, multus_configuration) as node:
        yield node
        for log in (node.log, node.folder / "multus.log"):  # shown with a failing test
            print(f"--- {log.name}", log.read_text()[-_LOG_TAIL:] if log.exists() else "(none)", sep="\n")


@pytest.fixture
def cluster(node: Node) -> Iterator[Cluster]:
    """A cluster around the node, with the networks ``blue`` (bridge) and ``green`` (macvlan)."""
    from tests.runtime.cluster import Cluster

    with Cluster(node) as cluster:
        cluster.add_blue()
        cluster.add_green()
        yield cluster
