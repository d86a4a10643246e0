"""The delegate: what each verb of CNI does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multus.errors import InvalidConfigError, IOFailureError, MultusError, NotAvailableError
from multus.hooks.delegates import InProcessDelegate, previous_result
from multus.types.result import Result
from multus_bridge_port import settings
from multus_bridge_port.kernel import Kernel

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus_bridge_port.kernel import Link
    from multus_bridge_port.settings import Settings

_OURS = "bridge-port"


class BridgePort(InProcessDelegate):
    """All its state is in the kernel: a port's alias says whose it is, so DEL and GC find it without the configuration."""

    def add(self, invocation: Invocation) -> Result:
        wanted = settings.read(invocation)
        with Kernel() as host, Kernel(invocation.netns) as pod:
            bridge = _bridge(host, wanted)
            if pod.find(invocation.ifname) is not None:
                raise IOFailureError(f"interface {invocation.ifname} is in {invocation.netns} already")
            taken = host.find(wanted.port)
            if taken is not None:
                raise IOFailureError(f'key "port": there is an interface {wanted.port} on this node already{_by(taken)}')
            host.add_pair(wanted.port, invocation.ifname, invocation.netns, mac=wanted.mac, mtu=wanted.mtu or bridge.mtu)
            port = host.get(wanted.port)
            try:
                host.plug(port, bridge, _owner(invocation))
                if wanted.has_vlans:  # while it is down, so that no frame passes by the bridge's default VLAN
                    host.set_vlans(port, wanted.vlans)
                host.set_up(port)
                inside = pod.get(invocation.ifname)
                for address in wanted.addresses:
                    pod.add_address(inside, address)
                pod.set_up(inside)
            except BaseException:
                host.remove(port)
                raise
        interfaces = [
            {"name": port.name, "mac": port.mac, "mtu": port.mtu},
            {"name": inside.name, "mac": inside.mac, "mtu": inside.mtu, "sandbox": invocation.netns},
        ]
        ips = [{"address": address, "interface": 1} for address in wanted.addresses]
        return Result({"cniVersion": "1.1.0", "interfaces": interfaces, "ips": ips})

    def delete(self, invocation: Invocation) -> None:
        with Kernel() as host:
            for port in host.with_alias(_owner(invocation)):
                host.remove(port)

    def check(self, invocation: Invocation) -> None:
        wanted, previous = settings.read(invocation), previous_result(invocation)
        if previous is None:
            raise InvalidConfigError('key "prevResult" is missing, there is nothing to compare with')
        with Kernel() as host, Kernel(invocation.netns) as pod:
            bridge, port, inside = _bridge(host, wanted), host.get(wanted.port), pod.get(invocation.ifname)
            if port.alias != _owner(invocation):
                raise IOFailureError(f"port {port.name} is not the one of {invocation.ifname}{_by(port)}")
            if port.bridge != bridge.ifindex:
                raise IOFailureError(f"port {port.name} is not on bridge {bridge.name}")
            if wanted.has_vlans and host.vlans(port) != wanted.vlans:
                raise IOFailureError(f"port {port.name} has other VLANs than the configuration")
            for link in (port, inside):
                if not link.is_up:
                    raise IOFailureError(f"interface {link.name} is down")
            lost = {ip.address for ip in previous.ips if ip.address in wanted.addresses} - pod.addresses(inside)
            if lost:
                raise IOFailureError(f"interface {inside.name} has lost {', '.join(sorted(lost))}")

    def gc(self, invocation: Invocation) -> None:
        valid: Any = invocation.config.get("cni.dev/valid-attachments") or []
        owners = {_owner(invocation._replace(container_id=each["containerID"], ifname=each["ifname"])) for each in valid}
        with Kernel() as host:
            for port in host.with_alias(f"{_OURS} {invocation.config['name']} ", whole=False):
                if port.alias not in owners:
                    host.remove(port)

    def status(self, invocation: Invocation) -> None:
        try:
            with Kernel() as host:
                _bridge(host, settings.read(invocation))
        except MultusError as exc:
            raise NotAvailableError(exc.msg) from exc


def _bridge(host: Kernel, wanted: Settings) -> Link:
    """The bridge, which the operator has made.

    Raises:
        InvalidConfigError: It is not there, is no bridge, or lets every VLAN pass.
    """
    link = host.find(wanted.bridge)
    if link is None:
        raise InvalidConfigError(f'key "bridge": there is no {wanted.bridge} on this node: ip link add {wanted.bridge} type bridge')
    if link.kind != "bridge":
        raise InvalidConfigError(f'key "bridge": {wanted.bridge} is no bridge but of kind {link.kind or "(none)"!r}')
    if wanted.has_vlans and not link.filters_vlans:
        how = f"ip link set {wanted.bridge} type bridge vlan_filtering 1"
        raise InvalidConfigError(f'bridge {wanted.bridge} does not filter VLANs, as the keys "vlan" and "trunk" need: {how}')
    return link


def _owner(invocation: Invocation) -> str:
    """The alias of an attachment's port."""
    return f"{_OURS} {invocation.config['name']} {invocation.container_id} {invocation.ifname}"


def _by(port: Link) -> str:
    """Whose an interface is, to be put behind what is said of it."""
    return f" ({port.alias})" if port.alias else ""
