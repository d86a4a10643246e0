"""The kubelet's pod-resources API over a real gRPC server on a Unix socket, and the allocator on top of it."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from multus.adapters.kubelet import Kubelet
from multus.core.devices import DeviceAllocator
from multus.errors import DecodingError, IOFailureError, ObjectNotFoundError
from multus.types.devices import ContainerDevices, DeviceEntry, PodDevices
from multus.types.pod import Pod

VF = "example.test/vf"
POD = Pod("team", "web", "uid-1", document={"spec": {"nodeName": "n1", "containers": [{"name": "first"}, {"name": "second"}]}})


def field(number: int, value: bytes | str) -> bytes:
    """A string or message as a protocol buffer's field."""
    payload = value.encode() if isinstance(value, str) else value
    length, head = len(payload), bytes([number << 3 | 2])
    while length > 0x7F:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + payload


def container(name: str, *device_ids: str, resource: str = VF) -> bytes:
    return field(1, name) + field(2, field(1, resource) + b"".join(field(2, device_id) for device_id in device_ids))


def answer(*containers: bytes, name: str = "web", namespace: str = "team") -> bytes:
    return field(1, field(1, name) + field(2, namespace) + b"".join(field(3, each) for each in containers))


class PodResources(grpc.GenericRpcHandler):
    """The kubelet's side: answers List with bytes, after failing as often as it is told."""

    def __init__(self, content: bytes = b"", failures: tuple[grpc.StatusCode, ...] = (), delay_s: float = 0) -> None:
        self.content = content
        self.failures = list(failures)
        self.delay_s = delay_s
        self.calls: list[tuple[str, bytes]] = []

    def service(self, handler_call_details):
        def respond(request, context):
            self.calls.append((handler_call_details.method, request))
            time.sleep(self.delay_s)
            if self.failures:
                context.abort(self.failures.pop(0), "told to fail")
            return self.content

        return grpc.unary_unary_rpc_method_handler(respond)


@pytest.fixture
def folder():
    """A folder whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="multus-") as path:
        yield Path(path)


@pytest.fixture
def serve(folder):
    """Start a server for a handler; its stop comes with the test's end."""
    servers = []

    def start(*handlers: grpc.GenericRpcHandler) -> str:
        path = str(folder / "kubelet.sock")
        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=handlers)
        server.add_insecure_port(f"unix:{path}")
        server.start()
        servers.append(server)
        return path

    yield start
    for server in servers:
        server.stop(None).wait()


@pytest.fixture
def checkpoint(folder):
    """A checkpoint file in which the pod has the device ``from-checkpoint``."""
    entry = {"PodUID": "uid-1", "ContainerName": "first", "ResourceName": VF, "DeviceIDs": {"0": ["from-checkpoint"]}}
    path = folder / "kubelet_internal_checkpoint"
    path.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 5}))
    return str(path)


FROM_CHECKPOINT = PodDevices((ContainerDevices("first", (DeviceEntry(VF, ("from-checkpoint",)),)),))


def test_the_api_is_asked_as_the_kubelet_expects_and_its_answer_read(serve, checkpoint):
    handler = PodResources(answer(container("other", "x"), name="db") + answer(container("first", "b", "a"), container("second", "c")))
    expected = PodDevices((
        ContainerDevices("first", (DeviceEntry(VF, ("b", "a")),)),
        ContainerDevices("second", (DeviceEntry(VF, ("c",)),)),
    ))
    assert expected == Kubelet(serve(handler), checkpoint).devices(POD)
    assert [("/v1.PodResourcesLister/List", b"")] == handler.calls


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_a_call_that_fails_once_is_repeated(serve, checkpoint, code):
    handler = PodResources(answer(container("first", "a")), failures=(code,))
    assert PodDevices((ContainerDevices("first", (DeviceEntry(VF, ("a",)),)),)) == Kubelet(serve(handler), checkpoint).devices(POD)
    assert 2 == len(handler.calls)


def test_a_call_that_fails_twice_is_an_error_that_names_the_socket(serve, checkpoint):
    """The checkpoint is no way out: it may be older than what the kubelet could not say."""
    handler = PodResources(failures=(grpc.StatusCode.INTERNAL,) * 3)
    path = serve(handler)
    with pytest.raises(IOFailureError) as failure:
        Kubelet(path, checkpoint).devices(POD)
    assert (f"kubelet's pod-resources socket {path}: List failed 2 times: INTERNAL", "told to fail") == (
        failure.value.msg,
        failure.value.details,
    )
    assert 2 == len(handler.calls)


def test_a_kubelet_without_the_method_leads_to_the_checkpoint(serve, checkpoint):
    assert FROM_CHECKPOINT == Kubelet(serve(), checkpoint).devices(POD)


def test_a_kubelet_that_answers_unimplemented_leads_to_the_checkpoint(serve, checkpoint):
    handler = PodResources(failures=(grpc.StatusCode.UNIMPLEMENTED,))
    assert FROM_CHECKPOINT == Kubelet(serve(handler), checkpoint).devices(POD)
    assert 1 == len(handler.calls)


def test_a_missing_socket_leads_to_the_checkpoint(folder, checkpoint):
    assert FROM_CHECKPOINT == Kubelet(str(folder / "none.sock"), checkpoint).devices(POD)


def test_garbage_for_an_answer_is_a_decoding_error_that_names_the_socket(serve, checkpoint):
    path = serve(PodResources(b"\x0a\xff\xff"))
    with pytest.raises(DecodingError, match=f"answer of the kubelet's pod-resources socket {path}: "):
        Kubelet(path, checkpoint).devices(POD)


def test_an_answer_larger_than_four_mib_is_read(serve, checkpoint):
    """gRPC's own limit is 4 MiB; a large node says more."""
    handler = PodResources(answer(container("x", "y" * (5 * 1024 * 1024)), name="db") + answer(container("first", "a")))
    assert PodDevices((ContainerDevices("first", (DeviceEntry(VF, ("a",)),)),)) == Kubelet(serve(handler), checkpoint).devices(POD)


def test_an_answer_larger_than_sixteen_mib_is_refused(serve, checkpoint):
    with pytest.raises(IOFailureError, match="RESOURCE_EXHAUSTED"):
        Kubelet(serve(PodResources(bytes(17 * 1024 * 1024))), checkpoint).devices(POD)


def test_a_call_that_takes_too_long_is_given_up(serve, checkpoint):
    path = serve(PodResources(delay_s=1))
    with pytest.raises(IOFailureError, match="DEADLINE_EXCEEDED"):
        Kubelet(path, checkpoint, timeout_s=0.2).devices(POD)


def test_a_socket_that_nobody_listens_on_is_given_up(folder, checkpoint):
    path = str(folder / "dead.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with pytest.raises(IOFailureError, match=f"kubelet's pod-resources socket {path}: List failed 2 times: "):
        Kubelet(path, checkpoint, timeout_s=0.2).devices(POD)


def test_a_kubelet_that_comes_back_within_the_time_is_waited_for(folder, serve, checkpoint):
    path = str(folder / "kubelet.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    def come_back() -> None:
        Path(path).unlink()
        serve(PodResources(answer(container("first", "a"))))

    timer = threading.Timer(0.3, come_back)
    timer.start()
    try:
        assert PodDevices((ContainerDevices("first", (DeviceEntry(VF, ("a",)),)),)) == Kubelet(path, checkpoint).devices(POD)
    finally:
        timer.join()


class InMemoryKube:
    """Objects by path; lists of slices, selected as the API server selects."""

    def __init__(self, claims: dict[str, object], slices: list[dict[str, object]]) -> None:
        self.claims = claims
        self.slices = slices

    def get(self, path, query=None):
        if path == "/apis/resource.k8s.io/v1/resourceslices":
            wanted = dict(term.split("=") for term in query["fieldSelector"].split(","))
            return {"items": [item for item in self.slices if all(item["spec"].get(key[5:], "") == value for key, value in wanted.items())]}
        if path not in self.claims:
            raise ObjectNotFoundError(f"{path} not found")
        return self.claims[path]


def test_containers_and_claims_give_each_network_its_own_device(serve, checkpoint):
    """H1: the first container's device goes to the first network; DRA devices of the node and of the fabric follow."""

    def published(node: dict[str, object], pool: str, generation: int, device_id: str) -> dict[str, object]:
        attributes = {"k8s.cni.cncf.io/deviceID": {"string": device_id}, "k8s.cni.cncf.io/resourceName": {"string": VF}}
        devices = [{"name": "d", "attributes": attributes}]
        return {"spec": {**node, "driver": "nic.ex", "pool": {"name": pool, "generation": generation}, "devices": devices}}

    slices = [
        published({"nodeName": "n1"}, "n1", 1, "outdated"),
        published({"nodeName": "n1"}, "n1", 2, "pci:0000:00:01.0"),
        published({"nodeName": "n2"}, "n2", 9, "of another node"),
        published({"allNodes": True}, "fabric", 1, "fabric-1"),
    ]
    results = [{"request": "r", "driver": "nic.ex", "pool": pool, "device": "d"} for pool in ("n1", "fabric")]
    claims = {
        "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/web-nics": {"status": {"allocation": {"devices": {"results": results}}}}
    }
    document = {
        "spec": {**POD.document["spec"], "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "nics"}]},
        "status": {"resourceClaimStatuses": [{"name": "nics", "resourceClaimName": "web-nics"}]},
    }
    handler = PodResources(answer(container("first", "0000:3b:02.7"), container("second", "0000:3b:02.1")))
    kubelet = Kubelet(serve(handler), checkpoint)
    for _ in range(2):  # an agent that restarts in between decides the same
        allocator = DeviceAllocator(POD._replace(document=document), kubelet.devices, InMemoryKube(claims, slices))
        expected = ["0000:3b:02.7", "0000:3b:02.1", "fabric-1", "pci:0000:00:01.0"]
        assert expected == [allocator.take(VF, f"team/net-{index}") for index in range(4)]
        assert () == allocator.warnings
    assert 2 == len(handler.calls)
