"""The core joined with the built-in plugins and the adapters: what the thin binary and the daemon have in common."""

from __future__ import annotations

import os
import time

from multus.adapters.conf_dir import ConfDir
from multus.adapters.device_info import DeviceInfo
from multus.adapters.journal import Journal
from multus.adapters.netns import KernelNetns
from multus.core.context import Context
from multus.defaults.execution import BinaryExecution, InProcessExecution
from multus.defaults.merging import ClusterNetworkResult
from multus.defaults.reporting import Events, StatusAnnotation
from multus.defaults.selection import AnnotationSelection, NetAttachDefResolution
from multus.errors import InvalidConfigError
from multus.hooks import manager
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.core import ports
    from multus.hooks.manager import Hooks
    from multus.types.config import MultusConfig
    from multus.types.invocation import Call
    from multus.types.pod import Pod


class World(NamedTuple):
    """What a process brings to each call that it serves."""

    environ: Mapping[str, str]
    """What delegates inherit."""
    programs: ports.Programs
    in_process: InProcessExecution
    """The delegates that are Python objects; it remembers what it has told."""
    hook_plugins: Mapping[str, object] = {}
    """Third-party hook plugins by name."""


def context(
    call: Call, config: MultusConfig, world: World, log: ports.Log, kube: ports.Kube | None, events: ports.EventSink | None
) -> Context:
    """The context of one call.

    Args:
        kube: None when no API server is configured.
        events: Where events go; None: nowhere.
    """
    conf_dir = ConfDir(config.conf_dir, log)
    return Context(
        call=call,
        config=config,
        hooks=_hooks(world, kube, events, conf_dir, log),
        kube=kube,
        journal=Journal(config.cni_dir, log),
        netns=KernelNetns(),
        conf_dir=conf_dir,
        device_info=DeviceInfo(),
        devices=lambda pod: _devices(pod, kube),
        clock=time,
        log=log,
        readiness=os.path.exists,
    )


def _hooks(world: World, kube: ports.Kube | None, events: ports.EventSink | None, conf_dir: ConfDir, log: ports.Log) -> Hooks:
    builtins = (
        AnnotationSelection(),
        NetAttachDefResolution(kube, conf_dir),
        world.in_process,
        BinaryExecution(world.programs, world.environ),
        ClusterNetworkResult(),
        Events(events),
        StatusAnnotation(kube, log),
    )
    return manager.load(builtins, world.hook_plugins) if world.hook_plugins else manager.hooks_for(builtins)


def _devices(pod: Pod, kube: ports.Kube | None) -> ports.Devices:
    if kube is None:
        raise InvalidConfigError("devices need an API server, and none is configured")
    from multus.adapters.kubelet import Kubelet  # attrs and cattrs behind it: only for networks with devices
    from multus.core.devices import DeviceAllocator

    return DeviceAllocator(pod, Kubelet().devices, kube)
