"""A network namespace as an open file, for the kernel to put a link into."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from multus.errors import InvalidNetnsError

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "/proc/thread-self/ns/net"


@contextmanager
def opened(netns: str = OWN) -> Iterator[int]:
    """The descriptor of a namespace, by default of the thread's own, to the end of the block."""
    try:
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise InvalidNetnsError(f"network namespace {netns!r} cannot be opened: {exc.strerror}") from exc
    try:
        yield fd
    finally:
        os.close(fd)
