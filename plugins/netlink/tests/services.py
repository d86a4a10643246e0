"""Plugins that go behind a network's: a node and a pod with an interface ready, and the result that tells of it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any, Self

from multus_netlink.bandwidth import Bandwidth
from multus_netlink.portmap import Portmap
from multus_netlink.sbr import Sbr
from multus_netlink.tuning import Tuning
from sides import DELEGATES, Side, can_run, invocation_of

if TYPE_CHECKING:
    from multus.testing.pods import Namespace
    from multus.types.invocation import Invocation

DELEGATES |= {"bandwidth": Bandwidth(), "portmap": Portmap(), "sbr": Sbr(), "tuning": Tuning()}
HOST_END = "vethpod0"
ADDRESSES = ("10.1.0.2/24", "fd00:1::2/64")
GATEWAYS = ("10.1.0.1", "fd00:1::1")
__all__ = ["ADDRESSES", "DELEGATES", "GATEWAYS", "HOST_END", "Server", "ServiceSide", "can_run", "reaches"]


class Server:
    """Answers on a port, by TCP and UDP, with the address that it sees the client at."""

    def __init__(self, namespace: Namespace, port: int) -> None:
        with namespace.entered():
            self._tcp = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
            self._udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self._udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._udp.bind(("::", port))
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._serve_tcp, self._serve_udp)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for each in (self._tcp, self._udp):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _serve_tcp(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, peer = self._tcp.accept()
                with connection:
                    connection.sendall(peer[0].encode())

    def _serve_udp(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asked, peer = self._udp.recvfrom(100)
                if not asked:
                    return
                self._udp.sendto(peer[0].encode(), peer)


def reaches(client: Namespace, host: str, port: int, *, source: str = "", wait_s: float = 3.0) -> str:
    """The client's address as the ``Server`` at that place sees it; empty: no answer.

    Args:
        source: The address to ask from; the kernel's choice without.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with client.entered(), socket.socket(family, socket.SOCK_STREAM) as asking:
        asking.settimeout(wait_s)
        try:
            if source:
                asking.bind((source, 0))
            asking.connect((host, port))
            return asking.recv(100).decode().removeprefix("::ffff:")
        except OSError:
            return ""


class ServiceSide(Side):
    """A node and a pod whose ``eth0`` is a veth to the node, with an address of each family."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.attach()
        return self

    def attach(self) -> None:
        """Make the interface, in place of what is there."""
        pair = f"ip link del {HOST_END} 2> /dev/null; ip link add {HOST_END} type veth peer name eth0 netns {self.pod.path}; "
        addresses = (f"ip address add {gateway}{length} dev {HOST_END}; " for gateway, length in zip(GATEWAYS, ("/24", "/64"), strict=True))
        self.node.run("sh", "-c", f"{pair}{''.join(addresses)}ip link set {HOST_END} up")
        addresses = (f"ip address add {each} dev eth0; " for each in ADDRESSES)
        routes = "ip route add default via 10.1.0.1; ip -6 route add default via fd00:1::1"
        self.pod.run("sh", "-ec", f"{''.join(addresses)}ip link set eth0 up; {routes}")

    def result(self, version: str = "1.0.0") -> dict[str, Any]:
        """What a network would have answered."""
        pod = self.pod.links()["eth0"]
        host = self.node.links()[HOST_END]
        return {
            "cniVersion": version,
            "interfaces": [{"name": host.name, "mac": host.mac}, {"name": "eth0", "mac": pod.mac, "sandbox": self.pod.path}],
            "ips": [
                {"interface": 1, "address": address, "gateway": gateway, **({"version": "46"[":" in address]} if version < "1" else {})}
                for address, gateway in zip(ADDRESSES, GATEWAYS, strict=True)
            ],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        }

    def call(self, verb: str, config: dict[str, Any], args: str = "") -> Any:
        """The result without an empty ``dns``, which release 1.1 of the binaries adds to what it hands on; None after an error."""
        result = super().call(verb, config, args)
        return result and {key: value for key, value in result.items() if (key, value) != ("dns", {})}

    def invocation(self, verb: str, config: dict[str, Any], args: str = "") -> Invocation:
        return invocation_of(self.pod, verb, config, args)

    def links_json(self, where: str = "pod") -> dict[str, Any]:
        """The links of the pod or the node as ``ip`` tells them, by name."""
        namespace = self.pod if where == "pod" else self.node
        return {each["ifname"]: each for each in json.loads(namespace.run("ip", "-j", "-d", "link", "show"))}
