"""What the networks share whose interface is made by ADD and removed by DEL."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar

from multus.errors import InvalidNetnsError
from multus_netlink import configuration, ipam
from multus_netlink.links import Links

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus_netlink.host_rules import HostRules


class MadeInterface:
    """All of ``multus.hooks.delegates.LinkDelegate`` but ``add`` and ``check``."""

    keys: ClassVar[frozenset[str]] = frozenset()
    """What is read of a configuration beside the standard keys and those of the rules."""
    rules: ClassVar[tuple[HostRules, ...]] = ()

    def accepts(self, invocation: Invocation) -> bool:
        """Declines other keys than its own and the standard ones, and what the IPAM plugin declines, by an UnsupportedFieldError."""
        configuration.require_served(invocation.config, self.keys.union(*(each.keys for each in self.rules)))
        ipam.require_served(invocation)
        for each in self.rules:
            each.require_served(invocation)
        return True

    def delete(self, invocation: Invocation) -> None:
        """Take the addresses back, then remove the interface and the host's rules; each is done whatever happens to the others.

        A namespace that is gone has taken its links with it.
        """
        with self._without_rules(invocation):
            try:
                ipam.release(invocation)
            finally:
                if invocation.netns:
                    _remove(invocation)

    def release(self, invocation: Invocation) -> tuple[str, ...]:
        """Take the addresses back and remove the host's rules, and leave the interface to be removed with others of its pod."""
        with self._without_rules(invocation):
            ipam.release(invocation)
        return (invocation.ifname,)

    def gc(self, invocation: Invocation) -> None:
        """Take addresses back, and rules, that belong to no valid attachment.  The interfaces went with their namespaces."""
        ipam.gc(invocation)
        for each in self.rules:
            each.gc(invocation)

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if there are no addresses to give."""
        ipam.status(invocation)

    def _without_rules(self, invocation: Invocation) -> ExitStack:
        """The rules go at the end of the block."""
        block = ExitStack()
        for each in self.rules:
            block.callback(each.stop, invocation)
        return block


def _remove(invocation: Invocation) -> None:
    try:
        with Links(invocation.netns, invocation.ifname) as pod:
            pod.remove(invocation.ifname)
    except InvalidNetnsError:
        pass
