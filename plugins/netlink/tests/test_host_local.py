"""The store on disk, and what is given away from it; beside the binary where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_interface
from typing import TYPE_CHECKING, Any

import pytest
from multus_netlink.host_local import HostLocal
from multus_netlink.leases import Leases
from multus_netlink.ranges import parse_address

from multus.errors import InvalidConfigError, InvalidEnvironmentError, IOFailureError, NotAvailableError, TryAgainLaterError
from multus.testing.pods import PLUGIN_FOLDER
from multus.types.invocation import CNICommand, Invocation

if TYPE_CHECKING:
    from pathlib import Path

BINARY = os.path.join(PLUGIN_FOLDER, "host-local")
PLUGIN = HostLocal()
SUBNET = {"subnet": "10.1.0.0/29"}


class Network:
    """One network with a store of its own, and calls for it."""

    def __init__(self, folder: Path, *sets: list[dict[str, str]]) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {
            "cniVersion": "1.0.0", "name": "net", "type": "bridge",
            "ipam": {"type": "host-local", "dataDir": str(folder), "ranges": list(sets) or [[SUBNET]]},
        }  # fmt: skip

    def call(self, verb: str, container_id: str = "c1", generic_args: str = "", **more: Any) -> Invocation:
        return Invocation(CNICommand(verb), "bridge", {**self.config, **more}, container_id, "/run/netns/a", "net1", generic_args)

    def add(self, container_id: str = "c1", generic_args: str = "", **more: Any) -> list[str]:
        return [ip.address for ip in PLUGIN.allocate(self.call("ADD", container_id, generic_args, **more)).ips]

    def delete(self, container_id: str = "c1") -> None:
        PLUGIN.delete(self.call("DEL", container_id))

    def run(self, verb: str, container_id: str) -> Any:
        environment = {"CNI_COMMAND": verb, "CNI_CONTAINERID": container_id, "CNI_NETNS": "/a", "CNI_IFNAME": "net1", "CNI_PATH": "/a"}
        text = json.dumps(self.config).encode()
        done = subprocess.run([BINARY], env=environment, input=text, capture_output=True, check=False, timeout=60)
        return json.loads(done.stdout or "{}")

    def store(self) -> dict[str, str]:
        return {each.name: each.read_bytes().decode() for each in (self.folder / "net").iterdir() if each.name != "lock"}


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path)


needs_binary = pytest.mark.skipif(not os.path.exists(BINARY), reason=f"no host-local in {PLUGIN_FOLDER}")


def test_an_address_is_a_file_with_its_owner(network: Network) -> None:
    assert (network.add(), network.store()) == (["10.1.0.2/29"], {"10.1.0.2": "c1\r\nnet1", "last_reserved_ip.0": "10.1.0.2"})


def test_addresses_are_given_in_turn(network: Network) -> None:
    given = []
    for _ in range(6):
        given += network.add()
        network.delete()
    assert given == [f"10.1.0.{last}/29" for last in (2, 3, 4, 5, 6, 2)]


def test_a_container_that_has_an_address_gets_no_other(network: Network) -> None:
    network.add()
    with pytest.raises(InvalidConfigError, match=r"interface net1: container c1 has 10\.1\.0\.2 already"):
        network.add()


def test_a_range_without_addresses_is_to_be_tried_again_later(network: Network) -> None:
    given = [network.add(f"c{number}") for number in range(5)]
    with pytest.raises(TryAgainLaterError, match=r"no address is left in range set 10\.1\.0\.1-10\.1\.0\.6"):
        network.add("c9")
    assert len({each for (each,) in given}) == 5


def test_status_tells_of_a_range_without_addresses(network: Network) -> None:
    PLUGIN.status(network.call("STATUS"))
    for number in range(5):
        network.add(f"c{number}")
    with pytest.raises(NotAvailableError, match="no address is left"):
        PLUGIN.status(network.call("STATUS"))


def test_status_tells_of_a_configuration_that_is_not_valid(network: Network) -> None:
    with pytest.raises(NotAvailableError, match=r"ipam\.ranges"):
        PLUGIN.status(network.call("STATUS", ipam={"type": "host-local"}))


def test_a_second_set_without_addresses_gives_the_first_ones_back(tmp_path: Path) -> None:
    network = Network(tmp_path, [SUBNET], [{"subnet": "10.2.0.0/30"}])
    network.add("c1")
    with pytest.raises(TryAgainLaterError):
        network.add("c2")
    assert sorted(network.store()) == ["10.1.0.2", "10.2.0.2", "last_reserved_ip.0", "last_reserved_ip.1"]


@pytest.mark.parametrize(
    ("args", "more"),
    [
        ("IP=10.1.0.5", {}),
        ("IgnoreUnknown=1;IP=10.1.0.5/29;K8S_POD_NAME=web", {}),
        ("", {"args": {"cni": {"ips": ["10.1.0.5"]}}}),
        ("", {"runtimeConfig": {"ips": ["10.1.0.5/29"]}}),
        ("IP=10.1.0.5", {"runtimeConfig": {"ips": ["10.1.0.5"]}}),
    ],
)
def test_a_requested_address_is_given(network: Network, args: str, more: dict[str, Any]) -> None:
    assert network.add("c1", args, **more) == ["10.1.0.5/29"]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ("10.1.0.1", InvalidConfigError, "10.1.0.1 is the gateway of its subnet"),
        ("10.1.0.2", InvalidConfigError, "10.1.0.2 is not free"),
        ("10.9.0.2", InvalidConfigError, "no range set is left for the requested addresses 10.9.0.2"),
        ("x", InvalidEnvironmentError, "CNI_ARGS IP 'x' is not an IP address"),
        ("10.1.0.5/33", InvalidEnvironmentError, "CNI_ARGS IP '10.1.0.5/33' is not an IP address"),
        ("10.1.0.5/29,fd00::5/64", InvalidEnvironmentError, "CNI_ARGS IP '10.1.0.5/29,fd00::5/64' is not an IP address"),
    ],
)
def test_a_requested_address_that_cannot_be_had_is_refused(network: Network, asked: str, error: type[Exception], message: str) -> None:
    network.add("c0")
    before = network.store()
    with pytest.raises(error, match=message):
        network.add("c1", f"IP={asked}")
    assert {key: value for key, value in network.store().items() if "last" not in key} == {
        key: value for key, value in before.items() if "last" not in key
    }


def test_a_requested_text_that_is_no_address_is_refused(network: Network) -> None:
    with pytest.raises(InvalidConfigError, match=r"runtimeConfig\.ips \(a list\) is not a list of IP addresses: 'x'"):
        network.add("c1", runtimeConfig={"ips": ["x"]})


def test_delete_twice_is_no_error(network: Network) -> None:
    network.add()
    network.delete()
    network.delete()
    assert network.store() == {"last_reserved_ip.0": "10.1.0.2"}


def test_delete_needs_no_valid_ranges(network: Network) -> None:
    network.add()
    PLUGIN.delete(network.call("DEL", generic_args="nonsense", ipam={**network.config["ipam"], "ranges": "x"}))
    assert "10.1.0.2" not in network.store()


def test_delete_finds_files_of_old_releases_which_name_no_interface(network: Network) -> None:
    network.add()
    (network.folder / "net" / "10.1.0.2").write_text("c1")
    network.delete()
    assert "10.1.0.2" not in network.store()


def test_delete_leaves_another_interface_of_the_container_its_address(network: Network) -> None:
    network.add()
    PLUGIN.delete(network.call("DEL")._replace(ifname="net2"))
    assert "10.1.0.2" in network.store()


def test_check_wants_an_address_on_record(network: Network) -> None:
    network.add()
    PLUGIN.check(network.call("CHECK"))
    network.delete()
    with pytest.raises(IOFailureError, match="container c1 has no address in"):
        PLUGIN.check(network.call("CHECK"))


def test_gc_takes_back_what_belongs_to_no_valid_attachment(network: Network) -> None:
    for number in range(4):
        network.add(f"c{number}")
    folder = network.folder / "net"
    (folder / "10.1.0.4").write_text("c2")  # of an old release
    (folder / "10.1.0.6").write_text("")  # of a process that was killed as it wrote
    valid = [{"containerID": "c0", "ifname": "net1"}, {"containerID": "c1", "ifname": "net9"}, {"containerID": "c2", "ifname": "net1"}]
    more: dict[str, Any] = {"cni.dev/valid-attachments": valid}
    PLUGIN.gc(network.call("GC", **more))
    assert sorted(network.store()) == ["10.1.0.2", "10.1.0.4", "last_reserved_ip.0"]


def test_gc_without_a_list_of_attachments_takes_nothing_back(network: Network) -> None:
    network.add()
    with pytest.raises(InvalidConfigError, match=r"cni\.dev/valid-attachments None"):
        PLUGIN.gc(network.call("GC"))
    assert "10.1.0.2" in network.store()


def test_name_servers_are_those_of_the_file(network: Network, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(
        "# nameserver 1.1.1.1\n; x\nnameserver 192.0.2.1 x\nnameserver 192.0.2.2\n"
        "domain a\ndomain b\nsearch a b\noptions x\noptions y z\nsearch\n"
    )
    ipam = {**network.config["ipam"], "resolvConf": str(tmp_path / "resolv.conf")}
    expected = {"nameservers": ["192.0.2.1", "192.0.2.2"], "domain": "b", "search": ["a", "b"], "options": ["x", "y", "z"]}
    assert PLUGIN.add(network.call("ADD", ipam=ipam)).document["dns"] == expected


def test_a_missing_file_of_name_servers_is_an_error_and_takes_no_address(network: Network) -> None:
    network.add("c0")
    with pytest.raises(IOFailureError, match=r"cannot read resolvConf '/nowhere/resolv\.conf'"):
        network.add(ipam={**network.config["ipam"], "resolvConf": "/nowhere/resolv.conf"})
    assert "10.1.0.3" not in network.store()


def test_a_store_that_cannot_be_made_is_an_error(network: Network) -> None:
    with pytest.raises(IOFailureError, match="interface net1: cannot lock the address store /dev/null/net"):
        network.add(ipam={**network.config["ipam"], "dataDir": "/dev/null"})


def test_a_network_name_that_is_a_path_is_refused(network: Network) -> None:
    with pytest.raises(InvalidConfigError, match=r"name '\.\./x' is not a network's name"):
        network.add(name="../x")


def test_several_addresses_of_a_family_need_a_newer_version(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"cniVersion '0\.2\.0' is not 0\.3\.0 or newer"):
        Network(tmp_path, [SUBNET], [{"subnet": "10.2.0.0/30"}]).add(cniVersion="0.2.0")


def test_a_folder_of_an_addresss_name_is_nobodys(network: Network) -> None:
    (network.folder / "net" / "10.1.0.2").mkdir(parents=True)
    address = parse_address("10.1.0.2")
    assert address is not None
    with Leases(str(network.folder / "net")) as leases:
        assert (leases.of("c1", "net1"), leases.reserve(address, "c1", "net1", 0)) == ((), False)


def test_an_address_whose_file_is_empty_is_nobodys(network: Network) -> None:
    """Its writer was killed before it wrote, or the machine crashed before the disk had it: no DEL would ever take it back."""
    for last in range(2, 7):
        network.add(f"c{last}")
    (network.folder / "net" / "10.1.0.4").write_text("")
    PLUGIN.status(network.call("STATUS"))
    assert network.add("c9") == ["10.1.0.4/29"]
    assert network.store()["10.1.0.4"] == "c9\r\nnet1"
    (network.folder / "net" / "10.1.0.5").write_text("")
    assert network.add("c10", runtimeConfig={"ips": ["10.1.0.5/29"]}) == ["10.1.0.5/29"]
    with pytest.raises(TryAgainLaterError):
        network.add("c11")


@needs_binary
def test_each_implementation_sees_and_frees_the_others_addresses(network: Network) -> None:
    assert network.add("c1") == ["10.1.0.2/29"]
    assert network.run("ADD", "c2")["ips"][0]["address"] == "10.1.0.3/29"
    assert network.add("c3") == ["10.1.0.4/29"]
    PLUGIN.check(network.call("CHECK", "c2"))
    network.delete("c2")
    assert [network.run(verb, "c1") for verb in ("CHECK", "DEL", "DEL")] == [{}, {}, {}]
    assert network.store() == {"10.1.0.4": "c3\r\nnet1", "last_reserved_ip.0": "10.1.0.4"}


@needs_binary
def test_two_hundred_allocations_at_once_by_both_give_no_address_twice(tmp_path: Path) -> None:
    """The range has room for no more; what one implementation gave, the other takes back, again all at once."""
    network = Network(tmp_path, [{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.10", "rangeEnd": "10.1.0.209"}])

    def allocate(number: int) -> str:
        if number % 2:
            return network.add(f"c{number}")[0]
        return str(network.run("ADD", f"c{number}")["ips"][0]["address"])

    def release(number: int) -> Any:
        return network.run("DEL", f"c{number}") if number % 2 else network.delete(f"c{number}")

    with ThreadPoolExecutor(16) as pool:
        given = list(pool.map(allocate, range(200)))
        assert sorted(given, key=ip_interface) == [f"10.1.0.{last}/24" for last in range(10, 210)]
        owners = {each.partition("/")[0]: f"c{number}\r\nnet1" for number, each in enumerate(given)}
        assert network.store() == {**owners, "last_reserved_ip.0": "10.1.0.209"}
        with pytest.raises(TryAgainLaterError):
            network.add("one-more")
        assert "no IP addresses available in range set" in network.run("ADD", "one-more")["msg"]
        list(pool.map(release, range(200)))
    assert network.store() == {"last_reserved_ip.0": "10.1.0.209"}
    assert (network.add("c1"), network.run("ADD", "c2")["ips"][0]["address"]) == (["10.1.0.10/24"], "10.1.0.11/24")


def test_an_address_that_cannot_be_recorded_as_the_last_is_not_given(network: Network) -> None:
    (network.folder / "net" / "last_reserved_ip.0").mkdir(parents=True)
    with pytest.raises(IOFailureError, match=r"interface net1: cannot reserve 10\.1\.0\.2"):
        network.add()
    assert not (network.folder / "net" / "10.1.0.2").exists()


def test_an_address_that_cannot_be_taken_back_is_an_error(network: Network) -> None:
    (network.folder / "net" / "10.1.0.2").mkdir(parents=True)
    address = parse_address("10.1.0.2")
    assert address is not None
    with Leases(str(network.folder / "net"), "net1") as leases, pytest.raises(IOFailureError, match=r"net1: cannot take 10\.1\.0\.2"):
        leases.release([address])


def test_the_address_that_was_given_last_is_written_whole_whatever_was_there(network: Network) -> None:
    folder = network.folder / "net"
    folder.mkdir()
    for before in ("10.1.0.3", "10.1.0.3 and more that somebody wrote", ""):
        (folder / "last_reserved_ip.0").write_text(before)
        given = network.add()
        assert given == [f"{network.store()['last_reserved_ip.0']}/29"]
        network.delete()
