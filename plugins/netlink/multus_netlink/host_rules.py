"""Rules of nftables that an attachment has on the host if a key of its configuration says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from multus.errors import IOFailureError
from multus_netlink import ownership
from multus_netlink.configuration import Section
from multus_netlink.nftables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from multus.types.invocation import Invocation
    from multus_netlink.nftables import Rule

    Rules: TypeAlias = Callable[[str], Mapping[int, Sequence[Rule]]]
    """The rules by family, made from what their comments are to begin with."""


class HostRules:
    """What such rules share; nothing is done for a configuration that does not want them.

    A kind of rules has a ``start`` and a ``check`` of its own, with what they are made from.
    """

    key: ClassVar[str]
    """The flag that wants them."""
    keys: ClassVar[frozenset[str]]
    """All that is read of a configuration, the flag included."""
    plugin: ClassVar[str]
    """Whose they are, for ``ownership``."""
    families: ClassVar[tuple[int, ...]]

    def require_served(self, invocation: Invocation) -> None:
        """Raise UnsupportedFieldError if the binary is to make them."""

    def stop(self, invocation: Invocation) -> None:
        """Remove the attachment's, as many as there are."""
        if self._is_wanted(invocation):
            ownership.remove(invocation, self.plugin, self.families)

    def gc(self, invocation: Invocation) -> None:
        """Remove those of the network that belong to no valid attachment."""
        if self._is_wanted(invocation):
            ownership.collect(invocation, self.plugin, self.families)

    def _start(self, invocation: Invocation, rules: Rules) -> None:
        """Make these, and let the attachment have no others of this kind."""
        if self._is_wanted(invocation):
            own = ownership.tag(invocation, self.plugin)
            for family, made in rules(own).items():
                with Table(family, invocation.ifname) as table:
                    table.replace(own, made)

    def _check(self, invocation: Invocation, rules: Rules) -> None:
        """Raise IOFailureError if one of these is gone."""
        if self._is_wanted(invocation):
            own = ownership.tag(invocation, self.plugin)
            for family, made in rules(own).items():
                with Table(family, invocation.ifname) as table:
                    missing = table.lacks(own, made)
                if missing:
                    raise IOFailureError(f"interface {invocation.ifname}: the rule {missing} of nftables is gone")

    def _is_wanted(self, invocation: Invocation) -> bool:
        return Section.of(invocation).flag(self.key)
