"""What the kubelet says about a pod's devices: its pod-resources API, or else its device manager's checkpoint file.

The only import of grpc.  The API's few messages are read by hand: numbers and types of their fields have been fixed
since v1.  Which device goes to which network is decided in ``multus.core.devices``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from multus import files
from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError
from multus.protocol import codec, documents
from multus.types.devices import Checkpoint, ContainerDevices, DeviceEntry, PodDevices

if TYPE_CHECKING:
    from multus.types.pod import Pod

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

_METHOD = "/v1.PodResourcesLister/List"
_MAX_MESSAGE = 16 * 1024 * 1024  # bytes; the kubelet's own limit
_ATTEMPTS = 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Protocol buffers' wire types; 3 and 4 are groups, which these messages never had."""


class Kubelet:
    """The devices that the kubelet gave to a pod.

    The pod-resources API answers; the checkpoint file does where the kubelet has no such socket or method, or grpcio is not
    installed (a bundle for hosts is made without it: it is as large as all the rest).  The checkpoint
    knows pods by UID, and a static pod's by one that the API server does not tell: there, nothing is found for it.
    """

    def __init__(self, socket: str = SOCKET, checkpoint: str = CHECKPOINT, timeout_s: float = 10.0) -> None:
        """``timeout_s`` covers connecting and the call; there are two attempts."""
        self._socket = socket
        self._checkpoint = checkpoint
        self._timeout_s = timeout_s

    def devices(self, pod: Pod) -> PodDevices:
        """The pod's devices by container, empty for a pod that the kubelet does not list.

        Containers come in the order of the pod's specification from the API (restartable init containers, then
        containers), by name from the checkpoint.

        Raises:
            InvalidConfigError: Code 7, the pod has no name or namespace, or no UID where the checkpoint is read.
            IOFailureError: Code 5, neither socket nor checkpoint can be read, or two calls failed.
            DecodingError: Code 6, the answer or the checkpoint is not what it should be.

        Spec: Multus behaviour.
        """
        if not (pod.namespace and pod.name):
            raise InvalidConfigError(f"pod {pod}: finding its devices needs its namespace and name")
        answer = self._list() if os.path.exists(self._socket) else None
        if answer is None:
            return self._from_checkpoint(pod)
        try:
            return decode_list(answer, pod.namespace, pod.name)
        except DecodingError as exc:
            raise exc.prefixed(f"answer of the kubelet's pod-resources socket {self._socket}") from exc

    def _list(self) -> bytes | None:
        """The answer to List; None: the kubelet does not implement it, or we cannot ask and there is the checkpoint."""
        try:
            import grpc  # 80 ms, and an extra: nodes without device plugins do without
        except ImportError as exc:
            if os.path.exists(self._checkpoint):
                return None
            raise MultusError(
                f"asking the kubelet's pod-resources socket {self._socket} needs the package grpcio: install multus[devices]"
            ) from exc
        options = (("grpc.max_receive_message_length", _MAX_MESSAGE), ("grpc.default_authority", "localhost"))
        failure: Any = None
        for _ in range(_ATTEMPTS):
            with grpc.insecure_channel(f"unix:{self._socket}", options=options) as channel:
                try:
                    answer: bytes = channel.unary_unary(_METHOD)(b"", timeout=self._timeout_s, wait_for_ready=True)
                    return answer
                except grpc.RpcError as exc:
                    if exc.code() is grpc.StatusCode.UNIMPLEMENTED:
                        return None
                    failure = exc
        raise IOFailureError(
            f"kubelet's pod-resources socket {self._socket}: List failed {_ATTEMPTS} times: {failure.code().name}", failure.details() or ""
        ) from failure

    def _from_checkpoint(self, pod: Pod) -> PodDevices:
        if not pod.uid:
            raise InvalidConfigError(f"pod {pod}: finding its devices in the kubelet's checkpoint needs its UID")
        where = f"kubelet's checkpoint {self._checkpoint}"
        try:
            content = files.read(self._checkpoint)
        except OSError as exc:
            raise IOFailureError(f"{where}, read for want of the pod-resources API at {self._socket}: {exc.strerror}") from exc
        checkpoint = codec.structure(documents.loads(content, where), Checkpoint, where)
        containers: dict[str, list[DeviceEntry]] = {}
        for entry in checkpoint.entries:
            if entry.pod_uid == pod.uid:
                containers.setdefault(entry.container_name, []).append(DeviceEntry(entry.resource_name, entry.device_ids))
        return PodDevices(tuple(ContainerDevices(name, tuple(entries)) for name, entries in sorted(containers.items())))


def decode_list(answer: bytes, namespace: str, name: str) -> PodDevices:
    """The containers of one pod in a ``ListPodResourcesResponse``, in its order.

    Raises:
        DecodingError: Code 6, it is no such message.
    """
    containers: list[ContainerDevices] = []
    for listed in _fields(answer).get(1, ()):
        fields = _fields(listed)
        if (_text(fields, 2), _text(fields, 1)) == (namespace, name):
            containers.extend(_container(message) for message in fields.get(3, ()))
    return PodDevices(tuple(containers))


def _container(message: bytes) -> ContainerDevices:
    fields = _fields(message)
    entries = [_fields(entry) for entry in fields.get(2, ())]
    return ContainerDevices(
        _text(fields, 1), tuple(DeviceEntry(_text(entry, 1), tuple(map(_decode, entry.get(2, ())))) for entry in entries)
    )


def _text(fields: dict[int, list[bytes]], number: int) -> str:
    return _decode(fields[number][-1]) if number in fields else ""


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as exc:
        raise DecodingError("a string is not UTF-8") from exc


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The strings and messages among a protocol buffer's fields, by number; other fields are skipped."""
    fields: dict[int, list[bytes]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            _, at = _varint(message, at)
            continue
        if wire_type == _BYTES:
            length, at = _varint(message, at)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise DecodingError(f"wire type {wire_type} of field {number} is unknown")
        if at + length > len(message):
            raise DecodingError(f"field {number} is cut short: {len(message) - at} bytes of {length}")
        if wire_type == _BYTES:
            fields.setdefault(number, []).append(message[at:at + length])
        at += length
    return fields


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The integer at an offset, and the offset behind it."""
    value = shift = 0
    for index in range(at, min(at + 10, len(message))):
        value |= (message[index] & 0x7F) << shift
        if message[index] < 0x80:
            return value, index + 1
        shift += 7
    raise DecodingError(f"no integer ends at byte {at}")
