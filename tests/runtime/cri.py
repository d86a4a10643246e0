"""The container runtime interface as a kubelet speaks it: the handful of calls that a pod's network needs.

Owns the wire form of these messages (protobuf, by hand: fields are few and their numbers never change) and the client
over a Unix socket. What a pod is and what to expect of it belongs to the tests.

Spec: Kubernetes ``runtime.v1`` (CRI API); Protocol Buffers wire format.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import grpc

_CALL_TIMEOUT_S = 60.0
_MORE = 0x80  # the bit of a varint's byte that says that another byte follows
_POD_NAMESPACE_PER_CONTAINER = 1  # NamespaceMode CONTAINER: what the kubelet asks for process IDs by default


class Pod(NamedTuple):
    """What the kubelet knows of a pod when it asks for a sandbox; ``attempt`` counts sandboxes of the same pod."""

    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str] = {}
    attempt: int = 0


class SandboxStatus(NamedTuple):
    """State and addresses that the runtime reports; addresses in the order of the CNI result."""

    ready: bool
    addresses: tuple[str, ...]


class SandboxError(Exception):
    """The runtime refused a call; the text is what the kubelet would put into the pod's event."""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append(value % _MORE | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one field; text and nested messages are length-delimited, zero and empty are sent like any other value."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def text_map(number: int, items: Mapping[str, str]) -> bytes:
    """Encode a ``map<string, string>``: one nested message per entry."""
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in items.items())


def read(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Decode a message into (field number, value) in wire order; ints for varints, bytes for everything else."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte % _MORE) << shift
            if byte < _MORE:
                return value
            shift += 7

    while at < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(wire_type) or varint()
        yield number, message[at : at + size]
        at += size


def nested(message: bytes, number: int) -> list[bytes]:
    """Give all length-delimited values of one field."""
    return [value for found, value in read(message) if found == number and isinstance(value, bytes)]


def number_at(message: bytes, number: int) -> int:
    """Give the last varint of one field, 0 when absent."""
    return next((value for found, value in reversed(list(read(message))) if found == number and isinstance(value, int)), 0)


def text_at(message: bytes, number: int) -> str:
    """Give the last text of one field, empty when absent."""
    return (nested(message, number) or [b""])[-1].decode()


class Runtime:
    """A CRI client; every refusal is a SandboxError that carries the runtime's own words. Threads may share it."""

    def __init__(self, socket_path: str, image: str, cgroup_parent: str) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket_path}")
        self._image = image
        self._cgroup_parent = cgroup_parent

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def _call(self, method: str, request: bytes = b"", service: str = "RuntimeService") -> bytes:
        invoke = self._channel.unary_unary(f"/runtime.v1.{service}/{method}")
        try:
            answer: bytes = invoke(request, timeout=_CALL_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as exc:
            raise SandboxError(f"{method}: {exc.details()}") from exc
        return answer

    def version(self) -> str:
        """Give name and version of the runtime, such as ``containerd 1.6.20``."""
        answer = self._call("Version")
        return f"{text_at(answer, 2)} {text_at(answer, 3)}"

    def conditions(self) -> dict[str, bool]:
        """Give the runtime's own conditions by name: ``RuntimeReady``, ``NetworkReady``."""
        status = nested(self._call("Status"), 1)[0]
        return {text_at(condition, 1): bool(number_at(condition, 2)) for condition in nested(status, 1)}

    def has_image(self, name: str) -> bool:
        """Whether the runtime could start a container of this image without pulling it."""
        return bool(nested(self._call("ImageStatus", field(1, field(1, name)), service="ImageService"), 1))

    def _sandbox_config(self, pod: Pod) -> bytes:
        metadata = field(1, pod.name) + field(2, pod.uid) + field(3, pod.namespace) + field(4, pod.attempt)
        labels = {
            "io.kubernetes.pod.name": pod.name,
            "io.kubernetes.pod.namespace": pod.namespace,
            "io.kubernetes.pod.uid": pod.uid,
        }
        annotations = {"kubernetes.io/config.source": "api", **pod.annotations}
        security_context = field(1, field(2, _POD_NAMESPACE_PER_CONTAINER))
        linux = field(1, f"{self._cgroup_parent}/pod{pod.uid}") + field(2, security_context)
        return field(1, metadata) + field(2, pod.name) + text_map(6, labels) + text_map(7, annotations) + field(8, linux)

    def run(self, pod: Pod) -> str:
        """Start a pod's sandbox, its network included, and give the sandbox ID."""
        return text_at(self._call("RunPodSandbox", field(1, self._sandbox_config(pod))), 1)

    def status(self, sandbox: str) -> SandboxStatus:
        """Ask for a sandbox's state and addresses."""
        status = nested(self._call("PodSandboxStatus", field(1, sandbox)), 1)[0]
        addresses: list[str] = []
        for network in nested(status, 5):
            addresses += [text_at(network, 1), *(text_at(more, 1) for more in nested(network, 2))]
        return SandboxStatus(number_at(status, 3) == 0, tuple(filter(None, addresses)))

    def sandboxes(self) -> tuple[str, ...]:
        """List the IDs of all sandboxes that the runtime knows, stopped ones included."""
        return tuple(text_at(item, 1) for item in nested(self._call("ListPodSandbox"), 1))

    def stop(self, sandbox: str) -> None:
        """Stop a sandbox and take its network down; stopping twice is allowed."""
        self._call("StopPodSandbox", field(1, sandbox))

    def remove(self, sandbox: str) -> None:
        """Forget a stopped sandbox and its containers; removing twice is allowed."""
        self._call("RemovePodSandbox", field(1, sandbox))

    def start_container(self, pod: Pod, sandbox: str) -> str:
        """Start an idle container in a sandbox, for commands to run in, and give its ID."""
        config = field(1, field(1, "tools") + field(2, 0)) + field(2, field(1, self._image))
        request = field(1, sandbox) + field(2, config) + field(3, self._sandbox_config(pod))
        container = text_at(self._call("CreateContainer", request), 1)
        self._call("StartContainer", field(1, container))
        return container

    def execute(self, container: str, command: Sequence[str]) -> str:
        """Run a command in a container and give its standard output; a non-zero exit is a SandboxError."""
        request = field(1, container) + b"".join(field(2, word) for word in command) + field(3, int(_CALL_TIMEOUT_S))
        answer = self._call("ExecSync", request)
        exit_code = number_at(answer, 3)
        if exit_code:
            raise SandboxError(f"{' '.join(command)}: exit {exit_code}: {text_at(answer, 2).strip()}")
        return text_at(answer, 1)

    def hardware_address(self, container: str, interface: str) -> str:
        """Give the MAC address of one interface, as seen from inside a container."""
        return self.execute(container, ["cat", f"/sys/class/net/{interface}/address"]).strip()

    def interfaces(self, container: str) -> dict[str, tuple[str, ...]]:
        """Give the addresses (CIDR, link-local ones left out) of each interface but ``lo``, as seen from inside a container."""
        found: dict[str, list[str]] = {}
        for line in self.execute(container, ["ip", "-o", "link"]).splitlines():
            found[line.split(": ")[1].partition("@")[0]] = []
        for line in self.execute(container, ["ip", "-o", "addr"]).splitlines():
            _, name, family, address = line.split()[:4]
            if family in ("inet", "inet6") and not ipaddress.ip_interface(address).is_link_local:
                found[name].append(address)
        found.pop("lo", None)
        return {name: tuple(addresses) for name, addresses in found.items()}
