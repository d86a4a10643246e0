"""The requests of a pod: network selection elements.  Spec: multi-network CRD standard v1.3 §4.1.2."""

from __future__ import annotations

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class NetworkSelectionElement(NamedTuple):
    """One network that a pod asks for, with what it asks of it.  Valid: the parser made it."""

    name: str
    namespace: str
    ifname: str = ""
    ips: tuple[str, ...] = ()
    """Addresses, each with or without a prefix length."""
    mac: str = ""
    infiniband_guid: str = ""
    port_mappings: tuple[Mapping[str, object], ...] = ()
    bandwidth: Mapping[str, int] | None = None
    """Rates in bit/s, bursts in bit; only the keys that were given, and the burst that goes with a rate."""
    default_route: tuple[str, ...] | None = None
    """Gateways; empty: keep the attachment's own default route; None: not asked for."""
    cni_args: Mapping[str, object] | None = None
    device_id: str = ""
    ipam_claim_reference: str = ""

    @property
    def qualified_name(self) -> str:
        return f"{self.namespace}/{self.name}"
