"""Attributes of an interface that one plugin changes and gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from multus_netlink.link_messages import ALL_MULTICAST, PROMISCUOUS

if TYPE_CHECKING:
    from multus_netlink.links import Link, Links


class Attributes(NamedTuple):
    """What an interface is, or is to be; None: says nothing of it."""

    mtu: int | None = None
    mac: str | None = None
    promisc: bool | None = None
    allmulti: bool | None = None
    tx_queue: int | None = None

    @classmethod
    def of(cls, link: Link) -> Attributes:
        """All attributes of a link."""
        return cls(link.mtu, link.mac, link.is_promiscuous, link.takes_all_multicast, link.tx_queue)

    def said_by(self, other: Attributes) -> Attributes:
        """Of these attributes those that the other says something of."""
        return self._replace(**{key: None for key, value in other._asdict().items() if value is None})

    def over(self, other: Attributes) -> Attributes:
        """These attributes, and where they say nothing the other's."""
        return other._replace(**{key: value for key, value in self._asdict().items() if value is not None})


def give(links: Links, link: Link, attributes: Attributes) -> None:
    """Change a link to what the attributes say.

    Raises:
        IOFailureError: The kernel refuses one; those before it are changed.
    """
    for key, value in attributes._asdict().items():
        if value is not None:
            links.change(link, f"set {key} {value} of", **_fields(key, value))


def _fields(key: str, value: Any) -> dict[str, Any]:
    flag = {"promisc": PROMISCUOUS, "allmulti": ALL_MULTICAST}.get(key)
    if flag is not None:
        return {"flags": flag if value else 0, "change": flag}
    return {{"mac": "address", "tx_queue": "txqlen"}.get(key, key): value}
