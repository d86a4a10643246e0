"""The plugin ``portmap``: ports of the host that lead to a pod, by rules of nftables."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

from multus.errors import IOFailureError, MultusError, NotAvailableError
from multus.protocol import results
from multus_netlink import chained, conditions, conntrack, nftables, ownership
from multus_netlink.configuration import Section, require_served, unserved
from multus_netlink.links import write_setting
from multus_netlink.nftables import HOSTPORTS, POSTROUTING, Rule, Table
from multus_netlink.ranges import parse_address
from multus_netlink.routing import RoutingLinks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus.types.invocation import Invocation
    from multus.types.result import Result
    from multus_netlink.nftables import Statement
    from multus_netlink.ranges import Address

_KEYS = frozenset(("backend", "snat", "conditionsV4", "conditionsV6", "masqAll"))
_PLUGIN = "portmap"
_BACKEND = "nftables"
_CONDITIONS = {4: "conditionsV4", 6: "conditionsV6"}
_LOCALHOST = ip_network("127.0.0.0/8")
_LARGEST_PORT = 65535


class _Mapping(NamedTuple):
    """A port of the host, of any of its addresses or of one, and the pod's port that it leads to."""

    protocol: str
    host_port: int
    pod_port: int
    host_address: Address | None

    def is_of(self, family: int) -> bool:
        return self.host_address is None or self.host_address.version == family


class Portmap:
    """Implements ``multus.hooks.delegates.InProcessDelegate``."""

    def accepts(self, invocation: Invocation) -> bool:
        """Declines iptables: ``backend``, marks, chains of others; and conditions that only the program nft can read."""
        config = invocation.config
        require_served(config, _KEYS)
        if config.get("backend") not in (None, "", _BACKEND):
            raise unserved("backend", config.get("backend"))
        for family, key in _CONDITIONS.items():
            texts = _texts(config.get(key))
            if conditions.parse(texts, family) is None:
                raise unserved(key, " ".join(texts))
        return True

    def add(self, invocation: Invocation) -> Result:
        """Make the rules for the pod's first address of each family, in place of those that it has; the result so far.

        Raises:
            InvalidConfigError: A value is not valid, or there is no previous result.
            IOFailureError: The kernel refuses; no rule is left then.
        """
        config = Section.of(invocation)
        mappings = _mappings(config)
        result = chained.previous(invocation)
        if not mappings:
            return result
        tag = ownership.tag(invocation, _PLUGIN)
        try:
            for pod in _pod_addresses(invocation, result):
                with Table(pod.version, invocation.ifname) as table:
                    table.replace(tag, _rules(config, tag, mappings, pod))
                _forget_flows(mappings, pod, to_pod=False)
                if pod.version == 4 and _has_snat(config):
                    _let_localhost_out(invocation, pod)
        except BaseException:
            try:
                self.delete(invocation)
            except MultusError:
                pass  # the failure that is being undone says more
            raise
        return result

    def delete(self, invocation: Invocation) -> None:
        """Remove the attachment's rules, and what the kernel remembers of its UDP flows."""
        ownership.remove(invocation, _PLUGIN)
        try:
            mappings = _mappings(Section.of(invocation))
            for pod in _pod_addresses(invocation, chained.previous(invocation)) if mappings else ():
                _forget_flows(mappings, pod, to_pod=True)
        except MultusError:
            pass  # DEL needs neither the previous result nor the ports: flows end by themselves

    def check(self, invocation: Invocation) -> None:
        """Every rule is there, and what leads to the rules.

        Raises:
            IOFailureError: One is not.
            InvalidConfigError: There is no previous result.
        """
        config = Section.of(invocation)
        mappings, tag = _mappings(config), ownership.tag(invocation, _PLUGIN)
        for pod in _pod_addresses(invocation, chained.previous(invocation)) if mappings else ():
            with Table(pod.version, invocation.ifname) as table:
                missing = table.lacks(tag, _rules(config, tag, mappings, pod))
            if missing:
                raise IOFailureError(f"interface {invocation.ifname}: the rule {missing} of nftables is gone")

    def gc(self, invocation: Invocation) -> None:
        """Remove the rules of this network that belong to no valid attachment.

        Raises:
            InvalidConfigError: The configuration has no list of attachments.
        """
        ownership.collect(invocation, _PLUGIN)

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if the kernel has no nftables for us."""
        try:
            with Table(4) as table:
                table.require()
        except MultusError as exc:
            raise NotAvailableError(exc.msg) from exc


def _texts(value: object) -> list[str]:
    """The strings of a list.  What is no such list is refused when it is read."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _mappings(config: Section) -> list[_Mapping]:
    """``runtimeConfig.portMappings``."""
    found = []
    for each in config.section("runtimeConfig").sections("portMappings"):
        protocol = each.text("protocol").lower()
        if protocol not in nftables.PROTOCOLS:
            raise each.refusal("protocol", f"one of {', '.join(nftables.PROTOCOLS)}")
        for key in ("hostPort", "containerPort"):
            if not 0 < each.whole(key) <= _LARGEST_PORT:
                raise each.refusal(key, f"a port, from 1 to {_LARGEST_PORT}")
        host = parse_address(each.ip("hostIP"))
        found.append(_Mapping(protocol, each.whole("hostPort"), each.whole("containerPort"), host))
    return found


def _has_snat(config: Section) -> bool:
    return config.flag("snat") or not config.has("snat")


def _pod_addresses(invocation: Invocation, result: Result) -> list[Address]:
    """The interface's first address of each family."""
    view = results.view(result)
    found: dict[int, Address] = {}
    for ip in view.ips:
        interface = None if ip.interface is None else view.interfaces[ip.interface]
        if interface is None or (interface.name == invocation.ifname and interface.sandbox):
            address = ip_address(ip.address.partition("/")[0])
            found.setdefault(address.version, address)
    return list(found.values())


def _rules(config: Section, tag: str, mappings: Sequence[_Mapping], pod: Address) -> list[Rule]:
    family = pod.version
    before = conditions.parse(config.texts(_CONDITIONS[family]), family) or ()
    own = [each for each in mappings if each.is_of(family)]
    rules = []
    for each in own:
        comment = f"{tag} {each.protocol} {_endpoint(each.host_address, each.host_port)} {_endpoint(pod, each.pod_port)}"
        statements = (*before, *_to_host(each), *_to_port(each), nftables.send_to(pod, each.pod_port))
        rules.append(Rule(HOSTPORTS, statements, comment))
    if not own or not _has_snat(config):
        return rules
    to_pod = nftables.destination(ip_network(pod))
    if config.flag("masqAll"):
        for each in own:
            sent_on = (nftables.protocol(each.protocol), nftables.sent_on_from(each.host_port), to_pod)
            rules.append(Rule(POSTROUTING, (*sent_on, nftables.masquerade()), f"{tag} {each.protocol} {each.host_port} from all"))
    hairpin = (nftables.source(ip_network(pod)), to_pod, nftables.masquerade())
    rules.append(Rule(POSTROUTING, hairpin, f"{tag} hairpin"))
    if family == 4:
        rules.append(Rule(POSTROUTING, (nftables.source(_LOCALHOST), to_pod, nftables.masquerade()), f"{tag} localhost"))
    return rules


def _to_host(mapping: _Mapping) -> tuple[Statement, ...]:
    host = mapping.host_address
    return () if host is None or host.is_unspecified else (nftables.destination(ip_network(host)),)


def _to_port(mapping: _Mapping) -> tuple[Statement, ...]:
    return nftables.protocol(mapping.protocol), nftables.destination_port(mapping.host_port)


def _endpoint(address: Address | None, port: int) -> str:
    return f"*:{port}" if address is None else f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def _let_localhost_out(invocation: Invocation, pod: Address) -> None:
    """Let what the host sends from 127.0.0.1 leave by the interface that leads to the pod."""
    with RoutingLinks(ifname=invocation.ifname) as host:
        device = host.device_to(str(pod))
    if device:
        write_setting(f"ipv4/conf/{device}/route_localnet", "1", invocation.ifname)


def _forget_flows(mappings: Sequence[_Mapping], pod: Address, *, to_pod: bool) -> None:
    """Forget UDP flows for the mapped ports that lead to the pod, or those that lead elsewhere."""
    for each in mappings:
        if each.protocol == "udp" and each.is_of(pod.version):
            conntrack.forget_udp(pod.version, each.host_port, lambda flow: (flow.answered_by == pod.packed) is to_pod)
