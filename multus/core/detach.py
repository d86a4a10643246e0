"""DEL of networks: the delegates' DELs, then the links that they left, then what is on record.

The kernel waits some 25 ms whenever it removes links, and no longer for many than for one.  So an in-process delegate may
leave links of the pod's namespace (``Outcome.links``), and those of all networks of a pod are removed together, last.
"""

from __future__ import annotations

from multus.core import networks
from multus.errors import InvalidNetnsError, MultusError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from multus.core.context import Context
    from multus.types.delegate import Attachment


def detach(attachments: Sequence[Attachment], context: Context, *, is_undo: bool = False) -> list[MultusError]:
    """Run DEL of each attachment, last first, whatever fails; the record keeps those that failed.

    One whose links Multus removes has succeeded once they are gone.  A network whose ADD had failed is tried as well, and
    its failure to detach is logged: its delegate has said already that it is not attached.

    Args:
        is_undo: Of a failed ADD: the record stays as it is, for the DEL that the runtime has to send.

    Returns:
        The failures in the order they came, each with its place.
    """
    detaching = _Detaching(attachments, context, is_undo)
    for attachment in reversed(attachments):
        detaching.delete(attachment)
    detaching.remove_links()
    return detaching.failures


def outside_own_netns(attachments: tuple[Attachment, ...], context: Context) -> tuple[Attachment, ...]:
    """The same, but for the namespace of those whose recorded path leads to our own by now: there nothing is theirs.

    A path below ``/proc`` is another process's once the container's has ended.
    """
    if context.call.netns_override:
        return attachments
    return tuple(each._replace(netns="") if each.netns and context.netns.is_own(each.netns) else each for each in attachments)


def one(attachment: Attachment, context: Context) -> None:
    """Run DEL of one network to its end, and forget its result; the record is the caller's.

    Raises:
        MultusError: The delegate's failure, with its own code, or why a link could not be removed.
    """
    links = networks.delete(attachment, context)
    refused = _remove(attachment.netns, links, context)
    for name in links:
        if name in refused:
            raise refused[name]
    _forget(attachment, context)


def raise_all(failures: Sequence[MultusError]) -> None:
    """Raise what failed as one error: the first one's class and code, all messages; nothing if nothing failed."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        error = failures[0].prefixed(f"{len(failures)} failures")
        error.msg = " / ".join([error.msg, *(failure.msg for failure in failures[1:])])
        error.details = "; ".join(failure.details for failure in failures if failure.details)
        raise error from ExceptionGroup("not everything was detached", list(failures))


class _Detaching:
    """Networks of one pod on their way out."""

    def __init__(self, attachments: Sequence[Attachment], context: Context, is_undo: bool) -> None:
        self.failures: list[MultusError] = []
        self._context = context
        self._is_undo = is_undo
        self._left = list(attachments)
        """What is on record."""
        self._linked: list[tuple[Attachment, tuple[str, ...]]] = []
        """What is detached but for its links."""

    def delete(self, attachment: Attachment) -> None:
        """Run DEL of one network, which is detached then, or but for its links."""
        links: tuple[str, ...] = ()
        with self._attempt(attachment) as attempt:
            links = networks.delete(attachment, self._context)
            if not links:
                _forget(attachment, self._context)
        if links:
            self._linked.append((attachment, links))
        elif attempt.is_done:
            self._drop([attachment])

    def remove_links(self) -> None:
        """Remove the links that were left, together; the networks whose links are gone are detached then."""
        refused: dict[tuple[str, str], MultusError] = {}
        for netns in dict.fromkeys(attachment.netns for attachment, _ in self._linked):
            names = [name for attachment, links in self._linked if attachment.netns == netns for name in links]
            refused.update(((netns, name), error) for name, error in _remove(netns, names, self._context).items())
        gone = []
        for attachment, links in self._linked:
            with self._attempt(attachment) as attempt:
                for name in links:
                    if (attachment.netns, name) in refused:
                        raise refused[attachment.netns, name]
                _forget(attachment, self._context)
            if attempt.is_done:
                gone.append(attachment)
        self._drop(gone)

    def _attempt(self, attachment: Attachment, *, tolerates: bool = True) -> _Attempt:
        return _Attempt(attachment, self._context, self.failures, tolerates=tolerates and attachment.has_failed and not self._is_undo)

    def _drop(self, detached: Sequence[Attachment]) -> None:
        """Take from the record what is detached."""
        for attachment in detached:
            self._left.remove(attachment)
        if detached and not self._is_undo:
            with self._attempt(detached[0], tolerates=False):
                self._context.journal.write(detached[0].container_id, tuple(self._left))


class _Attempt:
    """A step of one network's DEL, for a ``with`` block: any fault ends here, noted as a MultusError, and the others go on.

    That of a network whose ADD had failed is logged and counts as done: kept, it would keep its pod from ever being deleted.
    """

    def __init__(self, attachment: Attachment, context: Context, failures: list[MultusError], *, tolerates: bool) -> None:
        self.is_done = True
        self._attachment = attachment
        self._context = context
        self._failures = failures
        self._tolerates = tolerates

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(exc, Exception):
            return False
        error = exc if isinstance(exc, MultusError) else MultusError(f"internal error: {type(exc).__name__}: {exc}")
        error.__cause__ = exc if error is not exc else exc.__cause__
        if self._tolerates:
            self._context.log.error("del.given_up", ifname=self._attachment.ifname, error=error)
        else:
            self.is_done = False
            place = self._context.place(self._attachment.network, f"cannot detach {self._attachment.ifname!r}")
            self._failures.append(place.named(error))
        return True


def _remove(netns: str, names: Sequence[str], context: Context) -> Mapping[str, MultusError]:
    """Remove links of a namespace; why each that is still there could not be.  A namespace that is gone took its links along."""
    if not netns or not names:
        return {}
    start = context.clock.monotonic()
    try:
        return context.netns.remove_links(netns, names)
    except InvalidNetnsError:
        return {}
    except MultusError as exc:
        return dict.fromkeys(names, exc)
    finally:
        context.log.verbose("links.removed", links=",".join(names), seconds=f"{context.clock.monotonic() - start:.3f}")


def _forget(attachment: Attachment, context: Context) -> None:
    """Drop what there is on disk beside the record."""
    context.device_info.remove(context.device_info.path(attachment.delegate.name, attachment.container_id, attachment.ifname))
    context.journal.remove_result(attachment)
