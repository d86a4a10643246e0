"""The hooks of Multus: their specifications, and the marker for implementations.

    from multus.hooks.spec import hookimpl

    @hookimpl
    def multus_report_attachment(attachment, pod):
        print(attachment.ifname, "of", pod, file=sys.stderr)

Register the module or object that holds implementations as an entry point of the group ``multus``; its name is the
plugin's.  ``docs/hooks.md`` tells the whole story.  Arguments are values and are not to be changed.  Hooks run at the
same time for different containers, for the same one only ``multus_invoke_delegate`` and with ``maxParallelAttachments``,
so a plugin keeps no state of a call.  An exception ends what the hook was called for: raise a class of ``multus.errors``
to say how.
"""

from __future__ import annotations

import pluggy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.errors import MultusError
    from multus.types.config import MultusConfig
    from multus.types.delegate import Attachment, Delegate
    from multus.types.invocation import Invocation, Outcome
    from multus.types.pod import NetworkStatus, Pod
    from multus.types.result import Result
    from multus.types.selection import NetworkSelectionElement

PROJECT = "multus"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def multus_select_networks(pod: Pod, config: MultusConfig) -> tuple[NetworkSelectionElement, ...] | None:
    """Which secondary networks does the pod get?

    Called once per ADD with a known pod, before anything is attached.  The first answer wins: unnamed interfaces are
    numbered by position, so joining lists would rename them with each plugin installed; to add or drop, wrap.
    ``()`` means none on purpose, ``None`` not mine.  An exception fails the ADD (InvalidConfigError: see
    ``invalidAnnotation``).  Default: the elements of the networks annotation.
    """


@hookspec(firstresult=True)
def multus_resolve_delegate(selection: NetworkSelectionElement, pod: Pod | None, config: MultusConfig) -> Delegate | None:
    """What is the network that this element names?

    Called once per selection, in order, after all of them were authorised; also for a cluster or default network that
    the configuration names, with ``pod`` None where there is none (STATUS, GC).  The first answer wins; ``None`` means
    not mine, and a network that nobody knows is an error.  An exception fails the ADD, before anything is attached.
    Default: the net-attach-def of that namespace and name.
    """


@hookspec(firstresult=True)
def multus_invoke_delegate(invocation: Invocation, delegate: Delegate, config: MultusConfig) -> Outcome | None:
    """Run one CNI call of one plugin.

    Called once per plugin of a conflist and verb, in the order of the CNI specification, in the thread of the call.
    The first answer wins: an ``Outcome``, with a result for ADD; ``None`` means not mine.  An exception is the
    delegate's failure.  A wrapper sees every call.  Default: the binary on the search path, or an entry point of the
    group ``multus.delegates``, as ``delegatePreference`` says.
    """


@hookspec(firstresult=True)
def multus_merge_results(attachments: tuple[Attachment, ...], config: MultusConfig) -> Result | None:
    """Which result does the runtime get?

    Called once per ADD, when everything is attached.  The first answer wins; it is converted to the caller's version.
    An exception fails the ADD and undoes it.  Default: the cluster network's result.
    """


@hookspec
def multus_report_status(statuses: tuple[NetworkStatus, ...], pod: Pod, config: MultusConfig) -> None:
    """Everything is attached: make it known, before the runtime is answered.

    Called once per ADD with a known pod; everyone is told.  An exception fails the ADD and undoes it, so a reporter
    that is not essential catches its own.  Default, and last: the network-status annotation, by one PATCH.
    """


@hookspec
def multus_report_attachment(attachment: Attachment, pod: Pod) -> None:
    """An attachment stands.

    Called once per attachment, in order, after the runtime was answered, so never for one that was undone; everyone
    is told.  For events and metrics; an exception is logged.  Default: the event AddedInterface.
    """


@hookspec
def multus_report_problem(reason: str, error: MultusError, pod: Pod) -> None:
    """Something is wrong with what the pod asked for, or its ADD failed.

    Called once per problem, before the runtime is answered; everyone is told.  ``reason`` is a CamelCase word as
    events carry it.  An exception is logged.  Default: a Warning event with the error's text.
    """
