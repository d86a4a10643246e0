"""The box itself, with no multus in it: when one of these fails, the fault is not in multus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="CRI is gRPC: grpcio is not installed")

from tests.runtime.cri import Pod
from tests.runtime.image import archive
from tests.runtime.node import CLUSTER_BRIDGE, Node, bridge_plugin

POD = Pod("plain", "shop", "uid-of-plain")


@pytest.fixture
def plain_node(machine: None) -> Iterator[Node]:
    """A node whose runtime calls the bridge plugin itself."""

    def configuration(folder: Path) -> dict[str, object]:
        return {"cniVersion": "1.0.0", "name": "plain", **bridge_plugin(folder, CLUSTER_BRIDGE, "10.200.0.0/24")}

    with Node({}, configuration) as node:
        yield node


def test_the_same_busybox_gives_the_same_archive() -> None:
    assert archive(b"busybox", "localhost/one:1") == archive(b"busybox", "localhost/one:1")


def test_a_sandbox_of_the_bridge_plugin_comes_and_goes_without_a_trace(plain_node: Node) -> None:
    runtime = plain_node.runtime
    assert {"RuntimeReady": True, "NetworkReady": True} == runtime.conditions()
    sandbox = runtime.run(POD)
    assert {"eth0": ("10.200.0.2/24",)} == runtime.interfaces(runtime.start_container(POD, sandbox))
    assert ("10.200.0.2",) == runtime.status(sandbox).addresses
    runtime.stop(sandbox)
    assert {} == plain_node.network_remains()
    runtime.remove(sandbox)
    assert {} == plain_node.process_remains()


def test_remains_of_a_living_sandbox_are_seen(plain_node: Node) -> None:
    """Guards the other tests: an empty answer means that nothing is left, not that nobody looked."""
    plain_node.runtime.run(POD)
    assert {"links", "namespaces", "leases", "results"} == set(plain_node.network_remains())
    assert {"sandboxes", "shims", "cgroups"} == set(plain_node.process_remains(patience_s=0))
