"""Which device goes to which network."""

from __future__ import annotations

import pytest

from multus.core.devices import DeviceAllocator
from multus.errors import DecodingError, ForbiddenError, InvalidConfigError, ObjectNotFoundError
from multus.types.devices import ContainerDevices, DeviceEntry, PodDevices
from multus.types.pod import Pod

VF = "example.test/vf"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ON_NODE = "spec.nodeName=n1,spec.driver=nic.ex"
ON_NO_NODE = "spec.nodeName=,spec.driver=nic.ex"


def container(name: str, *device_ids: str, resource: str = VF) -> ContainerDevices:
    return ContainerDevices(name, (DeviceEntry(resource, device_ids),))


class FakeKubelet:
    """Says what it is given, and counts how often it is asked."""

    def __init__(self, *containers: ContainerDevices) -> None:
        self.containers = containers
        self.asked = 0

    def __call__(self, pod: Pod) -> PodDevices:
        self.asked += 1
        return PodDevices(self.containers)


class FakeKube:
    """Objects by path, lists by path and field selector; keeps what was asked."""

    def __init__(self, objects: dict[str, object] | None = None, slices: dict[str, list[object]] | None = None) -> None:
        self.objects = objects or {}
        self.slices = slices or {}
        self.asked: list[str] = []

    def get(self, path, query=None):
        if query:
            self.asked.append(query["fieldSelector"])
            return {"items": self.slices.get(query["fieldSelector"], [])}
        self.asked.append(path)
        answer = self.objects.get(path)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise ObjectNotFoundError("not found")
        return answer


def pod(spec: dict[str, object] | None = None, status: dict[str, object] | None = None) -> Pod:
    return Pod("team", "web", "uid-1", document={"spec": {"nodeName": "n1", **(spec or {})}, "status": status or {}})


def containers_pod(*names: str) -> Pod:
    return pod({"containers": [{"name": name} for name in names]})


def claiming_pod(*claims: str, node_name: str | None = "n1") -> Pod:
    spec = {"nodeName": node_name, "resourceClaims": [{"name": f"my-{claim}", "resourceClaimName": claim} for claim in claims]}
    return pod(spec)


def result(device: str, request: str = "req", pool: str = "n1", driver: str = "nic.ex") -> dict[str, object]:
    return {"request": request, "driver": driver, "pool": pool, "device": device}


def claim(*results: object) -> dict[str, object]:
    return {"status": {"allocation": {"devices": {"results": list(results)}}}}


def device(name: str, device_id: object = None, resource: object = VF) -> dict[str, object]:
    values = {"k8s.cni.cncf.io/deviceID": device_id or {"string": f"id-{name}"}, "k8s.cni.cncf.io/resourceName": {"string": resource}}
    return {"name": name, "attributes": values}


def part(*devices: object, pool: str = "n1", generation: int = 1) -> dict[str, object]:
    return {"spec": {"driver": "nic.ex", "pool": {"name": pool, "generation": generation}, "devices": list(devices)}}


def mapping(container: str, request: str, resource: str = VF) -> dict[str, str]:
    return {"containerName": container, "requestName": request, "resourceName": resource}


def extended_pod(*mappings: object, containers: tuple[str, ...] = ("a", "b")) -> Pod:
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": list(mappings)}}
    return pod({"containers": [{"name": name} for name in containers]}, status)


def take_all(allocator: DeviceAllocator, count: int, resource: str = VF) -> list[str]:
    return [allocator.take(resource, f"team/net-{index}") for index in range(count)]


# Devices of device plugins


def test_the_container_that_comes_first_in_the_pod_owns_the_first_network():
    kubelet = FakeKubelet(container("first", "0000:3b:02.7"), container("second", "0000:3b:02.1"))
    allocator = DeviceAllocator(containers_pod("first", "second"), kubelet, FakeKube())
    assert ["0000:3b:02.7", "0000:3b:02.1"] == take_all(allocator, 2)


def test_the_order_is_the_specifications_not_the_kubelets():
    kubelet = FakeKubelet(container("first", "a"), container("second", "b"))
    assert ["b", "a"] == take_all(DeviceAllocator(containers_pod("second", "first"), kubelet, FakeKube()), 2)


@pytest.mark.parametrize("listing", [("0000:3b:03.1", "0000:3b:02.6"), ("0000:3b:02.6", "0000:3b:03.1")])
def test_within_one_container_devices_are_sorted(listing):
    allocator = DeviceAllocator(containers_pod("c"), FakeKubelet(container("c", *listing)), FakeKube())
    assert ["0000:3b:02.6", "0000:3b:03.1"] == take_all(allocator, 2)


def test_entries_of_one_resource_and_container_are_sorted_together():
    entries = (DeviceEntry(VF, ("c",)), DeviceEntry("ex.com/other", ("x",)), DeviceEntry(VF, ("b", "a")))
    allocator = DeviceAllocator(containers_pod("c"), FakeKubelet(ContainerDevices("c", entries)), FakeKube())
    assert ["a", "b", "c"] == take_all(allocator, 3)
    assert "x" == allocator.take("ex.com/other", "team/other")


def test_restartable_init_containers_come_before_containers():
    spec = {"initContainers": [{"name": "sidecar", "restartPolicy": "Always"}], "containers": [{"name": "main"}]}
    kubelet = FakeKubelet(container("main", "a"), container("sidecar", "b"))
    assert ["b", "a"] == take_all(DeviceAllocator(pod(spec), kubelet, FakeKube()), 2)


def test_what_a_plain_init_container_holds_is_left_out():
    """It goes back to the node when the container ends, and then to another pod."""
    spec = {"initContainers": [{"name": "prepare"}], "containers": [{"name": "main"}]}
    allocator = DeviceAllocator(pod(spec), FakeKubelet(container("main", "b"), container("prepare", "a", "b")), FakeKube())
    assert ["b"] == take_all(allocator, 1)
    with pytest.raises(InvalidConfigError):
        allocator.take(VF, "team/more")


def test_containers_that_the_pod_does_not_name_come_last_as_listed():
    kubelet = FakeKubelet(container("y", "1"), container("x", "2"), container("known", "3"))
    assert ["3", "1", "2"] == take_all(DeviceAllocator(containers_pod("known"), kubelet, FakeKube()), 3)


def test_a_device_that_two_containers_list_is_given_once():
    allocator = DeviceAllocator(containers_pod("a", "b"), FakeKubelet(container("a", "1"), container("b", "2", "1")), FakeKube())
    assert ["1", "2"] == take_all(allocator, 2)
    with pytest.raises(InvalidConfigError):
        allocator.take(VF, "team/more")


def test_an_empty_device_id_is_no_device():
    with pytest.raises(InvalidConfigError):
        DeviceAllocator(containers_pod("a"), FakeKubelet(container("a", "")), FakeKube()).take(VF, "team/sr")


def test_the_kubelet_is_asked_once_and_only_when_a_device_is_taken():
    kubelet = FakeKubelet(container("a", "1", "2"))
    allocator = DeviceAllocator(containers_pod("a"), kubelet, FakeKube())
    assert 0 == kubelet.asked
    take_all(allocator, 2)
    assert 1 == kubelet.asked


def test_one_network_too_many_fails_and_names_who_has_the_devices():
    allocator = DeviceAllocator(containers_pod("a"), FakeKubelet(container("a", "1", "2")), FakeKube())
    take_all(allocator, 2)
    with pytest.raises(InvalidConfigError) as failure:
        allocator.take(VF, "team/more")
    expected = (
        "network 'team/more' needs a device of resource example.test/vf, and the pod has none left: "
        "it has 2, used by team/net-0, team/net-1"
    )
    assert expected == failure.value.msg


def test_a_resource_that_the_pod_has_no_device_of_fails():
    with pytest.raises(InvalidConfigError) as failure:
        DeviceAllocator(containers_pod("a"), FakeKubelet(), FakeKube()).take(VF, "team/sr")
    assert "network 'team/sr' needs a device of resource example.test/vf, and the pod has none" == failure.value.msg


def test_a_pod_of_another_shape_is_a_decoding_error():
    broken = Pod("team", "web", "uid-1", document={"spec": {"containers": 5}})
    with pytest.raises(DecodingError) as failure:
        DeviceAllocator(broken, FakeKubelet(), FakeKube()).take(VF, "team/sr")
    assert "pod team/web/uid-1: the document has the wrong shape" == failure.value.msg


# Resource claims


def test_no_claim_is_read_while_the_kubelets_devices_last():
    kube = FakeKube()
    allocator = DeviceAllocator(claiming_pod("gpu"), FakeKubelet(container("a", "1")), kube)
    assert "1" == allocator.take(VF, "team/sr")
    assert [] == kube.asked


def test_the_api_is_asked_once_per_claim_and_driver():
    kube = FakeKube(
        {f"{CLAIMS}/a": claim(result("d2"), result("d1")), f"{CLAIMS}/b": claim(result("d0"))},
        {ON_NODE: [part(device("d0"), device("d1"), device("d2"))]},
    )
    names = {"first": "a", "second": "b", "a once more": "a"}
    spec = {"resourceClaims": [{"name": name, "resourceClaimName": claim} for name, claim in names.items()]}
    allocator = DeviceAllocator(pod(spec), FakeKubelet(), kube)
    assert ["id-d1", "id-d2", "id-d0"] == take_all(allocator, 3)
    assert [f"{CLAIMS}/a", ON_NODE, f"{CLAIMS}/b"] == kube.asked


def test_claimed_devices_follow_the_kubelets():
    kube = FakeKube({f"{CLAIMS}/a": claim(result("d1"))}, {ON_NODE: [part(device("d1"))]})
    allocator = DeviceAllocator(claiming_pod("a"), FakeKubelet(container("c", "z")), kube)
    assert ["z", "id-d1"] == take_all(allocator, 2)


def test_claims_are_ordered_by_the_specification_whatever_the_status_says():
    spec = {"resourceClaims": [{"name": "one", "resourceClaimTemplateName": "t"}, {"name": "two", "resourceClaimName": "b"}]}
    status = {"resourceClaimStatuses": [{"name": "three", "resourceClaimName": "c"}, {"name": "one", "resourceClaimName": "a"}]}
    kube = FakeKube(
        {f"{CLAIMS}/a": claim(result("d3")), f"{CLAIMS}/b": claim(result("d2")), f"{CLAIMS}/c": claim(result("d1"))},
        {ON_NODE: [part(device("d1"), device("d2"), device("d3"))]},
    )
    assert ["id-d3", "id-d2", "id-d1"] == take_all(DeviceAllocator(pod(spec, status), FakeKubelet(), kube), 3)


def test_a_status_that_says_nothing_of_a_claim_hides_no_name():
    spec = {"resourceClaims": [{"name": "one", "resourceClaimName": "a"}]}
    kube = FakeKube({f"{CLAIMS}/a": claim(result("d1"))}, {ON_NODE: [part(device("d1"))]})
    allocator = DeviceAllocator(pod(spec, {"resourceClaimStatuses": [{"name": "one"}]}), FakeKubelet(), kube)
    assert ["id-d1"] == take_all(allocator, 1)


def test_a_claim_that_nothing_stands_for_is_skipped_with_a_warning():
    spec = {"resourceClaims": [{"name": "one", "resourceClaimTemplateName": "t"}, {"name": "two", "resourceClaimName": "b"}]}
    kube = FakeKube({f"{CLAIMS}/b": claim(result("d1"))}, {ON_NODE: [part(device("d1"))]})
    allocator = DeviceAllocator(pod(spec), FakeKubelet(), kube)
    assert ["id-d1"] == take_all(allocator, 1)
    assert ("claim one of pod team/web/uid-1: no ResourceClaim stands for it",) == allocator.warnings


def test_devices_that_are_none_of_ours_are_skipped_with_a_warning():
    unnamed = {"name": "unnamed"}
    numbered = device("numbered", device_id={"int": 5})
    idle = {"name": "idle", "attributes": {"k8s.cni.cncf.io/deviceID": {"string": "x"}}}
    kube = FakeKube(
        {f"{CLAIMS}/a": claim(result("gone"), result("unnamed"), result("numbered"), result("idle"), result("nic"))},
        {ON_NODE: [part(unnamed, numbered, idle, device("nic"))]},
    )
    allocator = DeviceAllocator(claiming_pod("a"), FakeKubelet(), kube)
    assert ["id-nic"] == take_all(allocator, 1)
    expected = (
        "resource claim team/a: device nic.ex/n1/gone is left out: no resource slice has it",
        "resource claim team/a: device nic.ex/n1/unnamed is left out: it has no string attribute k8s.cni.cncf.io/deviceID",
        "resource claim team/a: device nic.ex/n1/numbered is left out: it has no string attribute k8s.cni.cncf.io/deviceID",
        "resource claim team/a: device nic.ex/n1/idle is left out: it has no string attribute k8s.cni.cncf.io/resourceName",
    )
    assert expected == allocator.warnings


def test_what_was_left_out_explains_a_missing_device():
    kube = FakeKube({f"{CLAIMS}/gpu": claim(result("g", driver="gpu.ex"))})
    with pytest.raises(InvalidConfigError) as failure:
        DeviceAllocator(claiming_pod("gpu"), FakeKubelet(), kube).take(VF, "team/sr")
    assert "resource claim team/gpu: device gpu.ex/n1/g is left out: no resource slice has it" == failure.value.details


def test_a_pool_of_no_single_node_is_found_by_a_second_list():
    fabric = part(device("d1", {"string": "far-1"}), device("d2", {"string": "far-2"}), pool="fabric")
    kube = FakeKube(
        {f"{CLAIMS}/a": claim(result("d1", pool="fabric"), result("d2", pool="fabric"))},
        {ON_NODE: [part(device("d1"))], ON_NO_NODE: [fabric]},
    )
    assert ["far-1", "far-2"] == take_all(DeviceAllocator(claiming_pod("a"), FakeKubelet(), kube), 2)
    assert [f"{CLAIMS}/a", ON_NODE, ON_NO_NODE] == kube.asked


def test_a_pod_without_node_name_looks_through_all_slices_of_the_driver():
    kube = FakeKube({f"{CLAIMS}/a": claim(result("d1"))}, {"spec.driver=nic.ex": [part(device("d1"))]})
    assert ["id-d1"] == take_all(DeviceAllocator(claiming_pod("a", node_name=None), FakeKubelet(), kube), 1)
    assert [f"{CLAIMS}/a", "spec.driver=nic.ex"] == kube.asked


@pytest.mark.parametrize("reverse", [False, True])
def test_only_the_highest_generation_of_a_pool_counts(reverse):
    slices = [
        part(device("d1", {"string": "old"}), device("d3"), generation=9),
        part(device("d1", {"string": "new"}), generation=10),
        part(device("d2"), generation=10),
        part(device("d1", {"string": "other pool"}), pool="p2", generation=99),
    ]
    kube = FakeKube({f"{CLAIMS}/a": claim(result("d1"), result("d2"), result("d3"))}, {ON_NODE: slices[::-1] if reverse else slices})
    allocator = DeviceAllocator(claiming_pod("a"), FakeKubelet(), kube)
    assert ["id-d2", "new"] == take_all(allocator, 2)
    assert ("resource claim team/a: device nic.ex/n1/d3 is left out: no resource slice has it",) == allocator.warnings


@pytest.mark.parametrize("answer", [{}, claim(), {"status": {"allocation": None}}])
def test_a_claim_without_allocation_fails(answer):
    with pytest.raises(InvalidConfigError, match="resource claim team/a: no devices are allocated to it"):
        DeviceAllocator(claiming_pod("a"), FakeKubelet(), FakeKube({f"{CLAIMS}/a": answer})).take(VF, "team/sr")


def test_an_error_of_the_api_server_keeps_its_class_and_names_the_claim():
    kube = FakeKube({f"{CLAIMS}/a": ForbiddenError("no")})
    with pytest.raises(ForbiddenError, match="resource claim team/a: no"):
        DeviceAllocator(claiming_pod("a"), FakeKubelet(), kube).take(VF, "team/sr")


def test_an_error_of_the_api_server_names_the_slices():
    class Refusing(FakeKube):
        def get(self, path, query=None):
            if query:
                raise ForbiddenError("no")
            return super().get(path)

    with pytest.raises(ForbiddenError, match=r"resource slices with spec\.nodeName=n1,spec\.driver=nic\.ex: no"):
        DeviceAllocator(claiming_pod("a"), FakeKubelet(), Refusing({f"{CLAIMS}/a": claim(result("d"))})).take(VF, "team/sr")


# Extended resources backed by a claim


def test_extended_resources_are_ordered_by_container_and_sorted_within():
    kube = FakeKube(
        {f"{CLAIMS}/ext": claim(result("d4", "r0"), result("d1", "r1"), result("d2", "r2"), result("d3", "r0"))},
        {ON_NODE: [part(device("d1"), device("d2"), device("d3"), device("d4"))]},
    )
    allocator = DeviceAllocator(extended_pod(mapping("b", "r1"), mapping("a", "r0"), mapping("a", "r2")), FakeKubelet(), kube)
    assert ["id-d2", "id-d3", "id-d4", "id-d1"] == take_all(allocator, 4)


@pytest.mark.parametrize(
    ("request_name", "published", "msg"),
    [
        ("other", [device("d1")], "no device is allocated to request other"),
        ("r0", [], "device nic.ex/n1/d1 cannot be used: no resource slice has it"),
        ("r0", [{"name": "d1"}], "device nic.ex/n1/d1 cannot be used: it has no string attribute k8s.cni.cncf.io/deviceID"),
        ("r0", [device("d1", resource="ex/b")], "device nic.ex/n1/d1 is of resource ex/b, the pod asked for example.test/vf"),
    ],
)
def test_an_extended_resource_that_is_not_as_asked_fails(request_name, published, msg):
    kube = FakeKube({f"{CLAIMS}/ext": claim(result("d1", "r0"))}, {ON_NODE: [part(*published)]})
    with pytest.raises(InvalidConfigError) as failure:
        DeviceAllocator(extended_pod(mapping("a", request_name)), FakeKubelet(), kube).take(VF, "team/sr")
    assert f"resource claim team/ext: {msg}" == failure.value.msg
