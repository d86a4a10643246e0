"""A node and a pod to try one network on, served by our object, or by the binary."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from multus.errors import MultusError, UnsupportedFieldError
from multus.testing.pods import PLUGIN_FOLDER, Namespace, Pod
from multus.types.invocation import CNICommand, Invocation

if TYPE_CHECKING:
    from types import TracebackType

    from multus.hooks.delegates import InProcessDelegate

IPAM: dict[str, Any] = {
    "type": "static",
    "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"address": "fd00::5/64"}],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "198.51.100.0/24", "gw": "10.1.0.9"}, {"dst": "2001:db8::/32"}],
}
"""Two addresses and three routes, for the pod's interface."""


class Site:
    """A node and a pod, both empty but for ``lo``; in the block the calling thread is on the node."""

    def __init__(self, delegate: InProcessDelegate, kind: str, *, is_binary: bool = False) -> None:
        self.delegate = delegate
        self.kind = kind
        self.is_binary = is_binary
        self.node = Namespace()
        self.pod = Pod("web", container_id="c1")

    def __enter__(self) -> Self:
        self.node.__enter__()
        self.pod.__enter__()
        for namespace in (self.node, self.pod):
            take_addresses_at_once(namespace)
        self._entered = self.node.entered()
        self._entered.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._entered.__exit__(None, None, None)
        self.pod.__exit__(None, None, None)
        self.node.__exit__(None, None, None)

    def config(self, **more: Any) -> dict[str, Any]:
        return {"cniVersion": "1.0.0", "name": "net", "type": self.kind, **more}

    def invocation(self, verb: str, config: dict[str, Any], args: str = "", netns: str | None = None) -> Invocation:
        path = self.pod.path if netns is None else netns
        return Invocation(CNICommand(verb), self.kind, config, self.pod.container_id, path, self.pod.ifname, args)

    def call(self, verb: str, config: dict[str, Any], args: str = "", netns: str | None = None) -> Any:
        """The result of ADD as a document, nothing of the others.

        Raises:
            MultusError: Our object failed.
            RuntimeError: The binary did.
        """
        if self.is_binary:
            environment = {**self.pod.environment(verb), "CNI_ARGS": args}
            binary = os.path.join(PLUGIN_FOLDER, self.kind)
            stdin = json.dumps(config)
            done = subprocess.run([binary], env=environment, input=stdin, capture_output=True, text=True, check=False, timeout=60)
            if done.returncode:
                raise RuntimeError(done.stdout)
            return json.loads(done.stdout) if done.stdout else None
        invocation = self.invocation(verb, config, args, netns)
        assert why_declined(self.delegate, invocation) == ""
        if verb == "ADD":
            return dict(self.delegate.add(invocation).document)
        methods = {"DEL": self.delegate.delete, "CHECK": self.delegate.check, "GC": self.delegate.gc, "STATUS": self.delegate.status}
        return methods[verb](invocation)

    def look(self) -> dict[str, Any]:
        """Links, addresses and routes of the pod and the node, without what differs from one namespace to the next."""
        return {name: _look(where) for name, where in (("pod", self.pod), ("node", self.node))}

    def plain(self, document: Any) -> Any:
        """A result with the pod's path replaced and without an empty ``dns``, so that those of two sites compare."""
        plain = json.loads(json.dumps(document).replace(self.pod.path, "NETNS"))
        return {key: value for key, value in plain.items() if value != {}}


def take_addresses_at_once(namespace: Namespace) -> None:
    """Let its links, and those that come, not look for duplicates of their IPv6 addresses: it takes a random second."""
    namespace.run("sh", "-c", "cd /proc/sys/net/ipv6/conf; for each in all default lo; do echo 0 > $each/accept_dad; done")


def why_declined(delegate: InProcessDelegate, invocation: Invocation) -> str:
    """Why a delegate declines a configuration; empty: it serves it."""
    try:
        assert delegate.accepts(invocation)
    except UnsupportedFieldError as exc:
        return exc.msg
    return ""


def try_every_verb(delegate: InProcessDelegate, invocation: Invocation) -> None:
    """Call a delegate, unless it declines the configuration; its errors are ours, or it is broken."""
    if why_declined(delegate, invocation):
        return
    for method in (delegate.add, delegate.check, delegate.delete, delegate.gc, delegate.status):
        with contextlib.suppress(MultusError):
            method(invocation)


@cache
def why_not(kind: str = "", binary: str = "") -> str:
    """Why a test cannot run here; empty: it can.

    Args:
        kind: Of a link that this kernel must be able to make.
        binary: A reference plugin that must be installed.
    """
    if os.geteuid() != 0:
        return "needs root"
    if binary and not os.path.exists(os.path.join(PLUGIN_FOLDER, binary)):
        return f"no {binary} in {PLUGIN_FOLDER}"
    if kind:
        with Namespace() as namespace:
            namespace.run("sh", "-c", "ip link add up0 type veth peer up1")
            if not namespace.run("sh", "-c", f"{_MAKE[kind]} 2> /dev/null && echo made", check=False):
                return f"this kernel has no links of kind {kind}"
    return ""


_MAKE = {
    "dummy": "ip link add one type dummy",
    "ipvlan": "ip link add one link up0 type ipvlan",
    "macvlan": "ip link add one link up0 type macvlan",
    "tap": "ip tuntap add one mode tap",
    "vlan": "ip link add one link up0 type vlan id 5",
    "vrf": "ip link add one type vrf table 10",
}
_SETTLED_WITHIN_S = 5.0
_LEFT_OUT = frozenset(
    ("ifindex", "link_index", "link_netnsid", "valid_life_time", "preferred_life_time", "txqlen", "operstate", "stats64", "qdisc")
)


def _look(namespace: Namespace) -> dict[str, Any]:
    script = "ip -j -d address show; echo; ip -j -4 route show table all; echo; ip -j -6 route show table all"
    deadline = time.monotonic() + _SETTLED_WITHIN_S
    while True:
        links, routes, routes_6 = (json.loads(line) for line in namespace.run("sh", "-c", script).splitlines() if line.strip())
        if not any("tentative" in each for link in links for each in link["addr_info"]) or time.monotonic() > deadline:
            break  # a worker of the kernel ends that state, a moment late
    told = [{**each, "flags": []} for each in (*routes, *routes_6) if not str(each["dst"]).startswith(("fe80", "ff00", "multicast"))]
    return {"links": {each["ifname"]: _plain_link(each) for each in links}, "routes": told}


def _plain_link(link: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in link.items() if key not in _LEFT_OUT}
    plain["flags"] = sorted(set(link["flags"]) - {"NO-CARRIER", "LOWER_UP"})  # the kernel is late with them
    addresses = [{key: value for key, value in each.items() if key not in _LEFT_OUT} for each in link["addr_info"]]
    plain["addr_info"] = [each for each in addresses if each["scope"] != "link"]
    return plain
