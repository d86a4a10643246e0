"""Laws of devices: no document breaks them, and the mapping depends on nothing but the pod."""

from __future__ import annotations

import copy
import json

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multus.adapters.kubelet import Kubelet, decode_list
from multus.core.devices import DeviceAllocator
from multus.errors import MultusError
from multus.protocol import codec
from multus.types.devices import Checkpoint, ContainerDevices, DeviceEntry, PodDevices, PodView, ResourceClaim, ResourceSliceList
from multus.types.pod import Pod

VF = "example.test/vf"

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
"""The first document of a type builds its converter, which is slow once."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

POD = {
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "c"}],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "resourceClaims": [{"name": "a", "resourceClaimName": "claim"}],
    },
    "status": {
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "claim-b"}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "ext",
            "requestMappings": [{"containerName": "c", "requestName": "r", "resourceName": VF}],
        },
    },
}
CLAIM = {"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "nic.ex", "pool": "n1", "device": "d"}]}}}}
ATTRIBUTES = {"k8s.cni.cncf.io/deviceID": {"string": "id"}, "k8s.cni.cncf.io/resourceName": {"string": VF}}
SLICES = {
    "items": [{"spec": {"driver": "nic.ex", "pool": {"name": "n1", "generation": 1}, "devices": [{"name": "d", "attributes": ATTRIBUTES}]}}]
}
CHECKPOINT = {
    "Data": {
        "PodDeviceEntries": [
            {"PodUID": "u", "ContainerName": "c", "ResourceName": VF, "DeviceIDs": {"0": ["id"]}},
            {"PodUID": "u", "ContainerName": "c", "ResourceName": VF, "DeviceIDs": ["id"]},
        ]
    }
}


def _places(document: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    children = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [path, *(place for key, child in children for place in _places(child, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn, document: object) -> object:
    """A valid document in which up to two places hold something else."""
    damage = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 2))):
        *parents, last = draw(st.sampled_from([place for place in _places(damage) if place] or [(None,)]))
        target = damage
        for key in parents:
            target = target[key]
        if last is not None:
            target[last] = draw(json_values)
    return damage


def documents(document: object) -> st.SearchStrategy[object]:
    return json_values | damaged(document)


@unhurried
@given(st.sampled_from([(Checkpoint, CHECKPOINT), (PodView, POD), (ResourceClaim, CLAIM), (ResourceSliceList, SLICES)]), st.data())
def test_a_document_becomes_a_value_or_a_decoding_error_of_at_most_ten_lines(known, data):
    type_, valid = known
    document = data.draw(documents(valid))
    try:
        assert isinstance(codec.structure(document, type_, "thing"), type_)
    except MultusError as exc:
        assert 6 == exc.code
        assert exc.msg.startswith("thing: ")
        lines = exc.details.split("\n")
        assert len(lines) <= 10
        assert all("$" in line for line in lines)


@unhurried
@given(documents(POD), documents(CLAIM), documents(SLICES))
def test_no_object_makes_the_allocator_raise_anything_but_our_errors(pod, claim, slices):
    class Kube:
        def get(self, path, query=None):
            return slices if query else claim

    pod_value = Pod("team", "web", "u", document=pod)
    allocator = DeviceAllocator(pod_value, lambda _: PodDevices((ContainerDevices("c", (DeviceEntry(VF, ("1",)),)),)), Kube())
    for network in ("net-0", "net-1", "net-2", "net-3"):
        try:
            assert allocator.take(VF, network)
        except MultusError:
            break


@unhurried
@given(documents(CHECKPOINT).map(lambda document: json.dumps(document).encode()) | st.binary(max_size=60))
def test_no_checkpoint_raises_anything_but_our_errors(tmp_path, content):
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    try:
        devices = Kubelet(str(tmp_path / "none.sock"), str(path)).devices(Pod("team", "web", "u"))
        assert isinstance(devices, PodDevices)
    except MultusError as exc:
        assert str(path) in exc.msg


names = st.text(max_size=200)
entries = st.builds(DeviceEntry, names, st.lists(names, max_size=3).map(tuple))
pod_devices = st.lists(st.builds(ContainerDevices, names, st.lists(entries, max_size=3).map(tuple)), max_size=3).map(tuple).map(PodDevices)


def encode(number: int, value: bytes | str) -> bytes:
    payload = value.encode() if isinstance(value, str) else value
    length, head = len(payload), bytes([number << 3 | 2])
    while length > 0x7F:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + payload


def encode_list(devices: PodDevices, namespace: str, name: str) -> bytes:
    message = encode(1, name) + encode(2, namespace)
    for container in devices.containers:
        listed = (encode(1, entry.resource_name) + b"".join(encode(2, each) for each in entry.device_ids) for entry in container.entries)
        message += encode(3, encode(1, container.container) + b"".join(encode(2, entry) for entry in listed))
    return encode(1, message)


@unhurried
@given(pod_devices, pod_devices)
def test_what_the_kubelet_encodes_is_what_is_read(mine, others):
    answer = encode_list(others, "team", "other") + encode_list(mine, "team", "web") + encode_list(others, "web", "team")
    assert mine == decode_list(answer, "team", "web")


@unhurried
@given(st.binary(max_size=200) | pod_devices.map(lambda devices: encode_list(devices, "team", "web")), st.data())
def test_no_answer_raises_anything_but_our_errors(answer, data):
    damage = bytearray(answer)
    for at in data.draw(st.lists(st.integers(0, max(len(damage) - 1, 0)), max_size=3)):
        damage[at:at + 1] = data.draw(st.binary(max_size=2))
    try:
        assert isinstance(decode_list(bytes(damage), "team", "web"), PodDevices)
    except MultusError as exc:
        assert 6 == exc.code


small = st.sampled_from(["a", "b", "c", "d", "e"])
small_entries = st.builds(DeviceEntry, st.sampled_from([VF, "other"]), st.lists(small).map(tuple))
listings = st.lists(
    st.builds(ContainerDevices, small, st.lists(small_entries).map(tuple)),
    unique_by=lambda container: container.container,
    max_size=4,
)


def take_all(pod: Pod, devices: PodDevices) -> list[str]:
    allocator = DeviceAllocator(pod, lambda _: devices, None)
    taken = []
    while True:
        try:
            taken.append(allocator.take(VF, "net"))
        except MultusError:
            return taken


@unhurried
@given(listings, st.permutations(["a", "b", "c", "d", "e"]), st.randoms(use_true_random=False))
def test_the_mapping_depends_on_the_pod_alone_and_gives_each_device_once(listing, order, random):
    """However the kubelet shuffles containers, entries and IDs."""
    pod = Pod("team", "web", "u", document={"spec": {"containers": [{"name": name} for name in order]}})
    taken = take_all(pod, PodDevices(tuple(listing)))
    shuffled = []
    for container in listing:
        mixed = [attrs.evolve(each, device_ids=tuple(random.sample(each.device_ids, len(each.device_ids)))) for each in container.entries]
        random.shuffle(mixed)
        shuffled.append(ContainerDevices(container.container, tuple(mixed)))
    random.shuffle(shuffled)
    assert taken == take_all(pod, PodDevices(tuple(shuffled)))
    held = {each for container in listing for entry in container.entries if entry.resource_name == VF for each in entry.device_ids}
    assert sorted(held) == sorted(taken)
