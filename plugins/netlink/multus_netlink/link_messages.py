"""A link's fields and how the kernel spells them: those that all links have, and those of each kind.

Fields are called as pyroute2 calls them; what is not in these tables it can still send.  Numbers: linux/if_link.h.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from multus.rtnetlink import LINK, attribute, parsed, plain, text, u8, u16, u32, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multus.rtnetlink import Message

UP = 1
PROMISCUOUS = 0x100
ALL_MULTICAST = 0x200
_ADDRESS, _NAME, _MTU, _LINK, _MASTER, _OPERSTATE, _LINK_INFO, _ALIAS, _EXT_MASK, _PROMISCUITY = 1, 3, 4, 5, 10, 16, 18, 20, 29, 30
_TX_QUEUE = 13
_INFO_KIND, _INFO_DATA, _INFO_PORT_KIND, _INFO_PORT_DATA = 1, 2, 4, 5
_VETH_PEER = 1
_OPERATIONAL = 6
WITHOUT_STATISTICS = attribute(_EXT_MASK, u32(8))


class Link(NamedTuple):
    """A network interface as the kernel tells it; ``peer`` is a veth's other end, ``master`` the bridge it is a port of."""

    ifindex: int
    name: str
    kind: str
    mac: str
    mtu: int
    is_up: bool
    is_promiscuous: bool
    is_operational: bool
    master: int
    peer: int
    details: Mapping[str, Any] = {}
    """What only its kind has, by the name of the field."""
    alias: str = ""
    tx_queue: int = 0
    takes_all_multicast: bool = False

    @property
    def mode(self) -> str:
        """A macvlan's or an ipvlan's."""
        return str(self.details.get(f"{self.kind}_mode", ""))


class _Field(NamedTuple):
    """A field: its attribute's number, how its value is written and read."""

    number: int
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any] = whole


def _names(pack: Callable[[int], bytes], **values: int) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """A number with names; a value without a name stays a number."""
    texts = {value: name for name, value in values.items()}
    return (lambda value: pack(values.get(value, value))), (lambda payload: texts.get(whole(payload), whole(payload)))


def _mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", ""))


_COMMON = {
    "address": _Field(_ADDRESS, _mac),
    "ifname": _Field(_NAME, text),
    "mtu": _Field(_MTU, u32),
    "link": _Field(_LINK, u32),
    "master": _Field(_MASTER, u32),
    "txqlen": _Field(_TX_QUEUE, u32),
    "net_ns_pid": _Field(19, u32),
    "ifalias": _Field(_ALIAS, text),
    "group": _Field(27, u32),
    "net_ns_fd": _Field(28, u32),
}
_MACVLAN_MODES = _names(u32, private=1, vepa=2, bridge=4, passthru=8, source=16)
_IPVLAN_MODES = _names(u16, l2=0, l3=1, l3s=2)
_KINDS = {
    "bridge": {
        "br_ageing_time": _Field(4, u32),
        "br_stp_state": _Field(5, u32),
        "br_vlan_filtering": _Field(7, u8),
        "br_vlan_default_pvid": _Field(39, u16),
    },
    "dummy": {},
    "ifb": {},
    "ipvlan": {"ipvlan_mode": _Field(1, *_IPVLAN_MODES), "ipvlan_flags": _Field(2, u16)},
    "macvlan": {"macvlan_mode": _Field(1, *_MACVLAN_MODES), "macvlan_flags": _Field(2, u16), "macvlan_bc_queue_len": _Field(7, u32)},
    "macvtap": {"macvtap_mode": _Field(1, *_MACVLAN_MODES), "macvtap_flags": _Field(2, u16)},
    "veth": {},
    "vlan": {"vlan_id": _Field(1, u16), "vlan_protocol": _Field(5, struct.Struct(">H").pack, lambda raw: int.from_bytes(raw, "big"))},
    "vrf": {"vrf_table": _Field(1, u32)},
}  # fmt: skip
_PORTS = {
    "bridge_slave": {"mode": _Field(4, u8), "guard": _Field(5, u8), "learning": _Field(8, u8), "isolated": _Field(33, u8)},
    "vrf_slave": {},
}  # fmt: skip


def is_known(kind: str, fields: Mapping[str, Any]) -> bool:
    """Whether ``packed`` can write these fields of a link of a kind; of any kind without one."""
    if isinstance(fields.get("peer"), dict):
        return kind == "veth" and is_known("", fields["peer"]) and is_known(kind, {**fields, "peer": None})
    known = {**_COMMON, **_KINDS.get(kind, {}), **_PORTS.get(kind, {}), "index": None, "flags": None, "change": None, "peer": None}
    return (not kind or kind in _KINDS or kind in _PORTS) and fields.keys() <= known.keys()


def packed(kind: str, fields: Mapping[str, Any]) -> bytes:
    """The attributes of a request."""
    found = [attribute(_COMMON[key].number, _COMMON[key].pack(value)) for key, value in fields.items() if key in _COMMON]
    if kind:
        found.append(attribute(_LINK_INFO, _info(kind, fields)))
    return b"".join(found)


def link_of(message: Message) -> Link:
    """The link that an answer tells."""
    attributes = message.attributes
    info = parsed(attributes.get(_LINK_INFO, b""))
    kind = plain(info.get(_INFO_KIND, b""))
    data = parsed(info.get(_INFO_DATA, b"")) if kind in _KINDS else {}
    return Link(
        message.fields[2],
        plain(attributes[_NAME]),
        kind,
        attributes.get(_ADDRESS, b"").hex(":"),
        whole(attributes.get(_MTU, b"")),
        bool(message.fields[3] & UP),
        bool(whole(attributes.get(_PROMISCUITY, b""))),
        whole(attributes.get(_OPERSTATE, b"")) == _OPERATIONAL,
        whole(attributes.get(_MASTER, b"")),
        whole(attributes.get(_LINK, b"")),
        {name: field.unpack(data[field.number]) for name, field in _KINDS.get(kind, {}).items() if field.number in data},
        plain(attributes.get(_ALIAS, b"")),
        whole(attributes.get(_TX_QUEUE, b"")),
        bool(message.fields[3] & ALL_MULTICAST),
    )


def _info(kind: str, fields: Mapping[str, Any]) -> bytes:
    numbers = (_INFO_PORT_KIND, _INFO_PORT_DATA) if kind in _PORTS else (_INFO_KIND, _INFO_DATA)
    own = _PORTS[kind] if kind in _PORTS else _KINDS[kind]
    data = b"".join(attribute(own[key].number, own[key].pack(value)) for key, value in fields.items() if key in own)
    if "peer" in fields:
        data += attribute(_VETH_PEER, LINK.pack(0, 0, 0, 0, 0) + packed("", fields["peer"]))
    return attribute(numbers[0], text(kind.removesuffix("_slave"))) + (attribute(numbers[1], data) if data else b"")
