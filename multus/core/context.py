"""What one call of Multus works with: its configuration, the hooks, and the ports."""

from __future__ import annotations

from multus.errors import MultusError
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from multus.core import ports
    from multus.hooks.manager import Hooks
    from multus.types.config import MultusConfig
    from multus.types.invocation import Call
    from multus.types.pod import Pod


class Context(NamedTuple):
    """Everything a call needs, put together by a command."""

    call: Call
    config: MultusConfig
    hooks: Hooks
    kube: ports.Kube | None
    """None: no API server is configured, so there are no pods and no net-attach-defs."""
    journal: ports.Journal
    netns: ports.Netns
    conf_dir: ports.ConfDir
    device_info: ports.DeviceInfoFiles
    devices: Callable[[Pod], ports.Devices]
    """Makes the device allocator of a pod, when a network wants a device."""
    clock: ports.Clock
    log: ports.Log
    readiness: Callable[[str], bool]
    """Whether the readiness indicator file is there."""
    observe: Callable[[str, str, str, float], None] | None = None
    """Told of each call of a delegate: verb, type, network and seconds."""

    @property
    def search_path(self) -> tuple[str, ...]:
        """The folders of delegates' binaries, each once: our own first, then the runtime's."""
        return tuple(dict.fromkeys((self.config.bin_dir, *self.call.path)))

    def place(self, network: str = "", doing: str = "") -> Place:
        """A block whose errors open with the place: ``[namespace/pod/uid:network]: doing``."""
        where = f"[{self.call.pod}:{network}]" if network else f"[{self.call.pod}]"
        return Place(f"{where}: {doing}" if doing else where)


class Place:
    """A context manager that puts a place in front of the message of a MultusError that passes."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, MultusError):
            raise self.named(error) from error

    def named(self, error: MultusError) -> MultusError:
        """The same error with the place in front of its message."""
        return error.prefixed(self._where)
