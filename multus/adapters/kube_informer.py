"""One collection of the API server kept current in memory, by a list and then watches, each from where the last one ended.

It speaks to a ``Source``: a transport that also streams.  The informer of the official client is not used: it lists in
one piece and as models (22 MB more), asks for no bookmarks and no time limit, knows neither ``Retry-After`` nor a growing
delay, and a watch that falls silent holds it up for good.

Spec: 10-daemon.md of the behaviour notes, §8.1; client-go's reflector.
"""

from __future__ import annotations

import contextlib
import random
import threading

from multus.errors import DecodingError, MultusError, TryAgainLaterError
from multus.protocol import documents, watches
from multus.protocol.api_errors import Answer
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from multus.core.ports import Clock, Log
    from multus.protocol.watches import Collection, Document, Event, Source, Stream

_MAX_ERROR_BYTES = 64 * 1024
_GATEWAY_TIMEOUT = 504
"""Also: the version that we ask for is ahead of the API server's cache."""

_OTHER_NODE = "a pod of another node was asked for, and waited for in vain; is MULTUS_NODE_NAME this node's?"


class Limits(NamedTuple):
    """How long an informer waits, and how much it takes."""

    watch_min_s: int = 300
    """A watch is asked for at random between these two, so that a cluster's nodes do not all come back at once."""
    watch_max_s: int = 600
    margin_s: float = 30.0
    """A watch that is silent for longer than its time and this margin is cut."""
    open_s: float = 10.0
    """For an answer to begin."""
    silence_s: float = 30.0
    """Between two parts of a list."""
    healthy_s: float = 1.0
    """A watch that lived as long is renewed without delay."""
    delay_factor: float = 1.0
    """Stretches the delays after failures."""
    max_list_bytes: int = 256 * 1024 * 1024
    """Of one page; an older API server ignores the size that we ask for."""
    max_event_bytes: int = 16 * 1024 * 1024


class Informer:
    """The objects of one collection, trimmed, by namespace and name.  Any thread may read."""

    def __init__(
        self,
        collection: Collection,
        source: Source,
        clock: Clock,
        log: Log,
        *,
        limits: Limits = Limits(),  # noqa: B008  # immutable
        fraction: Callable[[], float] = random.random,
    ) -> None:
        """
        Args:
            fraction: Answers a number from 0 to 1, for delays and the length of watches.
        """
        self.collection = collection
        self._source = source
        self._clock = clock
        self._log = log.bind(resource=collection.name)
        self._limits = limits
        self._fraction = fraction
        self._objects: dict[tuple[str, str], Document] = {}
        self._changed = threading.Condition()
        self._version = watches.ANY_VERSION
        self._list_from = watches.ANY_VERSION
        self._needs_list = True
        self._is_synced = False
        self._is_watching = False
        self._heard_at = clock.monotonic()
        self._lost_at: float | None = None
        self._watched_from: float | None = None
        self._has_news = False
        self._is_renewing = False
        self._changes = 0
        self._stopping = threading.Event()
        self._awake = threading.Event()
        """Ends the delay after a failure."""
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """List and watch from now on, in a thread of its own."""
        self._heard_at = self._clock.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"informer {self.collection.name}", daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """End the watch; what it knew can still be read."""
        self._stopping.set()
        self._awake.set()
        stream = self._stream
        if stream is not None:
            stream.cut()

    def renew(self) -> None:
        """Open the watch anew, at once, with credentials read again; from any thread.  What is known stays, and no change is missed."""
        self._is_renewing = True
        self._awake.set()
        stream = self._stream
        if stream is not None:
            stream.cut()

    def join(self, limit_s: float) -> None:
        """Wait for the thread's end.  Only an API server that does not answer can hold it up, for ``open_s`` at most."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def wait_until_synced(self, limit_s: float) -> bool:
        """Whether the first list is there, after ``limit_s`` seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_synced, limit_s)

    def get(self, namespace: str, name: str) -> Document | None:
        """The object, trimmed; not to be changed."""
        return self._objects.get((namespace, name))

    def wait_for(self, namespace: str, name: str, accept: Callable[[Document], bool], limit_s: float) -> Document | None:
        """The object once ``accept`` likes it; None if that does not happen in time, or no watch could tell."""
        end = self._clock.monotonic() + limit_s
        with self._changed:
            while True:
                document = self.get(namespace, name)
                if document is not None and accept(document):
                    return document
                left_s = end - self._clock.monotonic()
                if left_s <= 0 or not self._is_watching:
                    return None
                self._changed.wait(left_s)

    def objects(self) -> tuple[Document, ...]:
        """All of them, trimmed; not to be changed."""
        with self._changed:
            return tuple(self._objects.values())

    def wait_for_change(self, seen: int, limit_s: float) -> int:
        """The number of the last change, once it is not ``seen`` any more, or after ``limit_s`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, limit_s)
            return self._changes

    def offer(self, document: Document) -> None:
        """Take in an object that was read live, if the watch is still to tell of it: then it will tell of its end, too."""
        if not self.collection.holds(document):
            self._log.warning("kube.cache.other_node", of=watches.node_of(document), cached=self.collection.node_name, problem=_OTHER_NODE)
            return
        version = watches.version_of(document)
        with self._changed:
            if self._is_synced and watches.is_newer(version, self._version):
                self._put(self.collection.trimmed(document))

    @property
    def is_watching(self) -> bool:
        """Whether a watch is open, so that changes will be told."""
        return self._is_watching

    def size(self) -> int:
        return len(self._objects)

    def age_s(self) -> float:
        """Seconds since the API server was last heard on this collection; since the start, if never."""
        return self._clock.monotonic() - self._heard_at

    def _run(self) -> None:
        attempt = 0
        refused: Answer | None = None
        while not self._stopping.is_set():
            failure = ""
            self._awake.clear()
            self._watched_from, self._has_news, self._is_renewing = None, False, False
            try:
                if refused is not None and refused.status == 401:
                    self._source.renew()
                refused = self._list_and_watch()
                failure = refused.reason if refused is not None else ""
            except MultusError as exc:
                refused, failure = None, exc.msg
                self._needs_list = self._needs_list or isinstance(exc, DecodingError)
            self._set_watching(False)
            if self._is_renewing:  # we have ended it ourselves
                attempt, refused = 0, None
                continue
            attempt = self._next_attempt(attempt, bool(failure))
            if failure and not self._stopping.is_set():
                self._tell_failure(failure, attempt)
            delay_s = watches.delay_s(attempt, refused.retry_after if refused else "", self._fraction())
            if not self._stopping.is_set():
                self._awake.wait(delay_s * self._limits.delay_factor)
        self._source.close()

    def _next_attempt(self, attempt: int, has_failed: bool) -> int:
        """The number of the coming attempt in a row of failures; 0: a watch has ended as watches do, and is renewed at once."""
        watched_s = 0.0 if self._watched_from is None else self._clock.monotonic() - self._watched_from
        is_healthy = watched_s >= self._limits.healthy_s
        if is_healthy or self._has_news:
            return 1 if has_failed or not is_healthy else 0
        return attempt + 1

    @contextlib.contextmanager
    def _opened(self, target: str, silence_s: float) -> Iterator[Stream]:
        """A stream that ``ask_to_stop`` and ``renew`` can cut."""
        stream = self._stream = self._source.stream(target, self._limits.open_s, silence_s)
        try:
            if self._stopping.is_set() or self._is_renewing:
                stream.cut()
            yield stream
        finally:
            self._stream = None
            stream.close()

    def _list_and_watch(self) -> Answer | None:
        """One round; the answer that ended it, None if the API server ended the watch as it should."""
        if self._needs_list:
            refused = self._list()
            if refused is not None:
                return refused
        return self._watch()

    def _list(self) -> Answer | None:
        found: dict[tuple[str, str], Document] = {}
        token = version = ""
        while not version or token:
            target = watches.list_target(self.collection, self._list_from, token)
            with self._opened(target, self._limits.silence_s) as stream:
                if stream.status != 200:
                    if stream.status in (watches.GONE, _GATEWAY_TIMEOUT):
                        self._list_from = watches.NEWEST_VERSION
                    return _refusal(stream)
                page = watches.parse_page(_body(stream, self._limits.max_list_bytes), self.collection)
            self._heard()
            found.update((watches.key_of(document), document) for document in page.items)
            token, version = page.token, page.version
        with self._changed:
            self._objects = found
            self._version = self._list_from = version
            self._needs_list = False
            self._is_synced = True
            self._changes += 1
            self._changed.notify_all()
        self._log.debug("kube.list.complete", objects=len(found), version=version)
        return None

    def _watch(self) -> Answer | None:
        shortest, longest = self._limits.watch_min_s, self._limits.watch_max_s
        timeout_s = round(shortest + (longest - shortest) * self._fraction())
        target = watches.watch_target(self.collection, self._version, timeout_s)
        with self._opened(target, timeout_s + self._limits.margin_s) as stream:
            refused = _refusal(stream) if stream.status != 200 else self._follow(stream)
        if refused is not None and refused.status == watches.GONE:
            self._needs_list = True
            self._list_from = self._version
        return refused

    def _follow(self, stream: Stream) -> Answer | None:
        """Take in events until the watch ends."""
        self._tell_recovery()
        self._heard()
        self._watched_from = self._clock.monotonic()
        self._set_watching(True)
        for line in self._lines(stream):
            event = watches.parse_event(line, self.collection)
            if event.kind == "ERROR":
                code = event.document.get("code")
                return Answer(code if isinstance(code, int) else 500, documents.dumps(event.document).encode())
            self._has_news = True
            with self._changed:
                self._apply(event)
                self._version = watches.version_of(event.document) or self._version
                self._changes += 1
                self._changed.notify_all()
        return None

    def _apply(self, event: Event) -> None:
        if event.kind in ("ADDED", "MODIFIED"):
            self._put(event.document)
        elif event.kind == "DELETED":
            key = watches.key_of(event.document)
            known = self._objects.get(key)
            if known is not None and not _is_newer(known, event.document):
                del self._objects[key]

    def _put(self, document: Document) -> None:
        key = watches.key_of(document)
        known = self._objects.get(key)
        if known is None or not _is_newer(known, document):
            self._objects[key] = document
            self._changed.notify_all()

    def _lines(self, stream: Stream) -> Iterator[bytes]:
        rest = b""
        for chunk in stream.chunks():
            self._heard()
            *lines, rest = (rest + chunk).split(b"\n")
            yield from filter(None, lines)
            if len(rest) > self._limits.max_event_bytes:
                raise DecodingError(f"event of {self.collection.name} is longer than {self._limits.max_event_bytes} bytes")
        if self._stopping.is_set():
            return
        if rest:
            raise TryAgainLaterError(f"watch of {self.collection.name} ended within an event")

    def _heard(self) -> None:
        self._heard_at = self._clock.monotonic()

    def _set_watching(self, is_watching: bool) -> None:
        with self._changed:
            self._is_watching = is_watching
            self._changed.notify_all()

    def _tell_failure(self, failure: str, attempt: int) -> None:
        """Warn of the first failure of an outage; the others are details."""
        tell = self._log.verbose if self._lost_at is not None else self._log.warning
        tell("kube.watch.failed", error=failure, attempt=attempt, cached=len(self._objects))
        if self._lost_at is None:
            self._lost_at = self._clock.monotonic()

    def _tell_recovery(self) -> None:
        if self._lost_at is not None:
            self._log.warning("kube.watch.recovered", seconds=round(self._clock.monotonic() - self._lost_at, 1))
            self._lost_at = None


def _refusal(stream: Stream) -> Answer:
    return Answer(stream.status, _body(stream, _MAX_ERROR_BYTES), stream.retry_after)


def _body(stream: Stream, max_bytes: int) -> bytes:
    body = bytearray()
    for chunk in stream.chunks():
        body += chunk
        if len(body) > max_bytes:
            raise DecodingError(f"answer of the API server is longer than {max_bytes} bytes")
    return bytes(body)


def _is_newer(known: Document, document: Document) -> bool:
    return watches.is_newer(watches.version_of(known), watches.version_of(document))
