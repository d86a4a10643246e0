"""A node in memory: the fakes of all ports put together, and the context that a call of Multus works with.

    world = World("bridge", "my-plugin")
    world.add_pod(networks="blue")
    world.add_network("blue", {"cniVersion": "1.0.0", "name": "blue", "type": "my-plugin"})
    world.calls.fail("kube.annotate_status", TryAgainLaterError("busy"))
    attach.add(world.context("ADD"))
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from multus.core.context import Context
from multus.defaults.execution import BinaryExecution, InProcessExecution
from multus.defaults.merging import ClusterNetworkResult
from multus.defaults.reporting import Events, StatusAnnotation
from multus.defaults.selection import AnnotationSelection, NetAttachDefResolution
from multus.hooks import manager
from multus.protocol import multus_config
from multus.testing import fakes
from multus.testing.calls import Calls
from multus.types.delegate import NetAttachDef
from multus.types.invocation import Call, CNICommand, PodArgs
from multus.types.pod import DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

BIN = "/opt/cni/bin"


class World:
    """A node in memory: every port a fake, the built-in plugins, a pod ``shop/web``, and delegates of the types that are named.

    Multus is configured with one inline delegate, ``trunk``, of the first type.
    """

    def __init__(self, *types: str, has_kube: bool = True) -> None:
        self.calls = Calls()
        self.kube = fakes.FakeKube(self.calls)
        self.has_kube = has_kube
        self.journal = fakes.FakeJournal(self.calls)
        self.netns = fakes.FakeNetns(self.calls)
        self.programs = fakes.FakePrograms(*types, calls=self.calls, netns=self.netns)
        self.registry = fakes.FakeRegistry()
        self.conf_dir = fakes.FakeConfDir(self.calls)
        self.device_info = fakes.FakeDeviceInfo(self.calls)
        self.devices: dict[str, list[str]] = {}
        """The device IDs of the pod by resource."""
        self.allocators: list[fakes.FakeDevices] = []
        """Each allocator of devices that was made."""
        self.clock = fakes.FakeClock()
        self.log = fakes.RecordingLog()
        self.paths: set[str] = set()
        """The files that the readiness indicator finds."""
        self.plugins: list[object] = []
        """Plugins that are asked before the built-in ones."""
        self.config: dict[str, object] = {
            "cniVersion": "1.1.0",
            "name": "meta-net",
            "type": "multus",
            "delegates": [{"cniVersion": "1.0.0", "name": "trunk", "type": types[0] if types else "none"}],
        }

    def add_pod(self, networks: str = "", default_network: str = "", **fields: Any) -> Pod:
        """Put a pod with these annotations into the API server; the other fields of ``Pod`` by name."""
        annotations = {NETWORKS_ANNOTATION: networks, DEFAULT_NETWORK_ANNOTATION: default_network, **fields.pop("annotations", {})}
        pod = Pod(**{"namespace": "shop", "name": "web", "uid": "u1", "annotations": {k: v for k, v in annotations.items() if v}, **fields})
        self.kube.pods[pod.namespace, pod.name] = pod
        return pod

    def add_network(self, name: str, config: Mapping[str, object] | str, *, namespace: str = "shop", resource_name: str = "") -> None:
        """Put a net-attach-def into the API server; a configuration that is text is taken as it is."""
        text = config if isinstance(config, str) else json.dumps(config)
        self.kube.net_attach_defs[namespace, name] = NetAttachDef(namespace, name, text, resource_name)

    def call(self, command: str = "ADD", **changes: Any) -> Call:
        """A call for the pod ``shop/web``; ``changes`` are fields of ``Call``."""
        pod = changes.pop("pod", PodArgs("shop", "web", "u1", "c1"))
        pairs = (("IgnoreUnknown", "1"), ("K8S_POD_NAMESPACE", pod.namespace), ("K8S_POD_NAME", pod.name), ("K8S_POD_UID", pod.uid))
        fields = {"container_id": "c1", "netns": fakes.NETNS, "ifname": "eth0", "generic_args": pairs, "path": (BIN,), "pod": pod}
        return Call(CNICommand(command), **{**fields, **changes})

    def context(self, command: str = "ADD", config: Mapping[str, object] | None = None, **changes: Any) -> Context:
        """What a call works with: ``config`` laid over the world's configuration; ``changes`` are fields of ``Call``."""
        kube = self.kube if self.has_kube else None
        builtins = (
            *self.plugins,
            AnnotationSelection(),
            NetAttachDefResolution(kube, self.conf_dir),
            InProcessExecution(self.registry, self.programs, fakes.FakeGuard, self.log),
            BinaryExecution(self.programs, {}),
            ClusterNetworkResult(),
            Events(kube),
            StatusAnnotation(kube, self.log),
        )
        return Context(
            call=self.call(command, **changes),
            config=multus_config.from_document({**self.config, **(config or {})}),
            hooks=manager.hooks_for(builtins),
            kube=kube,
            journal=self.journal,
            netns=self.netns,
            conf_dir=self.conf_dir,
            device_info=self.device_info,
            devices=self._allocator,
            clock=self.clock,
            log=self.log,
            readiness=self.paths.__contains__,
        )

    def _allocator(self, pod: Pod) -> fakes.FakeDevices:
        self.allocators.append(fakes.FakeDevices(self.calls, self.devices))
        return self.allocators[-1]
