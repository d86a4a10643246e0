"""ADD and DEL of a pod: its networks attached in order and undone on failure, or detached.

The journal is written before the first delegate runs and shrinks as detaching succeeds, so that whatever happens in
between, a later DEL knows what there is to do.
"""

from __future__ import annotations

from multus.core import delegates, networks, pods, routes, statuses
from multus.core.detach import detach, outside_own_netns, raise_all
from multus.errors import InvalidNetnsError, MultusError, ObjectNotFoundError
from multus.protocol import results
from multus.types.named import NamedTuple
from multus.types.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.context import Context
    from multus.types.delegate import Attachment, Delegate
    from multus.types.pod import Pod


class Attached(NamedTuple):
    """What an ADD did: the result for the runtime, and what there is to announce."""

    result: Result
    attachments: tuple[Attachment, ...] = ()
    pod: Pod | None = None


def add(context: Context) -> Attached:
    """Attach the pod of the call to the cluster network and to each network that it asks for.

    All or nothing: on failure what was attached is detached again, and the first error is raised.

    Raises:
        MultusError: With the delegate's own code where a delegate failed; the message opens with the place.
    """
    pod: Pod | None = None
    try:
        with context.place():
            refuse_own_netns(context)
            pods.wait_until_ready(context)
            found = pods.for_add(context)
            if isinstance(found, Result):
                return Attached(found)
            pod = found
            attachments, problems = delegates.plan(pod, context)
        for reason, problem in problems:
            context.log.warning("request.doubtful", reason=reason, error=problem)
            _report_problem(reason, problem, pod, context)
        with context.place():
            lock = context.journal.locked()
        with lock:
            return _attach_all(attachments, pod, context)
    except MultusError as exc:
        _report_problem("NoNetworkFound" if isinstance(exc, ObjectNotFoundError) else "FailedAddNetworks", exc, pod, context)
        raise


def announce(attached: Attached, context: Context) -> None:
    """Tell the plugins of each attachment that stands; best effort, after the runtime was answered."""
    if attached.pod is None:
        return
    for attachment in attached.attachments:
        try:
            context.hooks.report_attachment(attachment, attached.pod)
        except MultusError as exc:
            context.log.error("report.attachment.failed", ifname=attachment.ifname, error=exc)
            return


def delete(context: Context) -> None:
    """Detach the pod of the call from everything it was attached to.

    The record decides; without one what the pod asks for now; without a pod nothing is known, and DEL succeeds.

    Raises:
        MultusError: The failures, as one error with the first one's code; their state is kept for the next DEL.
    """
    with context.place():
        refuse_own_netns(context)
        lock = context.journal.locked()
    with lock:
        recorded = context.journal.read(context.call)
        if recorded is None:
            failures = detach(_unrecorded(context), context)
            if not failures:
                context.journal.write(context.call.container_id, ())  # what a killed write may have left
        else:
            here = tuple(attachment._replace(netns=context.call.netns) for attachment in recorded)
            failures = detach(here, context)
    raise_all(failures)


def refuse_own_netns(context: Context) -> None:
    """Refuse to work on the network namespace that this process itself is in.

    Raises:
        InvalidNetnsError: Code 8; before anything is done.
    """
    call = context.call
    if call.netns and not call.netns_override and context.netns.is_own(call.netns):
        raise InvalidNetnsError(
            f"CNI_NETNS {call.netns!r} is the network namespace of the plugin itself; CNI_NETNS_OVERRIDE=true allows it"
        )


def _attach_all(attachments: tuple[Attachment, ...], pod: Pod | None, context: Context) -> Attached:
    _finish_undoing(context)
    with context.place():
        context.journal.write(context.call.container_id, attachments)
    tries = [_Try(attachment, context) for attachment in attachments]
    try:
        _run(tries, context.config.max_parallel_attachments)
        with context.place():
            attached = _settle([each.attachment for each in tries], pod, context)
    except BaseException as exc:
        context.log.error("undo.started", cause=exc)
        _undo([each for each in tries if each.has_begun], context)
        raise
    return attached


class _Try:
    """ADD of one network, which may run in a thread of its own."""

    def __init__(self, attachment: Attachment, context: Context) -> None:
        self.attachment = attachment
        """As far as it came: with a result once it is attached."""
        self.has_begun = False
        self.is_failed = False
        """Its delegate said that nothing is attached.  What was interrupted, or met a fault of ours, may well be."""
        self._context = context

    @property
    def is_alone(self) -> bool:
        """Whether nothing runs beside it: the cluster network comes before all others, the auxiliary chain after them."""
        return self.attachment.delegate.is_cluster_network or self.attachment.delegate.is_auxiliary

    def run(self) -> None:
        context = self._context
        self.has_begun = True
        try:
            with context.place(self.attachment.network, f"cannot attach {self.attachment.ifname!r}"):
                self.attachment = _attach(self.attachment, context)
                context.journal.write_result(self.attachment)
                self.attachment = _with_device_info(self.attachment, context)
        except MultusError as exc:
            self.is_failed = exc.attached_nothing and self.attachment.result is None
            raise


def _run(tries: list[_Try], limit: int) -> None:
    """Attach in order, or secondary networks side by side, so many at a time."""
    if limit == 1:
        for each in tries:
            each.run()
        return
    from multus.core.parallel import side_by_side  # and with it threading

    together: list[_Try] = []
    for each in tries:
        if each.is_alone:
            side_by_side([other.run for other in together], limit)
            together = []
            each.run()
        else:
            together.append(each)
    side_by_side([other.run for other in together], limit)


def _undo(tries: list[_Try], context: Context) -> None:
    """Detach what an ADD began with; the record tells the runtime's DEL what that was, and which of it failed."""
    tried = tuple(each.attachment._replace(has_failed=each.is_failed) for each in tries)
    try:
        context.journal.write(context.call.container_id, tried)
    except MultusError as exc:
        context.log.error("undo.record.failed", error=exc)
    for failure in detach(tried, context, is_undo=True):
        context.log.error("undo.failed", error=failure)


def _finish_undoing(context: Context) -> None:
    """Detach what a failed or killed ADD of this container left; refuse one that stands."""
    with context.place():
        recorded = context.journal.read(context.call)
        if recorded is None:
            return
        if all(attachment.result is not None for attachment in recorded):
            raise MultusError(f"container {context.call.container_id!r} is attached already, it needs DEL first")
    context.log.warning("add.undoes.earlier", attachments=len(recorded))
    raise_all(detach(outside_own_netns(recorded, context), context))


def _attach(attachment: Attachment, context: Context) -> Attachment:
    """Run ADD of one network; the attachment with its result."""
    delegate = attachment.delegate
    if not delegate.is_auxiliary and context.netns.has_link(attachment.netns, attachment.ifname):
        taken = MultusError(f"interface name {attachment.ifname!r} is taken in {attachment.netns}")
        taken.attached_nothing = True
        raise taken
    info_file = _published_info_file(attachment)
    if info_file and delegate.resource_name:
        _publish_device_info(delegate, info_file, context)
    prev_result = None
    if delegate.is_cluster_network and context.config.prev_result is not None:
        prev_result = results.parse(context.config.prev_result, context.config.cni_version)
    result, runners = networks.add(attachment, context, prev_result)
    return attachment._replace(result=result, runners=runners)


def _publish_device_info(delegate: Delegate, path: str, context: Context) -> None:
    """Copy what the device plugin says of the device; it informs, so that a network does not fail for it."""
    try:
        context.device_info.publish(delegate.resource_name, delegate.device_id, path)
    except MultusError as exc:
        context.log.warning("device_info.not_published", network=delegate.name, error=exc)


def _with_device_info(attachment: Attachment, context: Context) -> Attachment:
    """The attachment with what is published of its device, for the status."""
    path = _published_info_file(attachment)
    if not path:
        return attachment
    try:
        return attachment._replace(device_info=context.device_info.read(path))
    except MultusError as exc:
        context.log.warning("device_info.unreadable", path=path, error=exc)
        return attachment


def _published_info_file(attachment: Attachment) -> str:
    """Where its delegate finds, or puts, the device information; empty without a device."""
    return str(attachment.capability_args.get("CNIDeviceInfoFile", ""))


def _settle(started: list[Attachment], pod: Pod | None, context: Context) -> Attached:
    """What comes once all are attached: the default route, the result, the status."""
    moved = routes.move(started, context.netns)
    for before, after in zip(started, moved, strict=True):
        if after is not before:
            context.journal.write_result(after)
    result = results.convert(context.hooks.merge_results(moved, context.config), context.config.cni_version)
    if pod is not None:
        entries = tuple(entry for attachment in moved for entry in statuses.entries(attachment))
        context.hooks.report_status(entries, pod, context.config)
    return Attached(result, moved, pod)


def _report_problem(reason: str, error: MultusError, pod: Pod | None, context: Context) -> None:
    """Tell the plugins what is wrong; best effort."""
    if pod is None:
        return
    try:
        context.hooks.report_problem(reason, error, pod)
    except MultusError as exc:
        context.log.error("report.problem.failed", reason=reason, error=exc)


def _unrecorded(context: Context) -> tuple[Attachment, ...]:
    """What a pod without a record would be attached to: what its DEL has to clear, if it was ever attached."""
    pod = pods.for_delete(context)
    if pod is None:
        return ()
    try:
        return delegates.plan(pod, context).attachments
    except MultusError as exc:
        context.log.warning("del.annotations.unusable", error=exc)
    try:
        return delegates.plan(None, context).attachments
    except MultusError as exc:
        context.log.warning("del.nothing.known", error=exc)
        return ()
