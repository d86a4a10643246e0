"""The devices of a pod: what the kubelet says, and what the objects of dynamic resource allocation (DRA) say.

Only the fields that choosing a device needs.  ``multus.protocol.codec`` knows how JSON spells them.  Loaded only when a
net-attach-def names a resource: these are attrs classes, which cost more to import than the named tuples beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class DeviceEntry:
    """Devices of one resource that one container was given.  A resource may have several entries, one per NUMA node."""

    resource_name: str
    device_ids: tuple[str, ...]


@attrs.frozen
class ContainerDevices:
    """One container, by name, and its entries in no particular order."""

    container: str
    entries: tuple[DeviceEntry, ...]


@attrs.frozen
class PodDevices:
    """All device plugin devices of a pod, container by container in the order of the source."""

    containers: tuple[ContainerDevices, ...] = ()


@attrs.frozen
class CheckpointEntry:
    """One entry of the kubelet's device manager checkpoint; the IDs of all its NUMA nodes."""

    pod_uid: str
    container_name: str
    resource_name: str
    device_ids: tuple[str, ...] = attrs.field(default=(), kw_only=True)


@attrs.frozen
class Checkpoint:
    """The kubelet's device manager checkpoint."""

    entries: tuple[CheckpointEntry, ...] = ()


@attrs.frozen
class PodContainer:
    """A container of a pod's specification."""

    name: str
    restart_policy: str = ""

    @property
    def is_restartable(self) -> bool:
        """Whether an init container is a sidecar, which keeps its devices as long as the pod lives."""
        return self.restart_policy == "Always"


@attrs.frozen
class PodClaim:
    """A claim by its name in the pod; the ResourceClaim's own name is empty where this part of the pod does not say."""

    name: str
    resource_claim_name: str = ""


@attrs.frozen
class RequestMapping:
    """A container's extended resource, and the request of the pod's special claim that stands for it."""

    container_name: str
    request_name: str
    resource_name: str


@attrs.frozen
class PodView:
    """What devices depend on in a pod object."""

    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    claims: tuple[PodClaim, ...] = attrs.field(default=(), kw_only=True)
    """Of the specification: named there when the claim existed before the pod."""
    claim_statuses: tuple[PodClaim, ...] = attrs.field(default=(), kw_only=True)
    """Of the status: the claims that were generated for the pod."""
    extended_claim_name: str = attrs.field(default="", kw_only=True)
    extended_requests: tuple[RequestMapping, ...] = attrs.field(default=(), kw_only=True)


@attrs.frozen
class AllocatedDevice:
    """One result of a claim's allocation: the device that a request got, as (driver, pool, device name)."""

    request: str
    driver: str
    pool: str
    device: str = attrs.field(kw_only=True)


@attrs.frozen
class ResourceClaim:
    """A ResourceClaim; no results: it is not allocated."""

    results: tuple[AllocatedDevice, ...] = ()


@attrs.frozen
class DeviceAttribute:
    """An attribute's text; empty for an attribute of another kind."""

    string: str = ""


@attrs.frozen
class SliceDevice:
    """A device that a driver published, with its attributes by qualified name."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = attrs.field(factory=dict)


@attrs.frozen
class ResourceSlice:
    """A part of a pool.  Of a pool's slices only those of the highest generation are valid."""

    pool: str
    generation: int = 0
    devices: tuple[SliceDevice, ...] = ()


@attrs.frozen
class ResourceSliceList:
    """The answer to listing ResourceSlices."""

    items: tuple[ResourceSlice, ...] = ()
