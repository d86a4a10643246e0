"""The interface of an in-process delegate: a network as a Python object, registered by its CNI ``type``.

Register an instance, or a class that is called without arguments, as an entry point of the group
``multus.delegates``; its name is the ``type`` that it serves.  With ``multus.netns``, ``multus.types`` and
``multus.errors`` this is all that a delegate needs of Multus.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from multus.protocol import results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus.types.invocation import Invocation
    from multus.types.result import Result, ResultView


class InProcessDelegate(Protocol):
    """What a CNI binary does, as methods.  Each may raise a class of ``multus.errors``.

    Derive from it, or write a class with the same methods; ``accepts``, ``gc`` and ``status`` may be missing.
    Calls come in the request's own thread, in the host's network namespace, at the same time for different
    containers, and ADD with ``maxParallelAttachments`` for interfaces of the same one.  ``invocation.config`` is the
    request configuration, previous result and capability arguments in it.
    """

    def accepts(self, invocation: Invocation) -> bool:
        """Whether it serves this very configuration; if not, the binary does.

        Raises:
            UnsupportedFieldError: It does not, and this is why: the message names the key and the value.
        """
        return True

    @abstractmethod
    def add(self, invocation: Invocation) -> Result:
        """Attach; a result in any version, by default taken to be of the configuration's."""

    @abstractmethod
    def delete(self, invocation: Invocation) -> None:
        """Detach.  What is gone already is no error."""

    @abstractmethod
    def check(self, invocation: Invocation) -> None:
        """Compare what is there with the previous result."""

    def gc(self, invocation: Invocation) -> None:
        """Remove what belongs to no attachment of the configuration's valid ones."""
        return

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if ADD cannot be served."""
        return


class LinkDelegate(InProcessDelegate, Protocol):
    """One that leaves the removal of its links to Multus, which removes all of a pod together; may be had or not.

    The kernel waits about 25 ms whenever it removes links, and no longer for eight than for one.
    """

    def release(self, invocation: Invocation) -> Sequence[str]:
        """All of ``delete`` but removing links from the pod's namespace: their names.

        Multus calls it for DEL in place of ``delete``, and removes the links, which may be gone, when the DEL of all the
        pod's networks is done.  If it raises, ``delete`` is called.
        """
        ...


def previous_result(invocation: Invocation) -> ResultView | None:
    """What ADD, or the plugin before in a list, has answered, whatever its version; None if the call has none.

    Raises:
        DecodingError: Code 6, it is not valid; names the place in it.
    """
    document = invocation.config.get("prevResult")
    if document is None:
        return None
    return results.view(results.parse(document, str(invocation.config.get("cniVersion") or "")))
