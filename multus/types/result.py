"""What a delegate answers to ADD.  Spec: CNI 1.1.0 §5, "ADD Success"."""

from __future__ import annotations

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Result(NamedTuple):
    """A result as it was delivered, in its own version, unknown keys included.

    ``multus.protocol.results`` lifts it to the newest shape, lowers it to a caller's version and reads it.
    """

    document: Mapping[str, object]

    @property
    def cni_version(self) -> str:
        return str(self.document["cniVersion"])


class Interface(NamedTuple):
    """One interface of a result; ``sandbox`` is empty for an interface of the host."""

    name: str
    mac: str = ""
    mtu: int | None = None
    sandbox: str = ""


class IPConfig(NamedTuple):
    """One address of a result: CIDR text with its host bits, gateway or "", index into the interfaces or None."""

    address: str
    gateway: str = ""
    interface: int | None = None


class Route(NamedTuple):
    """One route of a result: CIDR text, next hop or ""."""

    dst: str
    gw: str = ""


class ResultView(NamedTuple):
    """What we read of a result, whatever its version."""

    interfaces: tuple[Interface, ...] = ()
    ips: tuple[IPConfig, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Mapping[str, object] = {}
