"""The journal: what is attached on this node, on disk, in files that survive a crash.

Owns ``<cniDir>/<containerID>`` (the attachments of one container, in the order of ADD) and
``<cniDir>/results/<network>-<containerID>-<ifname>`` (what one ADD gave and got).  What is in the files is
``protocol.records``'s business.  Other files and folders below ``cniDir`` are left alone.
"""

from __future__ import annotations

import fcntl
import os
import time

from multus import files
from multus.errors import (
    DecodingError,
    IncompatibleVersionError,
    InvalidConfigError,
    InvalidEnvironmentError,
    IOFailureError,
    TryAgainLaterError,
)
from multus.protocol import documents, records
from multus.protocol.environment import is_identifier

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.core.ports import Log
    from multus.types.delegate import Attachment
    from multus.types.invocation import Call

_LOCK_TIMEOUT_S = 60.0
_LOCK_INTERVAL_S = 0.05
_DAMAGED = ".damaged-"
"""What the name of a record that is put aside begins with; the container's ID, a hyphen and random digits follow."""
_NOT_READABLE = (DecodingError, InvalidConfigError, IncompatibleVersionError)


class Journal:
    """Attachments by container.  Safe between processes: every change is one rename or one removal.

    Raises IOFailureError for what cannot be read or written, which is never taken for missing, and
    InvalidEnvironmentError for a container ID that is no file name.
    """

    def __init__(self, cni_dir: str, log: Log | None = None) -> None:
        self._folder = os.path.abspath(cni_dir)
        self._results = os.path.join(self._folder, "results")
        self._log = log

    def write(self, container_id: str, attachments: tuple[Attachment, ...]) -> None:
        """Record, durably, what is about to be attached, or what is left of it; none removes the record.

        With the record go the damaged ones that were put aside for the same container, and what a killed write left:
        they are of no more use.
        """
        path = self._path(container_id)
        if attachments:
            self._replace(path, [records.to_element(attachment) for attachment in attachments])
            return
        try:
            removed = [files.remove(each) for each in (path, *self._damaged(container_id))]
            if any([*removed, files.remove_temporaries(path)]):
                files.sync_folder(self._folder)
        except OSError as exc:
            raise IOFailureError(f"cannot remove {path}: {exc.strerror}") from exc

    def read(self, call: Call) -> tuple[Attachment, ...] | None:
        """What was recorded for ``call.container_id``, with cached results; None: nothing is known.

        A damaged record is put aside, and a damaged or missing one is rebuilt from the results: the cluster network
        first, then net1, net2 and so on, then the others by name.  Interface name, namespace and arguments of the call
        stand in for what the reference does not record.  The namespace is the one of ADD.
        """
        path = self._path(call.container_id)
        content = self._content(path)
        if content is None:
            return self._rebuilt(call)
        try:
            return self._decoded(content, call)
        except _NOT_READABLE as exc:
            self._put_aside(path, call.container_id, exc.msg)
            return self._rebuilt(call)

    def write_result(self, attachment: Attachment) -> None:
        """Record an attachment with its result.

        Not durably: where the power went, the interface went as well, and the record alone tells DEL what there is to free.
        """
        path = self._result_path(attachment)
        if path is None:
            raise InvalidConfigError(
                f"cannot record a result: network {attachment.network!r}, container {attachment.container_id!r} or interface "
                f"{attachment.ifname!r} is no part of a file name"
            )
        self._replace(path, records.to_result_file(attachment), syncs=False)

    def remove_result(self, attachment: Attachment) -> None:
        path = self._result_path(attachment)
        if path is None:
            return
        try:
            files.remove(path)
            files.remove_temporaries(path)
        except NotADirectoryError:
            return
        except OSError as exc:
            raise IOFailureError(f"cannot remove {path}: {exc.strerror}") from exc

    def containers(self) -> tuple[str, ...]:
        """The IDs of all containers with a record or a result, sorted."""
        recorded = {name for name in self._files(self._folder) if is_identifier(name)}
        with_results = {attachment.container_id for _, attachment in self.results() if attachment is not None}
        return tuple(sorted(recorded | with_results))

    def damaged(self) -> frozenset[str]:
        """The IDs of containers whose record was put aside, and which have not been detached since."""
        return frozenset(container_id for container_id, _ in self._put_aside_before())

    def results(self) -> tuple[tuple[str, Attachment | None], ...]:
        """Path and attachment of every results file, by file name; None: the file does not tell an attachment."""
        return tuple((os.path.join(self._results, name), self._result(name, "eth0")) for name in self._files(self._results))

    def locked(self, *, exclusive: bool = False) -> Lock:
        """The lock on the whole journal, for a ``with`` block: GC takes it exclusively, ADD and DEL share it."""
        return Lock(self._folder, exclusive)

    def _decoded(self, content: bytes, call: Call) -> tuple[Attachment, ...]:
        elements = documents.loads(content, "the record")
        if not isinstance(elements, list) or not elements:
            raise DecodingError(f"the record is {documents.kind(elements)}, a list with elements is expected")
        return tuple(self._attachment(element, index, call) for index, element in enumerate(elements))

    def _attachment(self, element: object, index: int, call: Call) -> Attachment:
        attachment = records.from_element(element, call.container_id)
        if attachment is not None:
            document = self._result_document(attachment)
            return attachment if document is None else records.with_own_result_file(attachment, document)
        attachment = records.from_reference(element, index, call)
        if not attachment.ifname:
            attachment = attachment._replace(ifname=self._cached_ifname(attachment.network, call.container_id))
        document = self._result_document(attachment)
        try:
            return attachment if document is None else records.with_result_file(attachment, document)
        except DecodingError:
            return attachment

    def _cached_ifname(self, network: str, container_id: str) -> str:
        """The interface of the cluster network, when neither the record nor the call tells it (GC)."""
        return next((each.ifname for each in self._results_of(container_id, "eth0") if each.network == network), "eth0")

    def _rebuilt(self, call: Call) -> tuple[Attachment, ...] | None:
        found = self._results_of(call.container_id, call.ifname or "eth0")
        if not found:
            return None
        if self._log is not None:
            self._log.warning("journal.rebuilt", attachments=len(found))
        return tuple(sorted(found, key=_order_of_add))

    def _results_of(self, container_id: str, primary_ifname: str) -> list[Attachment]:
        names = [name for name in self._files(self._results) if f"-{container_id}-" in name]
        found = [self._result(name, primary_ifname) for name in names]
        return [each for each in found if each is not None and each.container_id == container_id]

    def _result(self, name: str, primary_ifname: str) -> Attachment | None:
        document = self._document(os.path.join(self._results, name))
        try:
            return None if document is None else records.from_result_file(document, primary_ifname)
        except _NOT_READABLE:
            return None

    def _result_document(self, attachment: Attachment) -> Mapping[str, object] | None:
        path = self._result_path(attachment)
        return None if path is None else self._document(path)

    def _document(self, path: str) -> Mapping[str, object] | None:
        """A results file's content; None: it is missing or not a JSON object."""
        content = self._content(path)
        try:
            return None if content is None else documents.load_object(content, path)
        except DecodingError:
            return None

    def _path(self, container_id: str) -> str:
        if not container_id or container_id.startswith(".") or "/" in container_id or "\0" in container_id:
            raise InvalidEnvironmentError(f"CNI_CONTAINERID {container_id!r} is no file name")
        return os.path.join(self._folder, container_id)

    def _result_path(self, attachment: Attachment) -> str | None:
        """None: a part of the file name is missing, or cannot be one, so that there is no such file."""
        parts = (attachment.network, attachment.container_id, attachment.ifname)
        if any(not part or "/" in part or "\0" in part for part in parts):
            return None
        return os.path.join(self._results, "-".join(parts))

    def _content(self, path: str) -> bytes | None:
        try:
            return files.read(path)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise IOFailureError(f"cannot read {path}: {exc.strerror}") from exc

    def _replace(self, path: str, document: object, *, syncs: bool = True) -> None:
        content = documents.dumps(document).encode()
        try:
            try:
                files.replace(path, content, syncs=syncs)
            except FileNotFoundError:
                _make_folder(os.path.dirname(path))
                files.replace(path, content, syncs=syncs)
        except OSError as exc:
            raise IOFailureError(f"cannot write {path}: {exc.strerror}") from exc

    def _put_aside(self, path: str, container_id: str, reason: str) -> None:
        aside = os.path.join(self._folder, f"{_DAMAGED}{container_id}-{os.urandom(4).hex()}")
        try:
            os.rename(path, aside)
            files.sync_folder(self._folder)
        except OSError as exc:
            raise IOFailureError(f"cannot put the damaged {path} aside: {exc.strerror}") from exc
        if self._log is not None:
            self._log.error("journal.damaged", reason=reason, aside=aside)

    def _damaged(self, container_id: str) -> list[str]:
        return [path for owner, path in self._put_aside_before() if owner == container_id]

    def _put_aside_before(self) -> list[tuple[str, str]]:
        """Container ID and path of each damaged record."""
        names = [name for name in self._files(self._folder) if name.startswith(_DAMAGED)]
        return [(name.removeprefix(_DAMAGED).rpartition("-")[0], os.path.join(self._folder, name)) for name in names]

    def _files(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted, none of them temporary; no folder: none."""
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise IOFailureError(f"cannot list {folder}: {exc.strerror}") from exc
        return sorted(name for name in names if not (name.startswith(".") and name.endswith(".tmp")))


class Lock:
    """An advisory lock between processes, on the journal's folder itself, so that there is no lock file to lose.

    Raises TryAgainLaterError, code 11, when it cannot be had within 60 s.  It goes with the process that dies.
    """

    def __init__(self, folder: str, exclusive: bool) -> None:
        self._folder = folder
        self._operation = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
        self._fd = -1

    def __enter__(self) -> None:
        try:
            _make_folder(self._folder)
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            raise IOFailureError(f"cannot open {self._folder}: {exc.strerror}") from exc
        end = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(self._fd, self._operation)
                return
            except BlockingIOError as exc:
                if time.monotonic() > end:
                    os.close(self._fd)
                    raise TryAgainLaterError(f"{self._folder} was locked for {_LOCK_TIMEOUT_S:.0f} s by a GC or what it waits for") from exc
            time.sleep(_LOCK_INTERVAL_S)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _order_of_add(attachment: Attachment) -> tuple[bool, bool, int, str, str]:
    """Sorts: the cluster network, net<N> by number, the others by name, the auxiliary chain."""
    number = attachment.ifname.removeprefix("net")
    is_numbered = attachment.ifname.startswith("net") and number.isascii() and number.isdecimal() and len(number) < 10
    return (
        attachment.delegate.is_auxiliary,
        not attachment.delegate.is_cluster_network,
        int(number) if is_numbered else 1 << 32,
        attachment.ifname,
        attachment.network,
    )


def _make_folder(path: str) -> None:
    """Make a folder and those above it, for root alone, durably."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        _make_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    files.sync_folder(parent)
