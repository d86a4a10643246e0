"""What the kernel holds of a node and a pod, in one look: links, addresses, routes, rules, settings.

iproute2 tells it, whose code is not the networks' own; one process for each namespace answers all.  A look is lines of text,
one for each fact.  What differs between two namespaces and means nothing is replaced (indices, generated names and MACs) or
left out (clocks, counters, carriers), so that the looks of two sides compare.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from multus.testing.pods import Namespace

ASKED_MAC = "0a:58:00:00:00"
"""MACs that begin so are named by a configuration, and stay as they are; others are generated."""
GENERATED_NAME = re.compile(r"\bveth[0-9a-f]{8}\b")
_QUESTIONS = ("address show", "route show table all", "rule show")
_TIMEOUT_S = 60

_LINK_LEFT_OUT = frozenset(
    ("ifindex", "ifname", "operstate", "link", "link_index", "link_netnsid", "flags", "addr_info", "gso_max_size", "gso_max_segs",
     "tso_max_size", "tso_max_segs", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size")
)  # fmt: skip
_INNER_LEFT_OUT = re.compile(r"_timer$|^(bridge|root|designated|port|topology|config)_|^(id|no|state|ifindex|index|port)$")
"""A bridge's and a port's clocks, and the parts of a spanning tree, which are made of MACs and time."""
_LATE_FLAGS = frozenset(("NO-CARRIER", "LOWER_UP", "M-DOWN", "linkdown", "dead"))
"""What the kernel tells with up to a second's delay."""
_NODE_SETTINGS = (
    "ipv4/ip_forward", "ipv4/conf/all/route_localnet", "ipv4/conf/all/arp_notify",
    "ipv6/conf/all/forwarding", "ipv6/conf/all/disable_ipv6", "ipv6/conf/default/accept_ra",
)  # fmt: skip
_LINK_SETTINGS = {
    "ipv4": ("arp_notify", "forwarding", "proxy_arp", "route_localnet", "rp_filter"),
    "ipv6": ("accept_dad", "accept_ra", "addr_gen_mode", "autoconf", "disable_ipv6", "enhanced_dad", "forwarding", "keep_addr_on_down",
             "ndisc_notify"),
}  # fmt: skip


def look(node: Namespace, pod: Namespace) -> list[str]:
    """The facts of both namespaces, in order; each line begins with the name of its namespace."""
    namespaces = {"node": node, "pod": pod}
    running = {name: _ask(namespace) for name, namespace in namespaces.items()}
    answers = {name: _answers(each) for name, each in running.items()}
    names = {name: {link["ifindex"]: link["ifname"] for link in links} for name, (links, *_) in answers.items()}
    lines: list[str] = []
    for (name, answer), other in zip(answers.items(), reversed(names.values()), strict=True):
        settings = _settings(namespaces[name], names[name].values())
        lines += (f"{name} {line}" for line in (*_lines(answer, other), *settings))
    macs = {f"{name} {link['ifname']}": link["address"] for name, (links, *_) in answers.items() for link in links}
    return _without_generated(lines, macs)


def _ask(namespace: Namespace) -> subprocess.Popen[bytes]:
    with namespace.entered():
        return subprocess.Popen(["ip", "-details", "-json", "-batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _answers(running: subprocess.Popen[bytes]) -> tuple[list[dict[str, Any]], ...]:
    with running:
        told, _ = running.communicate("\n".join(_QUESTIONS).encode(), timeout=_TIMEOUT_S)
    answers = tuple(json.loads(line) for line in told.splitlines() if line.strip())
    assert (running.returncode, len(answers)) == (0, len(_QUESTIONS)), told
    return answers


def _lines(answer: tuple[list[dict[str, Any]], ...], other: Mapping[int, str]) -> Iterator[str]:
    links, routes, rules = answer
    for link in links:
        yield from (f"link {link['ifname']} {fact}" for fact in _link(link, other))
        yield from (f"address {link['ifname']} {_one_line(each)}" for each in link["addr_info"])
    yield from (f"route {_one_line(each)}" for each in routes)
    yield from (f"rule {_one_line(each)}" for each in rules)


def _link(link: dict[str, Any], other: Mapping[int, str]) -> Iterator[str]:
    yield f"flags = {' '.join(sorted(each for each in link['flags'] if each not in _LATE_FLAGS))}"
    if "link_index" in link:
        yield f"link = {other.get(link['link_index'])} of the other namespace"
    elif "link" in link:
        yield f"link = {link['link']}"
    for key, value in link.items():
        if key not in _LINK_LEFT_OUT:
            yield from _facts(key, value)


def _facts(key: str, value: Any) -> Iterator[str]:
    """The facts of a value and of those in it, with their path."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not _INNER_LEFT_OUT.search(name):
                yield from _facts(f"{key}.{name}", each)
    else:
        yield f"{key} = {value}"


def _one_line(facts: dict[str, Any]) -> str:
    kept = dict(facts)
    if "flags" in facts:
        kept["flags"] = [each for each in facts["flags"] if each not in _LATE_FLAGS]
    return " ".join(f"{key} {value}" for key, value in kept.items())


def _settings(namespace: Namespace, names: Iterable[str]) -> list[str]:
    own = [f"{family}/conf/{name}/{each}" for name in names for family, settings in _LINK_SETTINGS.items() for each in settings]
    with namespace.entered():
        return [f"setting {path} = {_content(f'/proc/sys/net/{path}')}" for path in (*_NODE_SETTINGS, *own)]


def _content(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return "(none)"  # the link went meanwhile, or has no IPv6
    try:
        return os.read(fd, 4096).decode().strip()
    finally:
        os.close(fd)


def _without_generated(lines: list[str], macs: Mapping[str, str]) -> list[str]:
    """The lines, sorted, with generated MACs and the addresses made of them called by their first owner."""
    called: dict[str, str] = {}
    for owner, mac in sorted((GENERATED_NAME.sub("veth*", owner), mac) for owner, mac in macs.items()):
        if not mac.startswith((ASKED_MAC, "00:00:00")):
            called.setdefault(mac, f"(MAC of {owner})")
            called.setdefault(_link_local(mac), f"(link-local of {owner})")
    text = GENERATED_NAME.sub("veth*", "\n".join(lines))
    text = re.sub("|".join(map(re.escape, called)), lambda found: called[found[0]], text)
    # A bridge has had other MACs, and keeps the address that it made of the first.
    text = re.sub(r"\bfe80::([0-9a-f]+:)?[0-9a-f]*ff:fe[0-9a-f]{2}:[0-9a-f]+", "(link-local of a former MAC)", text)
    return sorted(text.splitlines())


def _link_local(mac: str) -> str:
    """The IPv6 address that the kernel makes of a MAC (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]))
