"""Watches of the API server stand-in: the changes of a collection as a stream of events."""

from __future__ import annotations

import json
import select
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from multus.testing.kubeapi_store import Refusal, is_selected, status_document

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from multus.testing.kubeapi_store import Address, Change, Document, Store

    Event = tuple[str, Document]

_SLICE_S = 0.1
"""How often a watch that has nothing to tell looks for a client that went away."""
_LONGEST_S = 1800.0


class Watch(NamedTuple):
    """One watch request."""

    at: Address
    version: str
    """Events after it are told; empty or 0: what is there now, as added, and what follows."""
    field_selector: str = ""
    timeout_s: float = _LONGEST_S
    bookmarks: bool = False
    sends_initial: bool = False


def watch_of(at: Address, query: dict[str, str]) -> Watch:
    """The watch that a query asks for.  Raises Refusal: 400."""
    try:
        timeout_s = float(query.get("timeoutSeconds") or _LONGEST_S)
        version = query.get("resourceVersion", "")
        int(version or 0)
    except ValueError:
        raise Refusal(400, "BadRequest", "invalid timeoutSeconds or resourceVersion") from None
    bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
    return Watch(at, version, query.get("fieldSelector", ""), timeout_s, bookmarks, query.get("sendInitialEvents") in ("1", "true"))


def events(watch: Watch, store: Store, client: socket.socket, bookmark_interval: Callable[[], float]) -> Iterator[Event]:
    """Type and object of each event, until the time of the watch is up or its client is gone.

    Args:
        bookmark_interval: Seconds between two bookmarks.
    """
    end = time.monotonic() + watch.timeout_s
    bookmark_at = time.monotonic() + bookmark_interval()
    seen = int(watch.version or 0)
    if seen == 0 or watch.sends_initial:
        seen, items = store.snapshot(watch.at, watch.field_selector)
        yield from (("ADDED", item) for item in items)
        if watch.sends_initial and watch.bookmarks:
            yield "BOOKMARK", _bookmark(watch, seen, {"annotations": {"k8s.io/initial-events-end": "true"}})
    while (now := time.monotonic()) < end and not _is_gone(client):
        changes = store.changes_after(seen, min(_SLICE_S, end - now))
        if changes is None:
            yield "ERROR", status_document(410, "Expired", f"too old resource version: {seen}")
            return
        for change in changes:
            seen = change.version
            event = _event(watch, change)
            if event is not None:
                yield event
        if watch.bookmarks and time.monotonic() >= bookmark_at:
            bookmark_at += bookmark_interval()
            yield "BOOKMARK", _bookmark(watch, seen, {})
    if watch.bookmarks:
        yield "BOOKMARK", _bookmark(watch, seen, {})


def encode(event: Event) -> bytes:
    """An event as one line, in one chunk of HTTP."""
    line = json.dumps({"type": event[0], "object": event[1]}).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def _event(watch: Watch, change: Change) -> Event | None:
    """What a change is to this watch: an object that leaves the selection is deleted, one that enters it is added."""
    resource, namespace = watch.at.resource, watch.at.namespace
    if change.plural != resource.plural or namespace not in ("", change.namespace):
        return None
    was, is_now = (document is not None and is_selected(document, watch.field_selector) for document in (change.before, change.after))
    if is_now:
        return ("MODIFIED" if was else "ADDED"), change.after or {}
    if not was:
        return None
    gone: Any = change.before
    return "DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(change.version)}}


def _bookmark(watch: Watch, version: int, metadata: Document) -> Document:
    resource = watch.at.resource
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {"resourceVersion": str(version), **metadata}}


def _is_gone(client: socket.socket) -> bool:
    """Whether the client has closed the connection: a client that watches sends nothing else."""
    try:
        return bool(select.select([client], [], [], 0)[0])
    except (OSError, ValueError):
        return True
