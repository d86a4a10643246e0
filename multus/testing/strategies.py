"""Hypothesis strategies for what a CNI plugin and Multus are given: names, addresses, configurations, results, requests.

For plugin authors and for our own tests.  What they draw is valid unless its docstring says otherwise, and documents are
plain JSON values: dicts, lists, strings, exact integers, finite floats, booleans, None.

    @given(strategies.results("1.1.0"))
    def test_my_plugin_keeps_prev_result(result): ...
"""

from __future__ import annotations

import copy
import functools
import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from multus.protocol import addresses, versions
from multus.types.invocation import CNICommand
from multus.types.pod import NetworkStatus
from multus.types.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from hypothesis.strategies import DrawFn, SearchStrategy

    Document: TypeAlias = "dict[str, Any]"

_LOWER = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_IDENTIFIER_EDGE = _LOWER + _LOWER.upper() + _DIGITS
_SHORT_FORM_KEYS = frozenset(("name", "namespace", "interface"))


# --- Names ---


def cni_versions(minimum: str = "0.1.0") -> SearchStrategy[str]:
    """A supported CNI version, ``minimum`` or newer; shrinks to the newest."""
    return st.sampled_from([version for version in reversed(versions.SUPPORTED) if versions.at_least(version, minimum)])


@functools.cache
def interface_names() -> SearchStrategy[str]:
    """A name that Linux and CNI accept for an interface: 1 to 15 bytes, odd ones and non-ASCII letters among them."""
    plain = st.text(_LOWER + _DIGITS, min_size=1, max_size=15)
    odd = st.text(_IDENTIFIER_EDGE + "_.-@+%é", min_size=1, max_size=15)
    return (plain | odd).filter(lambda name: name not in (".", "..") and len(name.encode()) <= 15)


@functools.cache
def dns_labels() -> SearchStrategy[str]:
    """A DNS-1123 label, as namespaces are named: 1 to 63 of ``a-z0-9-``, no ``-`` at either end."""
    edge = st.sampled_from(_LOWER + _DIGITS)
    inner = st.text(_LOWER + _DIGITS + "-", max_size=12) | st.text(_LOWER, min_size=61, max_size=61)
    return edge | st.tuples(edge, inner, edge).map("".join)


@functools.cache
def dns_names() -> SearchStrategy[str]:
    """A DNS-1123 subdomain, as net-attach-defs are named: labels joined by dots, up to 253 characters."""
    return st.lists(dns_labels(), min_size=1, max_size=3).map(".".join)


def container_ids() -> SearchStrategy[str]:
    """A container ID: the 64 hex digits of a runtime, or any other that CNI accepts."""
    return st.text("0123456789abcdef", min_size=64, max_size=64) | _identifiers()


def network_names() -> SearchStrategy[str]:
    """The name of a network configuration; the same grammar as a container ID."""
    return dns_labels() | _identifiers()


def _identifiers() -> SearchStrategy[str]:
    rest = st.text(_IDENTIFIER_EDGE + "_.-", max_size=20)
    return st.tuples(st.sampled_from(_IDENTIFIER_EDGE), rest).map("".join)


# --- Addresses ---


def macs(length: int = 6) -> SearchStrategy[str]:
    """A hardware address of ``length`` bytes (6; 8 for an InfiniBand GUID; 20) in each of the usual notations."""
    notations = [(":", 1), ("-", 1), (".", 2)] if length % 2 == 0 else [(":", 1), ("-", 1)]

    def written(drawn: tuple[bytes, tuple[str, int], bool]) -> str:
        content, (separator, width), upper = drawn
        text = content.hex(separator, width)
        return text.upper() if upper else text

    return st.tuples(st.binary(min_size=length, max_size=length), st.sampled_from(notations), st.booleans()).map(written)


def families() -> SearchStrategy[int]:
    """4 or 6."""
    return st.sampled_from((4, 6))


def ips(family: int | None = None) -> SearchStrategy[str]:
    """An IP address of ``family`` (4, 6; None: either) in its usual spelling, never an IPv4-mapped one."""
    if family is None:
        return families().flatmap(ips)
    if family == 4:
        return st.ip_addresses(v=4).map(str)
    return st.ip_addresses(v=6).map(lambda address: addresses.canonical_ip(str(address)) or "").filter(lambda text: ":" in text)


def cidrs(family: int | None = None) -> SearchStrategy[str]:
    """An IP address with a prefix length, in its usual spelling, host bits kept; often the default destination."""
    if family is None:
        return families().flatmap(cidrs)
    lengths = st.integers(0, 32 if family == 4 else 128).map(str)
    return st.tuples(ips(family), lengths).map("/".join) | st.just("0.0.0.0/0" if family == 4 else "::/0")


# --- JSON ---


@functools.cache
def json_values() -> SearchStrategy[Any]:
    """Any JSON value, with integers far beyond 64 bits."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(2**53, 2**80)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=12)
    )

    def containers(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
        return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)

    return st.recursive(scalars, containers, max_leaves=8)


@functools.cache
def unknown_keys() -> SearchStrategy[Document]:
    """Up to two keys that no specification defines (they begin with ``x-``), with any values."""
    return st.dictionaries(st.text(_LOWER, max_size=4).map("x-".__add__), json_values(), max_size=2)


@functools.cache
def any_text() -> SearchStrategy[str]:
    """Any text that JSON can hold, NUL and halves of characters (lone surrogates) among it."""
    return st.text(st.characters(), max_size=12)


@st.composite
def damaged(draw: DrawFn, documents: SearchStrategy[Any]) -> Any:
    """One of ``documents`` that is mostly not valid: up to three of its values, at any depth, are replaced or taken out."""
    document = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places_in(document))
        if not places:
            return draw(json_values())
        owner, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 3)) == 0:
            del owner[key]
        else:
            owner[key] = draw(json_values() | any_text())
    return document


def _places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """The owner and the key or index of every value inside a JSON value."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, member in inner:
        yield value, key
        yield from _places_in(member)


# --- Results ---


def results(version: str | None = None, *, extra_keys: bool = False) -> SearchStrategy[Result]:
    """A valid result of ``version`` (None: of any), written as the reference library would: nothing empty, usual spellings.

    It may hold no address at all, which a conversion to 0.2.0 or 0.1.0 refuses.

    Args:
        extra_keys: Scatter keys that no specification defines over the objects in it.
    """
    if version is None:
        return cni_versions().flatmap(lambda drawn: results(drawn, extra_keys=extra_keys))
    documents = _documents(version) if versions.at_least(version, "0.3.0") else _old_documents()
    if extra_keys:
        documents = _with_unknown_keys(documents)
    return documents.map(lambda document: Result({"cniVersion": version, **document}))


@functools.cache
def dns_settings() -> SearchStrategy[Document]:
    """The ``dns`` object of a result, perhaps empty."""
    texts = st.lists(dns_labels(), min_size=1, max_size=2)
    return _objects({}, {"nameservers": st.lists(ips(), min_size=1, max_size=2), "domain": dns_names(), "search": texts, "options": texts})


def _objects(required: dict[str, SearchStrategy[Any]], optional: dict[str, SearchStrategy[Any]]) -> SearchStrategy[Document]:
    return st.fixed_dictionaries(required, optional=optional)


@functools.cache
def _old_documents() -> SearchStrategy[Document]:
    def owner(family: int) -> SearchStrategy[Document]:
        routes = st.lists(_routes(family, "0.2.0"), min_size=1, max_size=3)
        return _objects({"ip": cidrs(family)}, {"gateway": ips(family), "routes": routes})

    return _objects({"dns": dns_settings()}, {"ip4": owner(4), "ip6": owner(6)})


@st.composite
def _documents(draw: DrawFn, version: str) -> Document:
    interfaces = draw(st.lists(_interfaces(version), max_size=3))
    members = {
        "interfaces": interfaces,
        "ips": draw(st.lists(_ip_configs(4, version, len(interfaces)) | _ip_configs(6, version, len(interfaces)), max_size=3)),
        "routes": draw(st.lists(_routes(4, version) | _routes(6, version), max_size=3)),
        "dns": draw(dns_settings()),
    }
    always = () if versions.at_least(version, "1.0.0") else ("dns",)
    return {key: value for key, value in members.items() if value or key in always}


@functools.cache
def _interfaces(version: str) -> SearchStrategy[Document]:
    optional: dict[str, SearchStrategy[Any]] = {"mac": macs(), "sandbox": dns_labels().map("/var/run/netns/".__add__)}
    if versions.at_least(version, "1.1.0"):
        optional |= {"mtu": st.integers(1, 65535), "socketPath": dns_labels().map("/run/".__add__), "pciID": st.just("0000:3b:02.1")}
    return _objects({"name": interface_names()}, optional)


@functools.cache
def _ip_configs(family: int, version: str, interfaces: int) -> SearchStrategy[Document]:
    required: dict[str, SearchStrategy[Any]] = {"address": cidrs(family)}
    if not versions.at_least(version, "1.0.0"):
        required["version"] = st.just(str(family))
    optional: dict[str, SearchStrategy[Any]] = {"gateway": ips(family)}
    if interfaces:
        optional["interface"] = st.integers(0, interfaces - 1)
    return _objects(required, optional)


@functools.cache
def _routes(family: int, version: str) -> SearchStrategy[Document]:
    optional: dict[str, SearchStrategy[Any]] = {"gw": ips(family)}
    if versions.at_least(version, "1.1.0"):
        optional |= {key: st.integers(0, 2**31) for key in ("mtu", "advmss", "priority", "table", "scope")}
    return _objects({"dst": cidrs(family)}, optional)


@st.composite
def _with_unknown_keys(draw: DrawFn, documents: SearchStrategy[Document]) -> Document:
    document = draw(documents)
    unknown = draw(unknown_keys())
    for node in list(_objects_in(document)):
        if draw(st.booleans()):
            node.update(unknown)
    return document


def _objects_in(value: object) -> Iterator[Document]:
    """Every object of a JSON value, the value itself first."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects_in(inner)


# --- Configurations ---


@st.composite
def plugin_confs(draw: DrawFn) -> Document:
    """One plugin of a conflist: its type, perhaps capabilities, and keys of its own with exact big integers."""
    capabilities = st.dictionaries(st.sampled_from(("portMappings", "ips", "mac", "bandwidth", "x-own")), st.booleans(), max_size=3)
    known = _objects({"type": dns_labels().filter(lambda name: name not in ("multus", "multus-shim"))}, {"capabilities": capabilities})
    return draw(unknown_keys()) | draw(known)


@st.composite
def single_plugin_confs(draw: DrawFn) -> Document:
    """A network configuration that is one plugin, with ``name`` and ``cniVersion``."""
    return draw(plugin_confs()) | {"name": draw(network_names()), "cniVersion": draw(cni_versions())}


@st.composite
def conflists(draw: DrawFn) -> Document:
    """A network configuration list of one to three plugins, with unknown keys; flags as booleans or as text."""
    flag = st.sampled_from((True, False, "true", "false"))
    known = _objects(
        {"name": network_names(), "cniVersion": cni_versions(), "plugins": st.lists(plugin_confs(), min_size=1, max_size=3)},
        {"cniVersions": st.lists(cni_versions(), max_size=3), "disableCheck": flag, "disableGC": flag},
    )
    return draw(unknown_keys()) | draw(known)


def multus_configs() -> SearchStrategy[Document]:
    """A configuration of Multus with inline delegates or a cluster network by name, any of its other keys, and unknown ones."""
    text = dns_labels()
    path = dns_labels().map("/".__add__)
    counts = dict.fromkeys(("maxAge", "maxSize", "maxBackups"), st.integers(0))
    log_options = _objects({}, {**counts, "compress": st.booleans()})
    optional: dict[str, SearchStrategy[Any]] = {
        **dict.fromkeys(("confDir", "cniDir", "binDir", "kubeconfig", "readinessindicatorfile", "logFile"), path),
        **dict.fromkeys(("namespaceIsolation", "strictCapabilities", "allowDeviceID", "retryDeleteOnError", "logToStderr"), st.booleans()),
        **dict.fromkeys(("systemNamespaces", "defaultNetworks", "plugins"), st.lists(text, max_size=2)),
        "cniVersion": cni_versions(),
        "multusNamespace": text,
        "globalNamespaces": st.lists(text, min_size=1, max_size=2).map(",".join),
        "delegatePreference": st.sampled_from(("binary", "in-process")),
        "invalidAnnotation": st.sampled_from(("fail", "ignore")),
        "podNotFoundResult": st.sampled_from(("error", "empty")),
        "apiDeadline": st.integers(1, 600),
        "maxParallelAttachments": st.integers(1, 64),
        "logLevel": st.sampled_from(("debug", "verbose", "error", "panic")),
        "logOptions": log_options,
        "runtimeConfig": st.dictionaries(text, json_values(), max_size=2),
        "cni.dev/valid-attachments": st.lists(_objects({"containerID": container_ids(), "ifname": interface_names()}, {}), max_size=2),
    }
    delegates = st.lists(single_plugin_confs() | conflists(), min_size=1, max_size=2)
    known = _objects({"name": network_names(), "delegates": delegates}, optional) | _objects(
        {"name": network_names(), "clusterNetwork": text}, optional
    )
    return st.tuples(unknown_keys(), known).map(lambda parts: parts[0] | parts[1])


# --- Requests of a pod ---


def selection_elements() -> SearchStrategy[Document]:
    """A network selection element in JSON form, as one object of the networks annotation; unknown keys among them."""
    rates = st.integers(1, 2**40)
    bandwidth = _objects({"ingressRate": rates}, {"ingressBurst": rates}) | _objects({"egressRate": rates}, {"egressBurst": rates})
    port = st.integers(1, 65535)
    mapping = _objects({"hostPort": port, "containerPort": port}, {"protocol": st.sampled_from(("tcp", "UDP", "sctp")), "hostIP": ips()})
    full = _objects(
        {"name": dns_names()},
        {
            "namespace": dns_labels(),
            "interface": interface_names(),
            "ips": st.lists(ips() | cidrs(), min_size=1, max_size=3),
            "mac": macs(),
            "infiniband-guid": macs(8),
            "portMappings": st.lists(mapping, min_size=1, max_size=2),
            "bandwidth": bandwidth,
            "default-route": st.lists(ips(), max_size=2),
            "cni-args": st.dictionaries(st.text(max_size=8), json_values(), max_size=2),
        },
    )
    with_unknown_keys = st.tuples(unknown_keys(), full).map(lambda parts: parts[0] | parts[1])
    return short_selection_elements() | with_unknown_keys


def short_selection_elements() -> SearchStrategy[Document]:
    """A network selection element, as an object, that the short form can express: see ``short_form``."""
    # A comma or an "@" would end the interface name; JSON's marks would make the reader take the other form.
    ifname = interface_names().filter(lambda name: "@" not in name and "," not in name)
    return _objects({"name": dns_names()}, {"namespace": dns_labels(), "interface": ifname})


def short_form(element: Document) -> str | None:
    """``[namespace/]name[@interface]`` for a selection element; None when it holds what this form cannot express."""
    ifname = element.get("interface", "")
    if not _SHORT_FORM_KEYS.issuperset(element) or any(mark in ifname for mark in '@,[{"'):
        return None
    namespace = f"{element['namespace']}/" if "namespace" in element else ""
    return f"{namespace}{element['name']}" + (f"@{ifname}" if ifname else "")


@st.composite
def network_annotations(draw: DrawFn) -> tuple[str, Sequence[Document]]:
    """The text of a networks annotation with the elements it asks for, in JSON form, or in short form if that can say it.

    Interface names are unique, and at most one element carries ``default-route``, as the standard demands.
    """
    drawn = draw(st.lists(selection_elements(), max_size=4) | st.lists(short_selection_elements(), min_size=1, max_size=4))
    elements: list[Document] = []
    once: set[str] = set()
    for element in drawn:
        kept = {key: value for key, value in element.items() if _claim(key, value) not in once}
        once.update(claim for key, value in kept.items() if (claim := _claim(key, value)))
        elements.append(kept)
    texts = [text for element in elements if (text := short_form(element)) is not None]
    if elements and len(texts) == len(elements) and draw(st.booleans()):
        return draw(st.sampled_from((",", ", ", " ,"))).join(texts), elements
    return json.dumps(elements), elements


def _claim(key: str, value: object) -> str:
    """What an element takes for itself alone by this key; empty: nothing."""
    return {"interface": f"interface {value}", "default-route": "default-route"}.get(key, "")


@st.composite
def generic_args(draw: DrawFn) -> str:
    """A ``CNI_ARGS`` text that Multus accepts: the pod's keys as the kubelet sends them, perhaps further ones, in any order."""
    pod = {
        "K8S_POD_NAMESPACE": draw(dns_labels()),
        "K8S_POD_NAME": draw(dns_names()),
        "K8S_POD_UID": str(draw(st.uuids())),
        "K8S_POD_INFRA_CONTAINER_ID": draw(container_ids()),
    }
    keys = st.text(_LOWER.upper(), min_size=1, max_size=6).filter(lambda key: key not in ("IP", "MAC"))
    further = draw(st.dictionaries(keys, st.text(_IDENTIFIER_EDGE + "=.:-", max_size=8), max_size=2))
    pairs = [("IgnoreUnknown", draw(st.sampled_from(("1", "true", "True")))), *pod.items(), *further.items()]
    return ";".join(f"{key}={value}" for key, value in draw(st.permutations(pairs)))


# --- Calls and reports ---


def environments(commands: Sequence[CNICommand] = tuple(CNICommand)) -> SearchStrategy[dict[str, str]]:
    """The environment of a call of one of ``commands``, as a runtime sets it, other variables among it."""
    attachment = {
        "CNI_CONTAINERID": container_ids(),
        "CNI_NETNS": dns_labels().map("/var/run/netns/".__add__),
        "CNI_IFNAME": interface_names(),
        "CNI_ARGS": generic_args(),
    }
    path = st.lists(dns_labels().map("/".__add__), min_size=1, max_size=2).map(":".join)
    for_container = _objects({"CNI_PATH": path, **attachment}, {"HOME": st.just("/root")})
    for_node = _objects({"CNI_PATH": path}, {"HOME": st.just("/root")})
    bare = (CNICommand.GC, CNICommand.STATUS, CNICommand.VERSION)
    return st.sampled_from(commands).flatmap(
        lambda command: (for_node if command in bare else for_container).map(lambda variables: {"CNI_COMMAND": str(command), **variables})
    )


def network_statuses() -> SearchStrategy[NetworkStatus]:
    """An entry of the network-status annotation."""
    several_ips = st.lists(ips(), max_size=2).map(tuple)
    return st.builds(
        NetworkStatus,
        name=dns_names(),
        interface=st.just("") | interface_names(),
        ips=several_ips,
        mac=st.just("") | macs(),
        mtu=st.none() | st.integers(1, 65535),
        default=st.booleans(),
        dns=dns_settings(),
        device_info=st.none() | st.just({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:02.1"}}),
        gateway=several_ips,
        default_route=st.none() | several_ips,
    )
