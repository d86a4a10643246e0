"""What the core needs of the world, as Protocols.  Adapters make them real, tests make them up.

Imported for its types alone: nothing here runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from multus.errors import MultusError
    from multus.types.certificates import Certificate, Identity, SigningRequest
    from multus.types.config import ConfList, PluginConf
    from multus.types.delegate import Attachment, NetAttachDef
    from multus.types.invocation import Call, Completed
    from multus.types.pod import Node, Pod


class EventSink(Protocol):
    """Where events go."""

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning."""
        ...


class Kube(EventSink, Protocol):
    """The four calls that an attachment makes to the API server.

    Each call ends, retries included, inside one deadline that all calls of a request share.

    Raises:
        ObjectNotFoundError: The object does not exist, by the API server's own live answer.
        ForbiddenError: The API server refuses our credentials, or the call.
        TryAgainLaterError: It did not answer, or answered only failures, up to the deadline.
    """

    def pod(self, namespace: str, name: str, uid: str = "") -> Pod:
        """The pod.  An adapter with a cache reads live when the pod is missing there or its UID is not ``uid``."""
        ...

    def net_attach_def(self, namespace: str, name: str) -> NetAttachDef: ...

    def annotate_status(self, pod: Pod, key: str, value: str) -> None:
        """Set one annotation by one PATCH of the pod's status sub-resource, conditional on its UID; reads nothing."""
        ...

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, object]:
        """Any other object or list, by its API path: what device claims need."""
        ...


class Journal(Protocol):
    """What is attached on this node, on disk.  Raises IOFailureError."""

    def write(self, container_id: str, attachments: tuple[Attachment, ...]) -> None:
        """Record, durably, what is about to be attached, or what is left of it; none removes the record."""
        ...

    def read(self, call: Call) -> tuple[Attachment, ...] | None:
        """What was recorded of the call's container, with cached results; None: no record.

        A damaged record is put aside and rebuilt from the results.  What a record of the Go implementation does not
        say (interface of the cluster network, namespace, ``CNI_ARGS``) is taken from the call.
        """
        ...

    def locked(self, *, exclusive: bool = False) -> AbstractContextManager[object]:
        """The lock that keeps GC (exclusive) from running beside ADD and DEL (shared); released at the block's end.

        Raises:
            TryAgainLaterError: The lock was not to be had within its time.

        Spec: CNI 1.1.0 §3, "Lifecycle & ordering".
        """
        ...

    def write_result(self, attachment: Attachment) -> None:
        """Record an attachment's result; it need not survive a power loss, after which there is no interface either."""
        ...

    def remove_result(self, attachment: Attachment) -> None: ...

    def containers(self) -> tuple[str, ...]:
        """The IDs of all containers with a record or a result."""
        ...

    def damaged(self) -> frozenset[str]:
        """The IDs of containers whose record was damaged: what is read of them may not be all that they have."""
        ...


class IntentStore(Protocol):
    """DELs that a shim could not deliver.  Raises IOFailureError."""

    def names(self) -> list[str]:
        """Those that wait, oldest first."""
        ...

    def read(self, name: str) -> bytes:
        """The request's body."""
        ...

    def drop(self, name: str) -> None: ...

    def put_aside(self, name: str) -> None:
        """Keep one that cannot be understood out of the way."""
        ...


class Netns(Protocol):
    """Look into and change a network namespace, given as a path.

    Raises:
        InvalidNetnsError: The path is missing or no network namespace.
    """

    def is_own(self, netns: str) -> bool:
        """Whether ``netns`` can be opened and is the namespace of this very process."""
        ...

    def has_link(self, netns: str, ifname: str) -> bool: ...

    def remove_links(self, netns: str, names: Sequence[str]) -> Mapping[str, MultusError]:
        """Remove links, in one request where that is possible; those that are gone already count as removed.

        Returns:
            Why each link that is still there could not be removed.
        """
        ...

    def default_routes(self, netns: str, ifname: str, family: int) -> tuple[str, ...]:
        """The gateways ("" for none) of the default routes by ``ifname``, main table; family 4 or 6."""
        ...

    def remove_default_routes(self, netns: str, ifname: str, family: int) -> None: ...

    def add_default_route(self, netns: str, ifname: str, gateway: str, metric: int) -> None: ...


class Programs(Protocol):
    """The delegates' binaries on this node."""

    def find(self, name: str, folders: tuple[str, ...]) -> str | None:
        """The path of the first regular file of that name."""
        ...

    def run(self, path: str, environment: Mapping[str, str], stdin: bytes) -> Completed:
        """Run a program to its end.  Raises IOFailureError when it cannot be started."""
        ...

    def forward(self, stderr: bytes) -> None:
        """Pass a delegate's standard error on to ours."""
        ...


class Registry(Protocol):
    """The in-process delegates that are installed."""

    def delegate(self, delegate_type: str) -> object | None:
        """The object that serves a CNI ``type``; None if there is none."""
        ...


class Guard(Protocol):
    """Where third-party code runs in our own threads."""

    def block(self, what: str, container_id: str) -> AbstractContextManager[object]:
        """A context for code that ``what`` tells of, run for a container, or for none.

        What the code changes of thread and process is put back at the end.

        Raises:
            TryAgainLaterError: Code 11; it took longer than it may.
        """
        ...


class Clock(Protocol):
    """Time, in seconds."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock(Clock, Protocol):
    """A clock that knows the date as well."""

    def time(self) -> float:
        """Seconds since 1970."""
        ...


class SigningRequests(Protocol):
    """The CertificateSigningRequests of the cluster, as one identity; each call is attempted once.

    Raises:
        ObjectNotFoundError: There is no such request any more.
        ForbiddenError: The API server refuses our credentials, or the call.
        TryAgainLaterError: It did not answer, failed, or somebody else changed the object meanwhile.
    """

    def create(self, request: bytes, expiration_s: int) -> SigningRequest:
        """Ask for a certificate, by a PKCS #10 request in PEM; the object as it was created."""
        ...

    def read(self, name: str) -> Mapping[str, object]:
        """The object as it is now."""
        ...

    def update_approval(self, name: str, document: Mapping[str, object]) -> None:
        """Replace the conditions, unless the object was changed since ``document`` was read."""
        ...

    def create_event(self, about: SigningRequest, kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning."""
        ...

    def close(self) -> None: ...


class CertificateStore(Protocol):
    """A certificate with its key, in PEM, on disk.  Raises IOFailureError."""

    def read(self) -> bytes:
        """The one in use.  Raises TryAgainLaterError: there is none yet, or its file has gone."""
        ...

    def replace(self, pair: bytes) -> None:
        """Put another one in use; a reader finds the one or the other, whole."""
        ...


class Keys(Protocol):
    """Keys, and what is made of them."""

    def new_request(self, identity: Identity) -> tuple[bytes, bytes]:
        """A new key, and a request for a client's certificate of it; both PEM."""
        ...

    def certificate(self, pair: bytes) -> Certificate:
        """The first certificate of a chain in PEM, followed by its key.

        Raises:
            TryAgainLaterError: There is no PEM in it, or no whole block of one of the two.
            InvalidConfigError: It is no certificate with its key.
        """
        ...


class DeviceInfoFiles(Protocol):
    """Device information files.  Spec: Device Information Specification; 03 of the multi-network working group."""

    def path(self, delegate_name: str, container_id: str, ifname: str) -> str: ...

    def publish(self, resource_name: str, device_id: str, path: str) -> None:
        """Copy the device plugin's file, if there is one, to ``path``."""
        ...

    def read(self, path: str) -> Mapping[str, object] | None: ...

    def remove(self, path: str) -> None: ...

    def prune(self, container_ids: frozenset[str]) -> None:
        """Remove the files of all other containers."""
        ...


class Devices(Protocol):
    """The devices that one pod was given, handed out in a fixed order, each once."""

    def take(self, resource_name: str, network: str) -> str:
        """The next device ID of a resource.  Raises InvalidConfigError when the pod has none left for ``network``."""
        ...


class ConfDir(Protocol):
    """Network configurations in files of the node.

    Raises:
        InvalidConfigError: The configuration that was found is not valid.
    """

    def by_name(self, name: str) -> ConfList | None:
        """The configuration of that CNI name in ``confDir``."""
        ...

    def from_path(self, path: str) -> ConfList:
        """The configuration in a file, or in the first file of a folder."""
        ...

    def auxiliary_plugins(self, path: str, chain: str) -> tuple[PluginConf, ...]:
        """The plugins in the folder ``chain`` beside the file ``path``."""
        ...


class Log(Protocol):
    """Events of the outside world and outcomes, as ``name key=value …`` lines."""

    def bind(self, **fields: object) -> Log:
        """The same log with fields that every line carries."""
        ...

    def error(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def verbose(self, event: str, **fields: object) -> None: ...

    def debug(self, event: str, **fields: object) -> None: ...
