"""Which device of a pod goes to which of its networks.

One ``DeviceAllocator`` serves all networks of an ADD, so that no device goes to two of them.  It asks the kubelet and the
API server through what it is given, only when a network needs it, and each thing once.
"""

from __future__ import annotations

from functools import cached_property

from multus.errors import InvalidConfigError, MultusError
from multus.protocol import codec
from multus.types.devices import DeviceAttribute, PodView, ResourceClaim, ResourceSliceList

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from multus.core.ports import Kube
    from multus.types.devices import AllocatedDevice, PodDevices, SliceDevice
    from multus.types.pod import Pod

    _Devices: TypeAlias = dict[str, dict[str, None]]  # by resource name: device IDs, an ordered set
    _Pools: TypeAlias = dict[str, dict[str, SliceDevice]]  # by pool and device name

DEVICE_ID_ATTRIBUTE = "k8s.cni.cncf.io/deviceID"
RESOURCE_NAME_ATTRIBUTE = "k8s.cni.cncf.io/resourceName"

_API = "/apis/resource.k8s.io/v1"


class DeviceAllocator:
    """Hands out the devices of one pod during one ADD, each at most once.

    The order of a resource's devices depends on nothing but the pod: first those of device plugins, by container in the
    order of the pod's specification (restartable init containers, then containers; what a plain init container holds goes
    back to the node when it ends, and is left out); then those of its resource claims, in the order of the specification;
    last those of its extended resources, by container.  Within one container or claim they are sorted as strings.
    """

    def __init__(self, pod: Pod, kubelet: Callable[[Pod], PodDevices], kube: Kube) -> None:
        self._pod = pod
        self._kubelet = kubelet
        self._kube = kube
        self._takers: dict[str, list[str]] = {}
        self._warnings: list[str] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was left out on the way, for the log: claims for other things than networks are normal."""
        return tuple(self._warnings)

    def take(self, resource_name: str, network: str) -> str:
        """The ID of the pod's next device of a resource, for a network.  Claims are read when the kubelet's devices are used up.

        Raises:
            InvalidConfigError: Code 7, the pod has no device of the resource, or none left.
            MultusError: What the kubelet and the API server raise.

        Spec: Multus behaviour; the order within a pod is ours.
        """
        takers = self._takers.setdefault(resource_name, [])
        devices = self._from_kubelet.get(resource_name, {})
        if len(takers) >= len(devices):
            devices = devices | self._from_claims.get(resource_name, {})
        if len(takers) >= len(devices):
            had = f"none left: it has {len(devices)}, used by {', '.join(takers)}" if takers else "none"
            raise InvalidConfigError(
                f"network {network!r} needs a device of resource {resource_name}, and the pod has {had}",
                "\n".join(self._warnings),
            )
        device_id = tuple(devices)[len(takers)]
        takers.append(network)
        return device_id

    @cached_property
    def _view(self) -> PodView:
        return codec.structure(self._pod.document, PodView, f"pod {self._pod}")

    @cached_property
    def _order(self) -> dict[str, int]:
        """The place of each container in the pod's specification."""
        return {container.name: place for place, container in enumerate((*self._view.init_containers, *self._view.containers))}

    def _rank(self, container: str) -> int:
        """What to sort containers by: one that is not in the specification comes behind all that are."""
        return self._order.get(container, len(self._order))

    @cached_property
    def _from_kubelet(self) -> _Devices:
        passing = {container.name for container in self._view.init_containers if not container.is_restartable}
        devices: _Devices = {}
        for container in sorted(self._kubelet(self._pod).containers, key=lambda container: self._rank(container.container)):
            if container.container in passing:
                continue
            given: dict[str, list[str]] = {}
            for entry in container.entries:
                given.setdefault(entry.resource_name, []).extend(entry.device_ids)
            _append(devices, given)
        return devices

    @cached_property
    def _from_claims(self) -> _Devices:
        devices: _Devices = {}
        slices = _Slices(self._kube, self._view.node_name)
        names = self._claim_names()
        unknown = [name for name, claim in names.items() if not claim]
        self._warnings.extend(f"claim {name} of pod {self._pod}: no ResourceClaim stands for it" for name in unknown)
        for claim in dict.fromkeys(filter(None, names.values())):
            _append(devices, self._usable(claim, slices))
        if self._view.extended_claim_name:
            for given in self._extended(self._view.extended_claim_name, slices).values():
                _append(devices, given)
        return devices

    def _claim_names(self) -> dict[str, str]:
        """ResourceClaims by their name in the pod, in its specification's order; empty: none was needed, or it is not known yet."""
        names = {claim.name: claim.resource_claim_name for claim in self._view.claims}
        for status in self._view.claim_statuses:
            names[status.name] = names.get(status.name) or status.resource_claim_name
        return names

    def _usable(self, claim: str, slices: _Slices) -> dict[str, list[str]]:
        """A claim's devices that say what they are; the others, such as GPUs, are none of ours."""
        given: dict[str, list[str]] = {}
        for result in self._results(claim):
            device = slices.find(result)
            device_id, resource_name = _identity(device)
            if device_id and resource_name:
                given.setdefault(resource_name, []).append(device_id)
            else:
                self._warnings.append(f"{self._where(claim)}: {_named(result)} is left out: {_lack(device)}")
        return given

    def _extended(self, claim: str, slices: _Slices) -> dict[str, dict[str, list[str]]]:
        """The devices of extended resources, by container.  The claim was made for these requests, so all must be right."""
        results = self._results(claim)
        given: dict[str, dict[str, list[str]]] = {}
        for mapping in sorted(self._view.extended_requests, key=lambda mapping: self._rank(mapping.container_name)):
            granted = [result for result in results if result.request == mapping.request_name]
            if not granted:
                raise InvalidConfigError(f"{self._where(claim)}: no device is allocated to request {mapping.request_name}")
            for result in granted:
                device = slices.find(result)
                device_id, resource_name = _identity(device)
                if not (device_id and resource_name):
                    raise InvalidConfigError(f"{self._where(claim)}: {_named(result)} cannot be used: {_lack(device)}")
                if resource_name != mapping.resource_name:
                    raise InvalidConfigError(
                        f"{self._where(claim)}: {_named(result)} is of resource {resource_name}, the pod asked for {mapping.resource_name}"
                    )
                given.setdefault(mapping.container_name, {}).setdefault(resource_name, []).append(device_id)
        return given

    def _results(self, claim: str) -> tuple[AllocatedDevice, ...]:
        try:
            document = self._kube.get(f"{_API}/namespaces/{self._pod.namespace}/resourceclaims/{claim}")
        except MultusError as exc:
            raise exc.prefixed(self._where(claim)) from exc
        results = codec.structure(document, ResourceClaim, self._where(claim)).results
        if not results:
            raise InvalidConfigError(f"{self._where(claim)}: no devices are allocated to it")
        return results

    def _where(self, claim: str) -> str:
        return f"resource claim {self._pod.namespace}/{claim}"


class _Slices:
    """The devices that drivers published, listed at most once per driver on the pod's node and once beyond."""

    def __init__(self, kube: Kube, node_name: str) -> None:
        self._kube = kube
        self._node_name = node_name
        self._listed: dict[str, _Pools] = {}

    def find(self, result: AllocatedDevice) -> SliceDevice | None:
        """The device of an allocation result.  Pools that the node does not have are looked for among those of no single node."""
        by_driver = f"spec.driver={result.driver}"
        if not self._node_name:
            pools = self._pools(by_driver)
        else:
            pools = self._pools(f"spec.nodeName={self._node_name},{by_driver}")
            if result.pool not in pools:
                pools = self._pools(f"spec.nodeName=,{by_driver}")
        return pools.get(result.pool, {}).get(result.device)

    def _pools(self, selector: str) -> _Pools:
        if selector not in self._listed:
            where = f"resource slices with {selector}"
            try:
                document = self._kube.get(f"{_API}/resourceslices", {"fieldSelector": selector})
            except MultusError as exc:
                raise exc.prefixed(where) from exc
            self._listed[selector] = _newest(codec.structure(document, ResourceSliceList, where))
        return self._listed[selector]


def _newest(slices: ResourceSliceList) -> _Pools:
    """The devices of each pool's highest generation: what is older has been replaced and waits to be deleted."""
    generations: dict[str, int] = {}
    for part in slices.items:
        generations[part.pool] = max(part.generation, generations.get(part.pool, part.generation))
    pools: _Pools = {pool: {} for pool in generations}
    for part in slices.items:
        if part.generation == generations[part.pool]:
            pools[part.pool].update({device.name: device for device in part.devices})
    return pools


def _append(devices: _Devices, given: Mapping[str, Iterable[str]]) -> None:
    """Put devices behind those that are known, sorted; a device that is known keeps its place."""
    for resource_name, device_ids in given.items():
        devices.setdefault(resource_name, {}).update(dict.fromkeys(sorted(filter(None, device_ids))))


def _identity(device: SliceDevice | None) -> tuple[str, str]:
    """Device ID and resource name as the driver published them; "" for what it did not."""
    attributes = device.attributes if device else {}
    device_id, resource_name = (attributes.get(name, DeviceAttribute()) for name in (DEVICE_ID_ATTRIBUTE, RESOURCE_NAME_ATTRIBUTE))
    return device_id.string, resource_name.string


def _lack(device: SliceDevice | None) -> str:
    """Why a device has no identity."""
    if device is None:
        return "no resource slice has it"
    return f"it has no string attribute {RESOURCE_NAME_ATTRIBUTE if _identity(device)[0] else DEVICE_ID_ATTRIBUTE}"


def _named(result: AllocatedDevice) -> str:
    return f"device {result.driver}/{result.pool}/{result.device}"
