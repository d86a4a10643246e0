"""``multus``: the thin plugin, a CNI binary that does it all in one process.

This is its front: one call in, one answer out, whatever happens.  ``multus.commands.thin`` serves the call, and loads
when there is one to serve.  The world comes in through ``run``: environment, standard input and output.
"""

from __future__ import annotations

import gc
import os
import sys

from multus.errors import IOFailureError, MultusError
from multus.protocol import versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

ABOUT = "meta-plugin that delegates to other CNI plugins"
VERSION_FLAGS = ("-v", "--v", "-version", "--version")


def main() -> None:
    """Serve one call: the process's environment and standard input in, an answer and an exit status out."""
    if len(sys.argv) > 1 and sys.argv[1] in VERSION_FLAGS:
        from importlib.metadata import version  # 8 ms, for people

        print(f"multus: version:{version('multus')}")
        return
    gc.disable()  # the process is over before there is garbage worth collecting: 3 ms
    status = run(os.environ, sys.stdin.buffer, sys.stdout.buffer)
    sys.stdout.flush()
    os._exit(status)  # nothing is left to do, and taking an interpreter down costs 3 ms


def run(environ: Mapping[str, str], stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Serve one call and answer on ``stdout``; the exit status: 0, or 1 with an error object.  Spec: CNI 1.1.0 §2, §5."""
    command = environ.get("CNI_COMMAND")
    if not command:
        print(f"{ABOUT}\nCNI protocol versions supported: {', '.join(versions.SUPPORTED)}", file=sys.stderr)
        return 0
    if command == "VERSION":
        supported = ",".join(f'"{version}"' for version in versions.SUPPORTED)
        _write(stdout, f'{{"cniVersion":"{versions.SUPPORTED[-1]}","supportedVersions":[{supported}]}}\n')
        return 0
    from multus.commands import thin  # 15 ms, for calls that attach or look after something

    call = thin.ThinCall(environ)
    try:
        result = call.serve(_read(stdin))
    except MultusError as exc:
        _answer(stdout, exc.document(call.cni_version))
        return 1
    except Exception as exc:  # the last resort: a fault of ours must not look like a crash of the node
        _answer(stdout, MultusError(f"internal error: {type(exc).__name__}: {exc}", _trail(exc)).document(call.cni_version))
        return 1
    if result is not None:
        _answer(stdout, result.document)
        _follow_up(call.announce)
    return 0


def _follow_up(announce: Callable[[], None]) -> None:
    """What comes after the answer can change nothing about it."""
    try:
        announce()
    except Exception as exc:  # a second document on standard output would spoil the answer that stands
        print(f"multus: internal error: {type(exc).__name__}: {exc}: {_trail(exc)}", file=sys.stderr)


def _read(stdin: BinaryIO) -> bytes:
    try:
        return stdin.read()
    except OSError as exc:
        raise IOFailureError(f"standard input cannot be read: {exc.strerror}") from exc


def _answer(stdout: BinaryIO, document: Mapping[str, object]) -> None:
    from multus.protocol import documents  # loaded by now: VERSION alone does without

    _write(stdout, documents.dumps_indented(document))


def _write(stdout: BinaryIO, text: str) -> None:
    stdout.write(text.encode())
    stdout.flush()


def _trail(error: BaseException) -> str:
    """Where an unexpected error came from, innermost first, without values."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_name} ({os.path.basename(code.co_filename)}:{trace.tb_lineno})")
        trace = trace.tb_next
    return " < ".join(reversed(places))


if __name__ == "__main__":
    main()
