"""Real network namespaces: entered and left, searched for links, their default routes read and changed.  Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from multus import netns as entering_module
from multus.adapters import netns as netns_module
from multus.adapters.netns import KernelNetns
from multus.errors import InvalidConfigError, InvalidNetnsError, IOFailureError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes network namespaces")

KERNEL = KernelNetns()
GATEWAYS = {4: ("192.0.2.1", "192.0.2.3"), 6: ("2001:db8:1::1", "2001:db8:1::3")}
OTHER_GATEWAYS = {4: "198.51.100.1", 6: "2001:db8:2::1"}


class Namespace:
    """A namespace with links net1 and net2, which have addresses of both families."""

    def __init__(self) -> None:
        self.name = f"multus-test-{os.getpid()}-{os.urandom(3).hex()}"
        self.path = f"/run/netns/{self.name}"

    def ip(self, command: str) -> str:
        return subprocess.run(["ip", "-n", self.name, *command.split()], check=True, capture_output=True, text=True).stdout

    def defaults(self, family: int) -> list[str]:
        """The default routes as ``ip`` shows them: interface, gateway and metric of each next hop."""
        found = []
        for route in json.loads(self.ip(f"-j -{family} route show default")):
            for hop in route.get("nexthops", [route]):
                gateway = hop.get("gateway") or hop.get("via", {}).get("host", "")
                found.append(f"{hop['dev']} {gateway} {route.get('metric', 0)}")
        return sorted(found)

    def route(self, family: int, text: str) -> None:
        self.ip(f"-{family} route add {text}")


@pytest.fixture
def pod() -> Iterator[Namespace]:
    namespace = Namespace()
    subprocess.run(["ip", "netns", "add", namespace.name], check=True)
    try:
        for command in (
            "link set lo up",
            "link add net1 type veth peer name peer1", "link set peer1 up", "link set net1 up",
            "link add net2 type veth peer name peer2", "link set peer2 up", "link set net2 up",
            "addr add 192.0.2.2/24 dev net1", "addr add 2001:db8:1::2/64 dev net1 nodad",
            "addr add 198.51.100.2/24 dev net2", "addr add 2001:db8:2::2/64 dev net2 nodad",
        ):
            namespace.ip(command)
        yield namespace
    finally:
        subprocess.run(["ip", "netns", "del", namespace.name], check=True)


def here() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def test_the_own_namespace_is_known_by_any_path(pod: Namespace, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self/ns/net")
    assert [KERNEL.is_own(path) for path in ("/proc/self/ns/net", str(tmp_path / "link"), pod.path)] == [True, True, False]


def test_what_cannot_be_opened_is_not_the_own_namespace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [KERNEL.is_own(path) for path in ("", "/nowhere", str(tmp_path / "pipe"), "a\0b")] == [False] * 4


def test_the_thread_is_in_the_namespace_and_back_whatever_happens(pod: Namespace) -> None:
    ours = here()
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    with KERNEL.entered(pod.path):
        assert here() == os.stat(pod.path).st_ino
        with KERNEL.entered(f"/proc/self/fd/{home}"):
            assert here() == ours
        assert here() == os.stat(pod.path).st_ino
    assert here() == ours
    os.close(home)
    with pytest.raises(KeyError), KERNEL.entered(pod.path):
        raise KeyError
    assert here() == ours


def test_no_other_thread_notices(pod: Namespace) -> None:
    inside, seen = threading.Event(), threading.Event()
    places = []

    def visit() -> None:
        with KERNEL.entered(pod.path):
            places.append(here())
            inside.set()
            seen.wait(10)
        places.append(here())

    thread = threading.Thread(target=visit)
    ours = here()
    thread.start()
    assert inside.wait(10)
    assert here() == ours
    seen.set()
    thread.join()
    assert places == [os.stat(pod.path).st_ino, ours]


def test_entering_leaves_no_descriptor_open(pod: Namespace) -> None:
    KERNEL.default_routes(pod.path, "net1", 4)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        KERNEL.has_link(pod.path, "net1")
        KERNEL.default_routes(pod.path, "net1", 4)
        for bad in ("/etc/passwd", "/proc/self/ns/mnt", "/nowhere"):
            with pytest.raises(InvalidNetnsError):
                KERNEL.has_link(bad, "net1")
    assert before.issuperset(os.listdir("/proc/self/fd"))  # what earlier tests had open may close meanwhile


def test_a_process_whose_thread_cannot_come_back_ends(pod: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 2)
        entering = KERNEL.entered(pod.path)
        entering.__enter__()

        def refuse(fd: int) -> None:
            raise PermissionError(1, "Operation not permitted")

        entering_module.setns = refuse
        try:
            entering.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as errors:
        text = errors.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert text == f"multus: cannot leave network namespace {pod.path}: Operation not permitted; the process ends\n"


def test_a_namespace_that_may_not_be_entered_is_an_error(pod: Namespace) -> None:
    child = os.fork()
    if not child:
        try:
            os.setgid(65534)
            os.setuid(65534)
            KERNEL.entered(pod.path).__enter__()
        except IOFailureError as exc:
            os._exit(7 if "cannot enter" in exc.msg and "Operation not permitted" in exc.msg else 8)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/etc/passwd", "is no network namespace but a regular file"),
        ("/etc", "is no network namespace but a folder"),
        ("/dev/null", "is no network namespace but a special file"),
        ("/proc/self/ns/mnt", "is no network namespace but one of another kind"),
        ("/nowhere", "cannot be opened: No such file or directory"),
        ("a\0b", "cannot be opened: embedded null byte"),
    ],
)
def test_what_is_no_network_namespace_is_an_error_that_says_what_it_is(path: str, what: str) -> None:
    for attempt in (
        lambda: KERNEL.entered(path).__enter__(),
        lambda: KERNEL.has_link(path, "net1"),
        lambda: KERNEL.default_routes(path, "net1", 4),
    ):
        with pytest.raises(InvalidNetnsError, match=what) as caught:
            attempt()
        assert repr(path) in caught.value.msg


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidNetnsError, match=r"a pipe"):
        KERNEL.has_link(str(tmp_path / "pipe"), "net1")


def test_links_are_found_by_name_and_alternative_name(pod: Namespace) -> None:
    pod.ip("link property add dev net1 altname other")
    names = ("net1", "other", "net9", "a-name-of-over-15-bytes", "é" * 8)
    assert [KERNEL.has_link(pod.path, name) for name in names] == [True, True, False, False, False]


def test_a_kernel_that_cannot_say_is_an_error(pod: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns_module, "_SIOCGIFINDEX", 0xFFFF)
    with pytest.raises(IOFailureError, match=r"cannot look for interface net1"):
        KERNEL.has_link(pod.path, "net1")


@pytest.mark.parametrize("family", [4, 6])
def test_default_routes_are_told_in_the_order_of_their_metrics(pod: Namespace, family: int) -> None:
    first, second = GATEWAYS[family]
    pod.route(family, f"default via {second} dev net1 metric 300")
    pod.route(family, f"default via {first} dev net1 metric 200")
    pod.route(family, "default dev net1 metric 250")
    pod.route(family, f"default via {OTHER_GATEWAYS[family]} dev net2 metric 100")
    pod.route(family, f"{'0.0.0.0/1' if family == 4 else '::/1'} via {first} dev net1")
    pod.route(family, f"default via {first} dev net1 table 7")
    assert KERNEL.default_routes(pod.path, "net1", family) == (first, "", second)
    assert KERNEL.default_routes(pod.path, "net2", family) == (OTHER_GATEWAYS[family],)
    assert KERNEL.default_routes(pod.path, "net1", 10 - family) == ()


@pytest.mark.parametrize("family", [4, 6])
def test_all_default_routes_of_the_family_by_the_interface_are_removed_and_no_others(pod: Namespace, family: int) -> None:
    for each in (4, 6):
        first, second = GATEWAYS[each]
        pod.route(each, f"default via {first} dev net1")
        pod.route(each, f"default via {second} dev net1 metric 300 proto 77")
        pod.route(each, "default dev net1 metric 250")
        pod.route(each, f"default via {OTHER_GATEWAYS[each]} dev net2 metric 100")
        pod.route(each, f"{'0.0.0.0/1' if each == 4 else '::/1'} via {first} dev net1")
        pod.route(each, f"default via {first} dev net1 table 7")
    other_family = pod.defaults(10 - family)
    KERNEL.remove_default_routes(pod.path, "net1", family)
    assert pod.defaults(family) == [f"net2 {OTHER_GATEWAYS[family]} 100"]
    assert (KERNEL.default_routes(pod.path, "net1", family), pod.defaults(10 - family)) == ((), other_family)
    assert f"via {GATEWAYS[family][0]} dev net1" in pod.ip(f"-{family} route show table 7")
    assert "/1 " in pod.ip(f"-{family} route")
    KERNEL.remove_default_routes(pod.path, "net1", family)


@pytest.mark.parametrize("family", [4, 6])
def test_a_multipath_route_loses_the_next_hops_of_the_interface_alone(pod: Namespace, family: int) -> None:
    first, second = GATEWAYS[family]
    other = OTHER_GATEWAYS[family]
    pod.route(family, f"default metric 50 nexthop via {first} dev net1 nexthop via {other} dev net2 weight 3 nexthop via {second} dev net1")
    assert sorted(KERNEL.default_routes(pod.path, "net1", family)) == sorted((first, second))
    assert KERNEL.default_routes(pod.path, "net2", family) == (other,)
    KERNEL.remove_default_routes(pod.path, "net1", family)
    assert pod.defaults(family) == [f"net2 {other} 50"]
    KERNEL.remove_default_routes(pod.path, "net2", family)
    assert pod.defaults(family) == []


@pytest.mark.parametrize("family", [4, 6])
def test_a_multipath_route_by_the_interface_alone_is_removed(pod: Namespace, family: int) -> None:
    first, second = GATEWAYS[family]
    pod.route(family, f"default nexthop via {first} dev net1 nexthop via {second} dev net1")
    KERNEL.remove_default_routes(pod.path, "net1", family)
    assert pod.defaults(family) == []


def test_an_ipv4_route_may_have_an_ipv6_gateway(pod: Namespace) -> None:
    pod.route(4, "default via inet6 2001:db8:1::1 dev net1")
    pod.route(4, "default metric 9 nexthop via inet6 2001:db8:2::1 dev net2 nexthop via 192.0.2.1 dev net1")
    assert KERNEL.default_routes(pod.path, "net1", 4) == ("2001:db8:1::1", "192.0.2.1")
    KERNEL.remove_default_routes(pod.path, "net1", 4)
    assert pod.defaults(4) == ["net2 2001:db8:2::1 9"]


def test_a_route_from_a_source_alone_does_not_come_before_one_of_lower_metric(pod: Namespace) -> None:
    pod.route(6, "default from 2001:db8:1::/64 via 2001:db8:1::1 dev net1 metric 80")
    pod.route(6, "default via 2001:db8:1::3 dev net1 metric 60")
    assert KERNEL.default_routes(pod.path, "net1", 6) == ("2001:db8:1::3", "2001:db8:1::1")


def test_a_route_from_a_source_alone_counts(pod: Namespace) -> None:
    pod.route(6, "default from 2001:db8:1::/64 via 2001:db8:1::1 dev net1")
    assert KERNEL.default_routes(pod.path, "net1", 6) == ("2001:db8:1::1",)
    KERNEL.remove_default_routes(pod.path, "net1", 6)
    assert pod.defaults(6) == []


@pytest.mark.parametrize("family", [4, 6])
def test_a_route_by_a_next_hop_object_is_removed(pod: Namespace, family: int) -> None:
    pod.ip(f"-{family} nexthop add id 7 via {GATEWAYS[family][0]} dev net1")
    pod.ip(f"-{family} route add default nhid 7")
    assert KERNEL.default_routes(pod.path, "net1", family) == (GATEWAYS[family][0],)
    KERNEL.remove_default_routes(pod.path, "net1", family)
    assert pod.defaults(family) == []


def test_a_default_route_of_a_router_advertisement_is_removed(pod: Namespace) -> None:
    with KERNEL.entered(pod.path):
        for key, value in (("net1/accept_ra", "2"), ("net1/accept_ra_defrtr", "1")):
            Path(f"/proc/sys/net/ipv6/conf/{key}").write_text(value)
        router = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("peer1"))
        advertisement = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
        for _ in range(100):
            with contextlib.suppress(OSError):  # the link-local address is still tentative
                router.sendto(advertisement, ("ff02::1", 0, 0, socket.if_nametoindex("peer1")))
            if " proto ra " in pod.ip("-6 route show default"):
                break
            time.sleep(0.1)
        router.close()
    gateways = KERNEL.default_routes(pod.path, "net1", 6)
    assert [gateway.startswith("fe80::") for gateway in gateways] == [True]
    KERNEL.remove_default_routes(pod.path, "net1", 6)
    assert pod.defaults(6) == []


@pytest.mark.parametrize(("family", "metric"), [(4, 0), (6, 1024)])
def test_a_default_route_is_added_with_the_familys_own_metric_or_the_one_given(pod: Namespace, family: int, metric: int) -> None:
    first, second = GATEWAYS[family]
    KERNEL.add_default_route(pod.path, "net1", first, 0)
    KERNEL.add_default_route(pod.path, "net1", second, 2000)
    assert pod.defaults(family) == [f"net1 {first} {metric}", f"net1 {second} 2000"]
    assert KERNEL.default_routes(pod.path, "net1", family) == (first, second)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("metric", [0, 7])
def test_an_identical_default_route_may_be_there(pod: Namespace, family: int, metric: int) -> None:
    for _ in range(2):
        KERNEL.add_default_route(pod.path, "net1", GATEWAYS[family][0], metric)
    assert len(pod.defaults(family)) == 1


def test_a_gateway_is_the_same_however_it_is_written(pod: Namespace) -> None:
    KERNEL.add_default_route(pod.path, "net1", "2001:db8:1::1", 0)
    KERNEL.add_default_route(pod.path, "net1", "2001:0DB8:1:0::1", 0)
    assert KERNEL.default_routes(pod.path, "net1", 6) == ("2001:db8:1::1",)


@pytest.mark.parametrize("family", [4, 6])
def test_another_default_route_of_the_same_metric_is_an_error(pod: Namespace, family: int) -> None:
    first, second = GATEWAYS[family]
    KERNEL.add_default_route(pod.path, "net1", first, 7)
    with pytest.raises(IOFailureError, match=rf"interface net1 via {second}: there is another default route with metric 7"):
        KERNEL.add_default_route(pod.path, "net1", second, 7)
    with pytest.raises(IOFailureError, match=r"another default route"):
        KERNEL.add_default_route(pod.path, "net2", OTHER_GATEWAYS[family], 7)
    assert pod.defaults(family) == [f"net1 {first} 7"]


@pytest.mark.parametrize(("family", "gateway"), [(4, "203.0.113.1"), (6, "2001:db8:99::1")])
def test_a_gateway_that_is_not_on_the_link_is_an_error_that_names_it(pod: Namespace, family: int, gateway: str) -> None:
    with pytest.raises(IOFailureError, match=rf"IPv{family} default route of interface net1 via {gateway} .*is the gateway on the link"):
        KERNEL.add_default_route(pod.path, "net1", gateway, 0)
    assert pod.defaults(family) == []


def test_an_interface_that_is_down_is_an_error(pod: Namespace) -> None:
    pod.ip("link set net1 down")
    with pytest.raises(IOFailureError, match=r"via 192\.0\.2\.1 in .*: "):
        KERNEL.add_default_route(pod.path, "net1", "192.0.2.1", 0)


@pytest.mark.parametrize("gateway", ["", "x", "192.0.2.1/24"])
def test_a_gateway_that_is_no_address_is_an_error(pod: Namespace, gateway: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"is no IP address"):
        KERNEL.add_default_route(pod.path, "net1", gateway, 0)


def test_an_interface_that_is_not_there_is_an_error(pod: Namespace) -> None:
    for attempt in (
        lambda: KERNEL.default_routes(pod.path, "net9", 4),
        lambda: KERNEL.remove_default_routes(pod.path, "net9", 4),
        lambda: KERNEL.add_default_route(pod.path, "net9", "192.0.2.1", 0),
    ):
        with pytest.raises(IOFailureError, match=r"interface net9 in .*: No such device"):
            attempt()


@pytest.mark.parametrize("left", range(9))
def test_a_process_without_descriptors_left_says_so(pod: Namespace, left: int) -> None:
    """However far it gets, it blames neither the namespace nor the interface, and is back in its own namespace."""
    KERNEL.default_routes(pod.path, "net1", 4)
    child = os.fork()
    if not child:
        import resource

        taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, taken[-1] + 1))
        for fd in taken[:left]:
            os.close(fd)
        outcomes = []
        for attempt in (lambda: KERNEL.has_link(pod.path, "net1"), lambda: KERNEL.default_routes(pod.path, "net1", 4)):
            try:
                attempt()
                outcomes.append("done")
            except IOFailureError as exc:
                outcomes.append("said" if "Too many open files" in exc.msg else exc.msg)
        for fd in taken[left:]:
            os.close(fd)
        os._exit(7 if set(outcomes) <= {"done", "said"} and KERNEL.is_own("/proc/self/ns/net") else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_threads_work_in_their_own_namespaces_at_once(pod: Namespace) -> None:
    problems = []

    def move(ifname: str, family: int) -> None:
        gateway = GATEWAYS[family][0] if ifname == "net1" else OTHER_GATEWAYS[family]
        metric = 10 if ifname == "net1" else 20
        for _ in range(5):
            KERNEL.add_default_route(pod.path, ifname, gateway, metric)
            if KERNEL.default_routes(pod.path, ifname, family) != (gateway,):
                problems.append((ifname, family))
            KERNEL.remove_default_routes(pod.path, ifname, family)
        if not KERNEL.is_own("/proc/self/ns/net"):
            problems.append((ifname, family))

    threads = [threading.Thread(target=move, args=(ifname, family)) for ifname in ("net1", "net2") for family in (4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (problems, pod.defaults(4), pod.defaults(6)) == ([], [], [])


def links_of(pod: Namespace) -> set[str]:
    return {each["ifname"] for each in json.loads(pod.ip("-j link show"))}


@pytest.mark.parametrize("names", [["net1"], ["net2", "net1"], ["net1", "gone", "net2"], ["gone"], ["gone", "gone2"], []])
def test_links_are_removed_and_those_that_are_gone_do_not_matter(pod: Namespace, names: list[str]) -> None:
    before = links_of(pod)
    assert KERNEL.remove_links(pod.path, names) == {}
    assert links_of(pod) == {name for name in before if name.replace("peer", "net") not in names}


def test_links_that_are_not_named_stay(pod: Namespace) -> None:
    pod.ip("link set net2 group 77")
    assert KERNEL.remove_links(pod.path, ["net1", "gone"]) == {}
    assert {"lo", "net2", "peer2"} <= links_of(pod)


def test_what_the_kernel_does_not_remove_is_told_and_the_others_go(pod: Namespace) -> None:
    refused = KERNEL.remove_links(pod.path, ["net1", "lo", "net2"])
    assert list(refused) == ["lo"]
    assert str(refused["lo"]) == f"cannot remove link lo in {pod.path}: Operation not supported"
    assert links_of(pod) & {"net1", "net2"} == set()


def test_links_of_no_namespace_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidNetnsError):
        KERNEL.remove_links(str(tmp_path / "gone"), ["net1"])
    with pytest.raises(InvalidNetnsError):
        KERNEL.remove_links("/dev/null", ["net1"])


def test_removing_links_leaks_no_descriptor(pod: Namespace) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for names in (["net1", "net2"], ["lo"]):
        KERNEL.remove_links(pod.path, names)
    assert len(os.listdir("/proc/self/fd")) == before
