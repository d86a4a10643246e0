"""The plugin ``bandwidth``: limits to what a pod receives and sends by its veth."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from multus.errors import InvalidConfigError, IOFailureError, MultusError
from multus.protocol import results
from multus_netlink import chained, ownership
from multus_netlink.configuration import Section, require_served, valid_attachments
from multus_netlink.links import Links
from multus_netlink.qdiscs import QdiscLinks, Shape

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result
    from multus_netlink.links import Link

_WAYS = ("ingress", "egress")
_KEYS = frozenset(f"{way}{what}" for way in _WAYS for what in ("Rate", "Burst"))
_LARGEST_RATE = (1 << 64) - 1
_LARGEST_BURST = ((1 << 32) - 1) * 8 - 1
_PLUGIN = "bandwidth"
_PREFIX = "bwp"
_LONGEST_NAME = 15


class _Limits(NamedTuple):
    """What the pod may receive, and what it may send; None: everything."""

    ingress: Shape | None
    egress: Shape | None


class Bandwidth:
    """Implements ``multus.hooks.delegates.InProcessDelegate``.

    What the pod receives leaves the host by the veth's other end, and waits there.  What it sends comes in there, is sent
    on to an ifb link, and waits to leave that.
    """

    def accepts(self, invocation: Invocation) -> bool:
        """Declines choices of subnets."""
        require_served(invocation.config, _KEYS)
        return True

    def add(self, invocation: Invocation) -> Result:
        """Limit the pod's interface; the result so far, with the ifb link if what the pod sends is limited.

        Raises:
            InvalidConfigError: A value is not valid, or the previous result has no other end of the interface.
            IOFailureError: The kernel refuses; no limit is left then.
        """
        limits = _read(invocation)
        result = chained.previous(invocation)
        if limits == (None, None):
            return result
        with QdiscLinks(ifname=invocation.ifname) as host:
            end = _host_end(host, invocation, result)
            if host.shape_of(end) is not None or host.is_redirected(end):
                raise IOFailureError(f"interface {invocation.ifname}: its other end, {end.name}, is limited already")
            ifb: Link | None = None
            try:
                if limits.ingress:
                    host.shape(end, limits.ingress)
                if limits.egress is None:
                    return result
                ifb = host.add_ifb(_ifb_name(invocation, invocation.container_id), end.mtu)
                host.change(ifb, "give an alias to", ifalias=ownership.network(invocation, _PLUGIN))
                host.redirect(end, ifb)
                host.shape(ifb, limits.egress)
            except BaseException:
                _undo(host, end, ifb)
                raise
        return chained.with_interfaces(result, lambda listed: [*listed, {"name": ifb.name, "mac": ifb.mac}])

    def delete(self, invocation: Invocation) -> None:
        """Remove the ifb link, if it is there.  The other limits go with the interface."""
        with Links(ifname=invocation.ifname) as host:
            host.remove(_ifb_name(invocation, invocation.container_id))

    def check(self, invocation: Invocation) -> None:
        """The limits are there, and as they should be.

        Raises:
            InvalidConfigError: There is no previous result, or it has no other end of the interface.
            IOFailureError: They are not.
        """
        limits = _read(invocation)
        result = chained.previous(invocation)
        if limits == (None, None):
            return
        with QdiscLinks(ifname=invocation.ifname) as host:
            end = _host_end(host, invocation, result)
            if limits.ingress:
                _check(host, invocation, end, limits.ingress)
            if limits.egress:
                _check(host, invocation, host.get(_ifb_name(invocation, invocation.container_id)), limits.egress)
                if not host.is_redirected(end):
                    raise IOFailureError(f"interface {invocation.ifname}: what {end.name} receives is not redirected")

    def gc(self, invocation: Invocation) -> None:
        """Remove the ifb links that this package has made for the network, and that are of no valid attachment's container.

        Raises:
            InvalidConfigError: The configuration has no list of attachments.
        """
        valid = {_ifb_name(invocation, container_id) for container_id, _ in valid_attachments(invocation)}
        alias = ownership.network(invocation, _PLUGIN)
        with Links() as host:
            for link in host.every():
                if link.kind == "ifb" and link.alias == alias and link.name not in valid:
                    host.remove(link.name)

    def status(self, invocation: Invocation) -> None:
        """It can always serve."""


def _read(invocation: Invocation) -> _Limits:
    """The limits of the configuration if it has one of the keys, else those of the capability."""
    config = Section.of(invocation)
    owner = config if any(config.has(key) for key in _KEYS) else config.section("runtimeConfig").section("bandwidth")
    return _Limits(*(_shape(owner, way) for way in _WAYS))


def _shape(owner: Section, way: str) -> Shape | None:
    rate_key, burst_key = f"{way}Rate", f"{way}Burst"
    rate, burst = owner.whole(rate_key), owner.whole(burst_key)
    if rate and not 8 <= rate <= _LARGEST_RATE:
        raise owner.refusal(rate_key, f"a rate in bits per second, from 8 to {_LARGEST_RATE}")
    if burst and not 8 <= burst <= _LARGEST_BURST:
        raise owner.refusal(burst_key, f"a burst in bits, from 8 to {_LARGEST_BURST}")
    if bool(rate) is not bool(burst):
        missing, given = (burst_key, rate_key) if rate else (rate_key, burst_key)
        raise owner.refusal(missing, f"given, and {given} is")
    return Shape.of(rate, burst) if rate else None


def _host_end(host: QdiscLinks, invocation: Invocation, result: Result) -> Link:
    """The other end of the pod's veth, which the result tells of."""
    with Links(invocation.netns, invocation.ifname) as pod:
        link = pod.get(invocation.ifname)
    end = host.at(link.peer) if link.kind == "veth" and link.peer else None
    names = [each.name for each in results.view(result).interfaces if not each.sandbox]
    if end is None or end.name not in names:
        what = f"it is a {link.kind or 'device'}" if link.kind != "veth" else f"prevResult names {', '.join(names) or 'none'}"
        raise InvalidConfigError(f"interface {invocation.ifname}: it has no other end on the host that could be limited: {what}")
    return end


def _check(host: QdiscLinks, invocation: Invocation, link: Link, shape: Shape) -> None:
    found = host.shape_of(link)
    if found is None:
        raise IOFailureError(f"interface {invocation.ifname}: the rate of {link.name} is not limited")
    for what, is_now, wanted in zip(Shape._fields, found, shape, strict=True):
        if is_now != wanted:
            raise IOFailureError(f"interface {invocation.ifname}: the {what} of {link.name} is {is_now}, not {wanted}")


def _undo(host: QdiscLinks, end: Link, ifb: Link | None) -> None:
    try:
        host.free(end)
        if ifb is not None:
            host.remove(ifb.name)
    except MultusError:
        pass  # the failure that is being undone says more


def _ifb_name(invocation: Invocation, container_id: str) -> str:
    """The name that the binary gives it, by network and container."""
    digest = hashlib.sha512(f"{Section.of(invocation).text('name')}{container_id}".encode(errors="replace"))
    return f"{_PREFIX}{digest.hexdigest()}"[:_LONGEST_NAME]
