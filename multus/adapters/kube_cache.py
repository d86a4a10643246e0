"""The pods of this node and all net-attach-defs, at hand for every request of the daemon; the API server for the rest.

Two informers keep the objects current.  What they do not have is read live, once, and what is written is written live.

Spec: 10-daemon.md of the behaviour notes, §8.
"""

from __future__ import annotations

from multus.protocol import objects, watches
from multus.protocol.api_calls import ApiCalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from multus.core.ports import Clock, Kube
    from multus.protocol.api_calls import Transport
    from multus.protocol.watches import Document
    from multus.types.delegate import NetAttachDef
    from multus.types.pod import Node, Pod

    class Informer(Protocol):
        """Keeps one collection current; ``adapters/kube_informer.py``."""

        def start(self) -> None: ...

        def renew(self) -> None: ...

        def ask_to_stop(self) -> None: ...

        def join(self, limit_s: float) -> None: ...

        def wait_until_synced(self, limit_s: float) -> bool: ...

        def get(self, namespace: str, name: str) -> Document | None: ...

        def wait_for(self, namespace: str, name: str, accept: Acceptance, limit_s: float) -> Document | None: ...

        def offer(self, document: Document) -> None: ...

        def size(self) -> int: ...

        def age_s(self) -> float: ...

    class Acceptance(Protocol):
        def __call__(self, document: Document) -> bool: ...


CATCH_UP_S = 1.0
"""How long a request waits for an object that a watch may be about to tell."""
_CATCH_UP_SHARE = 0.2
"""Of a request's deadline, at most: the live read shall have the rest."""
STOP_S = 0.8


class KubeCache:
    """Makes the ``ports.Kube`` of each request."""

    def __init__(self, pods: Informer, net_attach_defs: Informer, live: Transport, clock: Clock) -> None:
        """
        Args:
            live: For any number of threads.
        """
        self._pods = pods
        self._net_attach_defs = net_attach_defs
        self._live = live
        self._clock = clock

    def start(self) -> None:
        for informer in self._informers().values():
            informer.start()

    def wait_until_synced(self, timeout_s: float) -> bool:
        """Whether both collections were listed, ``timeout_s`` seconds from now at most."""
        end = self._clock.monotonic() + timeout_s
        return all(informer.wait_until_synced(max(0.0, end - self._clock.monotonic())) for informer in self._informers().values())

    def renew(self) -> None:
        """Use credentials that are read anew, from now on; from any thread.  Calls that run end as they are."""
        for informer in self._informers().values():
            informer.renew()
        self._live.renew()

    def stop(self) -> None:
        """End the watches and close the connections, within a second."""
        end = self._clock.monotonic() + STOP_S
        for informer in self._informers().values():
            informer.ask_to_stop()
        for informer in self._informers().values():
            informer.join(max(0.0, end - self._clock.monotonic()))
        self._live.close()

    def sizes(self) -> dict[str, int]:
        """Objects in each collection."""
        return {name: informer.size() for name, informer in self._informers().items()}

    def ages(self) -> dict[str, float]:
        """Seconds since the API server was last heard on each collection."""
        return {name: informer.age_s() for name, informer in self._informers().items()}

    def for_request(self, deadline_s: float) -> Kube:
        """The access of one request; its live calls share ``deadline_s`` seconds, events apart.  One thread at a time."""
        return _RequestKube(self._pods, self._net_attach_defs, self._live, self._clock, deadline_s)

    def _informers(self) -> dict[str, Informer]:
        return {"pods": self._pods, "net-attach-defs": self._net_attach_defs}


class _RequestKube:
    """``ports.Kube``: what is cached, else what is read live."""

    def __init__(self, pods: Informer, net_attach_defs: Informer, transport: Transport, clock: Clock, deadline_s: float) -> None:
        self._pods = pods
        self._net_attach_defs = net_attach_defs
        self._transport = transport
        self._clock = clock
        self._deadline_s = deadline_s
        self._calls: ApiCalls | None = None

    def pod(self, namespace: str, name: str, uid: str = "") -> Pod:
        """The pod; a live one when the informer has none of that UID, and learns of none within a second."""

        def is_asked(document: Document) -> bool:
            return not uid or watches.uid_of(document) == uid or objects.pod_from(document, namespace, name).is_static

        started = self._clock.monotonic()
        limit_s = min(CATCH_UP_S, self._deadline_s * _CATCH_UP_SHARE)
        cached = self._pods.wait_for(namespace, name, is_asked, limit_s if self._calls is None else 0.0)
        if cached is not None:
            return objects.pod_from(cached, namespace, name)
        pod = self._live(self._clock.monotonic() - started).pod(namespace, name)
        self._pods.offer(pod.document)
        return pod

    def net_attach_def(self, namespace: str, name: str) -> NetAttachDef:
        cached = self._net_attach_defs.get(namespace, name)
        if cached is None:
            return self._live().net_attach_def(namespace, name)
        return objects.net_attach_def_from(cached, namespace, name)

    def annotate_status(self, pod: Pod, key: str, value: str) -> None:
        self._live().annotate_status(pod, key, value)

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        self._live().create_event(about, kind, reason, message)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, object]:
        return self._live().get(path, query)

    def _live(self, spent_s: float = 0.0) -> ApiCalls:
        if self._calls is None:
            self._calls = ApiCalls(self._transport, self._clock, self._deadline_s - spent_s)
        return self._calls
