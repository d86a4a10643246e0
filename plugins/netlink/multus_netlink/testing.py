"""Hypothesis strategies for configurations of the reference plugins, as their documentation defines them.

For whoever writes or wraps one of these networks; needs hypothesis, which the extra ``testing`` brings.  Addresses are few
and close together, so that ranges overlap, requests meet ranges and routes meet gateways often.  One document in eight holds
a value that a plugin must refuse, and combinations that it must refuse are drawn besides.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from hypothesis.strategies import DrawFn, SearchStrategy

    Document: TypeAlias = "dict[str, Any]"
    Strategies: TypeAlias = "Mapping[str, SearchStrategy[Any]]"

VERSIONS = ("1.0.0", "0.4.0", "0.3.1", "0.3.0", "0.2.0", "0.1.0")
"""The CNI versions that release 1.1 of the reference plugins knows."""
_GATEWAYS = ("10.1.0.1", "10.2.0.1", "fd00:1::1")
_NOT_TEXT: SearchStrategy[Any] = st.sampled_from((7, True, ["x"], {"x": "y"}))
_NOT_WHOLE: SearchStrategy[Any] = st.sampled_from(("1400", 1400.5, True, [1400]))
_NOT_A_FLAG: SearchStrategy[Any] = st.sampled_from(("true", 1, ["true"]))
_NOT_AN_OBJECT: SearchStrategy[Any] = st.sampled_from(("x", 7, ["x"]))
_NOT_A_LIST: SearchStrategy[Any] = st.sampled_from(("x", 7, {"x": "y"}))
_NOT_A_MAC = st.sampled_from(("0a:58:00:00:00", "0a:58:00:00:00:zz", "x"))
_NOT_AN_IP = st.sampled_from(("10.1.0", "10.1.0.256", "fd00::g", "10.1.0.01", "x", " 10.1.0.9"))
_NOT_A_CIDR = st.sampled_from(("10.1.0.5", "10.1.0.5/33", "fd00::5/129", "10.1.0.5/-1", "10.1.0.5/x", "/24", "x"))


def bridge_confs(bridges: Sequence[str] = ("br7", "cni0", ""), no_bridges: Sequence[str] = ()) -> SearchStrategy[Document]:
    """``bridge`` with any ``ipam`` of this module or none.

    Args:
        bridges: Names of bridges; such that there is none of that name yet among them.
        no_bridges: Names of links that are no bridges.
    """
    flag = st.booleans()
    optional = {
        "bridge": st.sampled_from(bridges),
        **dict.fromkeys(("isGateway", "isDefaultGateway", "forceAddress", "hairpinMode", "promiscMode"), flag),
        **dict.fromkeys(("ipMasq", "enabledad"), st.just(False)),
        "mtu": _mtus(),
        "vlan": st.just(0),
    }
    wrong = {
        "bridge": st.sampled_from((*no_bridges, "a-name-of-16-byt", "a/b", " ")),
        "mtu": _NOT_WHOLE | st.just(10**20),  # -1 the binary takes for none
        **dict.fromkeys(("isGateway", "hairpinMode", "forceAddress"), _NOT_A_FLAG),
    }
    return _networks("bridge", ipams() | ipams() | st.just({}), optional, wrong, mac_argument=True)


def macvlan_confs(masters: Sequence[str]) -> SearchStrategy[Document]:
    """``macvlan`` on one of ``masters`` or the default route's link, with any ``ipam`` of this module or none."""
    optional = {
        "master": st.sampled_from((*masters, "")),
        "mode": st.sampled_from(("bridge", "private", "vepa", "passthru", "")),
        "mtu": _mtus(),
        "mac": asked_macs(),
    }
    wrong = {
        "master": st.just("nowhere") | _NOT_TEXT,
        "mode": st.sampled_from(("odd", "source", "Bridge")) | _NOT_TEXT,
        "mtu": _NOT_WHOLE | st.sampled_from((-1, 9000, 10**20)),
        "mac": _NOT_A_MAC | _NOT_TEXT,
    }
    return _networks("macvlan", ipams() | ipams() | st.just({}), optional, wrong)


def ptp_confs() -> SearchStrategy[Document]:
    """``ptp`` with any ``ipam`` of this module, or without one, which it must refuse."""
    wrong = {"mtu": _NOT_WHOLE | st.just(10**20), "ipam": st.just({}), "dns": _NOT_AN_OBJECT}
    return _networks("ptp", ipams(), {"mtu": _mtus(), "ipMasq": st.just(False)}, wrong)


def host_device_confs(device: str, mac: str) -> SearchStrategy[Document]:
    """``host-device`` for a link of the host, by its name or its MAC, with any ``ipam`` of this module or none."""
    optional = {
        "device": st.sampled_from((device, device, "")),
        "hwaddr": st.sampled_from((mac, mac.upper(), mac.replace(":", "-"), _dotted(mac), "")),
    }
    wrong = {"device": st.just("nowhere") | _NOT_TEXT, "hwaddr": st.just("0a:58:00:00:01:77") | _NOT_A_MAC | _NOT_TEXT}
    return _networks("host-device", ipams() | ipams() | st.just({}), optional, wrong)


def loopback_confs() -> SearchStrategy[Document]:
    """``loopback``, with or without a previous result."""

    def with_previous(document: Document) -> Document:
        previous = document.get("prevResult")
        return document if previous is None else {**document, "prevResult": {"cniVersion": document["cniVersion"], **previous}}

    optional = {"prevResult": st.sampled_from(({}, {"interfaces": [{"name": "eth0"}]}, {"dns": {"domain": "a.org"}})), "dns": dns()}
    required = {"cniVersion": versions(), "name": names(), "type": st.just("loopback")}
    return _documents(required, optional, {"dns": _NOT_AN_OBJECT}).map(with_previous)


def ipam_confs(ipam: SearchStrategy[Document]) -> SearchStrategy[Document]:
    """A configuration for calling an IPAM plugin itself, without its ``type``, which a network's would be."""
    required = {"cniVersion": versions("0.1.0"), "name": names(), "ipam": ipam}
    return _documents(required, _asked(mac_argument=False), {"args": _NOT_AN_OBJECT, "runtimeConfig": _NOT_AN_OBJECT})


def ipams() -> SearchStrategy[Document]:
    """An ``ipam`` of ``host-local`` or ``static``."""
    return host_local_ipams() | static_ipams()


def host_local_ipams(data_dir: str = "@DATA@", resolv_conf: str = "") -> SearchStrategy[Document]:
    """An ``ipam`` of ``host-local``: range sets, or the single range of old.

    Args:
        resolv_conf: The path of a file of name servers; empty: no configuration names one.
    """
    optional = {"routes": routes(), **({"resolvConf": st.just(resolv_conf)} if resolv_conf else {})}
    own = {"type": st.just("host-local"), "dataDir": st.just(data_dir)}
    wrong = {"ranges": _NOT_A_LIST | st.sampled_from(([], [[]], [{}])), "routes": _NOT_A_LIST | _wrong_routes()}
    sets = _documents({**own, "ranges": range_sets()}, optional, wrong)
    single = st.tuples(_documents(own, optional, {"dataDir": _NOT_TEXT, **wrong}), ranges()).map(lambda each: each[0] | each[1])
    return sets | sets | single


def static_ipams() -> SearchStrategy[Document]:
    """An ``ipam`` of ``static``."""
    required = {"type": st.just("static"), "addresses": st.lists(_static_addresses(), min_size=1, max_size=3, unique_by=_address_of)}
    wrong = {
        "addresses": _NOT_A_LIST | st.sampled_from(([], None)) | _NOT_A_CIDR.map(lambda text: [{"address": text}]),
        "routes": _NOT_A_LIST | _wrong_routes(),
        "dns": _NOT_AN_OBJECT | st.just({"nameservers": "10.1.0.53"}),
    }
    return _documents(required, {"routes": routes(), "dns": dns()}, wrong)


def range_sets() -> SearchStrategy[list[list[Document]]]:
    """One to three lists of one to three ranges; mostly of one family each and apart from each other."""
    by_family = st.sampled_from((4, 4, 6)).flatmap(lambda family: st.lists(ranges(family), min_size=1, max_size=2))
    mixed = st.lists(ranges(), min_size=2, max_size=3)
    return st.lists(by_family | by_family | by_family | mixed, min_size=1, max_size=2, unique_by=_first_subnet)


@st.composite
def ranges(draw: DrawFn, family: int = 0) -> Document:
    """A range of ``host-local``; of either family for 0."""
    family = family or draw(st.sampled_from((4, 4, 6)))
    number = draw(st.integers(1, 4))
    length = draw(st.sampled_from((24, 16, 28, 30) if family == 4 else (64, 120, 126)))
    network = ip_network(f"10.{number}.0.0/{length}" if family == 4 else f"fd00:{number}::/{length}")
    size = min(network.num_addresses, 40)
    document = {"subnet": str(network)}
    offsets = {"rangeStart": (1, size // 2), "rangeEnd": (size // 2, size - 2), "gateway": (0, size - 1)}
    for key, (first, last) in offsets.items():
        if draw(st.integers(0, 3)) == 3:
            document[key] = str(network[draw(st.integers(first, last))])
    if draw(st.integers(0, 15)) == 15:
        host_bits = f"{network[1]}/{length}"
        key, value = draw(
            st.sampled_from(
                (
                    ("subnet", host_bits), ("subnet", f"{network[0]}/{network.max_prefixlen}"), ("subnet", "10.1.0.0"),
                    ("subnet", f"10.1.0.0/{33}"), ("rangeStart", "10.9.0.1"), ("rangeEnd", "10.9.0.1"), ("rangeStart", "fd00:9::1"),
                    ("rangeEnd", str(network[0])), ("rangeStart", "x"), ("gateway", "x"), ("gateway", "10.9.0.1"),
                )
            )
        )  # fmt: skip
        document[key] = value
    return document


def routes() -> SearchStrategy[list[Document]]:
    """Up to three routes; some by a gateway that an interface may not reach."""
    destinations = ("198.51.100.0/24", "203.0.113.0/24", "0.0.0.0/0", "2001:db8:5::/48", "::/0", "198.51.100.7/32", "10.2.0.0/16")
    gateways = {4: ("", "", "", "10.1.0.1", "10.1.0.1", "10.2.0.1", "192.168.77.1"), 6: ("", "", "", "fd00:1::1", "fd00:1::1", "fd00:9::1")}

    def routed(dst: str) -> SearchStrategy[Document]:
        by = gateways[6 if ":" in dst else 4]
        return st.sampled_from(by).map(lambda gateway: {"dst": dst, "gw": gateway} if gateway else {"dst": dst})

    return st.lists(st.sampled_from(destinations).flatmap(routed), max_size=3, unique_by=lambda each: str(each["dst"]))


def dns() -> SearchStrategy[Document]:
    """Name servers and what belongs to them; empty values among them."""
    return st.fixed_dictionaries(
        {},
        optional={
            "nameservers": st.sampled_from((["10.1.0.53"], ["10.1.0.53", "fd00:1::53"], [])),
            "domain": st.sampled_from(("example.org", "")),
            "search": st.sampled_from((["a.org", "b.org"], [])),
            "options": st.just(["ndots:2"]),
        },
    )


def asked_macs() -> SearchStrategy[str]:
    """A MAC that a configuration or a pod asks for; it begins with 0a:58:00:00:00, or 0A-58-00-00-00."""
    last = st.integers(1, 255)
    return last.map("0a:58:00:00:00:{:02x}".format) | last.map("0A-58-00-00-00-{:02X}".format)


def versions(minimum: str = "0.3.0") -> SearchStrategy[str]:
    """A CNI version, mostly one of the newest three."""
    return st.sampled_from((*VERSIONS[:3] * 3, *(each for each in VERSIONS[3:] if each >= minimum)))


def names() -> SearchStrategy[str]:
    """The name of a network."""
    return st.sampled_from(("net", "net", "a_b.c-1"))


def generic_args() -> SearchStrategy[str]:
    """A ``CNI_ARGS`` text: often empty, else with addresses, a MAC, a pod's keys; some that a plugin must refuse."""
    addresses = st.sampled_from(("10.1.0.21", "10.1.0.21/24", "10.1.0.1", "fd00:1::15/64", "10.1.0.21/24,fd00:1::15/64", "10.9.9.9"))
    pairs = {
        "IP": addresses | addresses | _NOT_AN_IP,
        "GATEWAY": st.sampled_from((*_GATEWAYS, "10.1.0.1,fd00:1::1", "x")),
        "MAC": asked_macs() | asked_macs() | _NOT_A_MAC,
        "K8S_POD_NAME": st.just("web"),
    }
    ignoring = st.sampled_from(("IgnoreUnknown=1;", "IgnoreUnknown=true;", "IgnoreUnknown=1;", ""))
    drawn = st.fixed_dictionaries({}, optional=pairs).map(lambda each: ";".join(f"{key}={value}" for key, value in each.items()))
    asked = st.tuples(ignoring, drawn).map(lambda each: f"{each[0]}{each[1]}".removesuffix(";"))
    return st.just("") | st.just("") | asked | st.sampled_from(("IP", "IgnoreUnknown=1;x"))


def requested_ips() -> SearchStrategy[list[str]]:
    """Addresses that a pod asks for, with and without prefix lengths; mostly none."""
    address = st.sampled_from(("10.1.0.21", "10.1.0.20/24", "10.2.0.5/24", "fd00:1::15/64", "10.1.0.1", "10.9.9.9/24", "10.1.0.20"))
    wrong = _NOT_AN_IP.map(lambda text: [text])
    some = st.lists(address, min_size=1, max_size=2)
    return st.just([]) | st.just([]) | st.just([]) | some | some | (some | wrong)


def _networks(
    kind: str, ipam: SearchStrategy[Document], optional: Strategies, wrong: Strategies, *, mac_argument: bool = False
) -> SearchStrategy[Document]:
    required = {"cniVersion": versions(), "name": names(), "type": st.just(kind), "ipam": ipam}
    return _documents(required, {**optional, "dns": dns(), **_asked(mac_argument=mac_argument)}, wrong)


def _asked(*, mac_argument: bool) -> Strategies:
    """What a pod asks for, by capabilities and by conventions."""
    cni = {"ips": requested_ips(), **({"mac": asked_macs()} if mac_argument else {})}
    runtime = {"mac": asked_macs(), "ips": requested_ips(), "ipRanges": st.just([]) | range_sets()}
    return {
        "runtimeConfig": st.fixed_dictionaries({}, optional=runtime),
        "args": st.fixed_dictionaries({}, optional={"cni": st.fixed_dictionaries({}, optional=cni)}),
    }


@st.composite
def _documents(draw: DrawFn, required: Strategies, optional: Strategies, wrong: Strategies) -> Document:
    """An object of these keys; in one of eight, one key has a ``wrong`` value."""
    document: Document = draw(st.fixed_dictionaries(dict(required), optional=dict(optional)))
    if draw(st.integers(0, 7)) == 7:
        key = draw(st.sampled_from(sorted(wrong)))
        document[key] = draw(wrong[key])
    return document


def _mtus() -> SearchStrategy[int]:
    return st.sampled_from((0, 1500, 1400, 1280))


def _static_addresses() -> SearchStrategy[Document]:
    return st.sampled_from(
        (
            {"address": "10.1.0.5/24", "gateway": "10.1.0.1"},
            {"address": "10.1.0.6/24"},
            {"address": "10.2.0.7/32", "gateway": "10.2.0.1"},
            {"address": "FD00:1::0005/64", "gateway": "fd00:1::1"},
            {"address": "fd00:2::5/64"},
            {"address": "10.1.0.8/16", "gateway": "10.1.0.254"},
        )
    )


def _wrong_routes() -> SearchStrategy[list[Document]]:
    # A route without ``dst`` is not among them: release 1.1 takes it, and prints ``<nil>``.
    return _NOT_A_CIDR.map(lambda text: [{"dst": text}]) | _NOT_AN_IP.map(lambda text: [{"dst": "198.51.100.0/24", "gw": text}])


def _address_of(entry: Document) -> str:
    return str(entry["address"])


def _dotted(mac: str) -> str:
    """The spelling with four digits between dots."""
    digits = mac.replace(":", "")
    return ".".join(digits[start:start + 4] for start in range(0, len(digits), 4))


def _first_subnet(ours: list[Document]) -> str:
    return str(ours[0]["subnet"]).partition("/")[0]
