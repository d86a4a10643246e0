"""What the shim says when a call fails: the error object for the runtime, a line for the operator.

Apart from ``shim`` so that the usual call does not pay for it.  Never shows standard input or the environment.
"""

from __future__ import annotations

import posix
import time
from _json import encode_basestring_ascii as _quoted

from multus.errors import DelegateError, MultusError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from multus.protocol.wire import Response

_SHOWN = 200
_SHOWN_IN_DETAILS = 4000
_CONTEXT = (("container", "CNI_CONTAINERID"), ("ifname", "CNI_IFNAME"))


class DaemonError(DelegateError):
    """The error object that the daemon answered; ``text`` is printed as it stands, unless it is empty."""

    def __init__(self, msg: str, details: str, code: int, text: str) -> None:
        super().__init__(msg, details, code)
        self.text = text


def refusal(error: Mapping[str, object] | None, response: Response, daemon: str) -> MultusError:
    """The error that is in the daemon's answer; an answer that holds no CNI error object is quoted.

    Args:
        error: The body, if it is a JSON object.
        daemon: Who answered, to name it.
    """
    members = error or {}
    msg, code, details = members.get("msg"), members.get("code", 0), members.get("details", "")
    if not isinstance(msg, str) or not msg or type(code) is not int or not isinstance(details, str):
        return garbage(response, daemon)
    is_whole = code != 0 and isinstance(members.get("cniVersion"), str)
    return DaemonError(msg, details, code or MultusError.code, response.body.decode().strip() if is_whole else "")


def garbage(response: Response, daemon: str) -> MultusError:
    """An answer that is not what it should be: its status and its beginning."""
    text = response.body.decode("utf-8", "replace").strip()
    details = text[:_SHOWN_IN_DETAILS] if len(text) > _SHOWN else ""
    return MultusError(f"{daemon} answered with status {response.status}: {text[:_SHOWN]!r}", details)


def internal(error: BaseException) -> MultusError:
    """A fault of our own: its kind and where it came from, innermost first, without values."""
    places = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_name} ({code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})")
        trace = trace.tb_next
    return MultusError(f"internal error in the shim: {type(error).__name__}", " < ".join(reversed(places)))


def document(error: MultusError, cni_version: str) -> str:
    """The error object as text, indented as results are."""
    if isinstance(error, DaemonError) and error.text:
        return error.text
    members = error.document(cni_version).items()
    lines = (f"    {_quoted(key)}: {_quoted(value) if isinstance(value, str) else value}" for key, value in members)
    return "{\n" + ",\n".join(lines) + "\n}"


def line(event: str, env: Mapping[str, str], error: MultusError) -> str:
    """One line, whatever the error holds."""
    context = "".join(f" {name}={_quoted(env[variable])}" for name, variable in _CONTEXT if env.get(variable))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{stamp} [error] {event}{context} code={error.code} error={_quoted(str(error))}\n"


def append(text: str, stderr: int, log_file: str) -> None:
    """Write a line to standard error, and at the end of the log file if one is named; never fails the call."""
    content = text.encode(errors="replace")
    try:
        posix.write(stderr, content)
    except OSError:
        pass  # gone; the log file may be there
    if not log_file:
        return
    try:
        fd = posix.open(log_file, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC, 0o600)
    except OSError:
        return  # standard error has the line
    try:
        posix.write(fd, content)
    except OSError:
        pass
    finally:
        posix.close(fd)
