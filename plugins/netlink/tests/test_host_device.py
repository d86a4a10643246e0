"""A link of the host in a pod: found by each key, moved as the binary moves it, and given back whatever happens."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any

import pytest
from kinds import IPAM, Site, why_not
from multus_netlink.host_device import HostDevice
from multus_netlink.sysfs import Sysfs

from multus.errors import InvalidConfigError, IOFailureError, MultusError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")
beside_the_binary = pytest.mark.skipif(bool(why_not(binary="host-device")), reason=why_not(binary="host-device") or "runs")

MAC = "0a:58:00:00:00:01"
MAKE = f"ip link add nic0 address {MAC} type veth peer wire address 0a:58:00:00:00:02; ip link set nic0 up; ip link set wire up"
PCI = "0000:3d:00.1"
AUXILIARY = "mlx5_core.sf.4"


class _Node:
    """A sysfs that says what we tell it: the links are those of the test's node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sysfs = Sysfs(str(root))

    def device(self, folder: str, driver: str = "mlx5_core", link: str = "nic0") -> str:
        path = self.root / folder
        path.mkdir(parents=True)
        if link:
            (path / "net" / link).mkdir(parents=True)
        if driver:
            (path / "driver").symlink_to(f"../../../drivers/{driver}")
        return str(path)


@pytest.fixture
def fake(tmp_path: Path) -> _Node:
    return _Node(tmp_path / "sys")


@pytest.fixture
def site(fake: _Node) -> Iterator[Site]:
    with Site(HostDevice(fake.sysfs), "host-device") as site:
        site.node.run("sh", "-c", MAKE)
        yield site


def leased(data_dir: Path) -> dict[str, Any]:
    return {"type": "host-local", "dataDir": str(data_dir), "ranges": [[{"subnet": "10.1.0.0/24"}]]}


def is_given_back(site: Site) -> bool:
    """Whether the device is on the host as it was, and the pod empty."""
    link = site.look()["node"]["links"].get("nic0", {})
    return "UP" in link.get("flags", ()) and "ifalias" not in link and list(site.pod.links()) == []


@beside_the_binary
@pytest.mark.parametrize("key", ["kernelpath", "pciBusID", "deviceID"])
def test_a_device_of_this_machine_is_found_as_the_binary_finds_it(key: str) -> None:
    """A link on the test's node has the name of the machine's, which stays where it is."""
    found = sorted(glob.glob("/sys/bus/pci/devices/*/net/*") + glob.glob("/sys/bus/pci/devices/*/virtio*/net/*"))
    if not found:
        pytest.skip("no PCI device of this machine has a link in this network namespace")
    name, pci = os.path.basename(found[0]), found[0].split("/")[5]
    value = {"kernelpath": os.path.realpath(os.path.dirname(os.path.dirname(found[0]))), "pciBusID": pci, "deviceID": pci}[key]
    results = []
    for is_binary in (True, False):
        with Site(HostDevice(), "host-device", is_binary=is_binary) as site:
            site.node.run("ip", "link", "add", name, "address", MAC, "type", "veth", "peer", "wire")
            config = site.config(**({"runtimeConfig": {key: value}} if key == "deviceID" else {key: value}))
            results.append(site.plain(site.call("ADD", config)))
            assert site.pod.links()["eth0"].mac == MAC
            site.call("DEL", config)
            assert name in site.node.links()
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("folder", "config"),
    [
        ("devices/pci0/1", {"kernelpath": "@/devices/pci0/1"}),
        ("devices/pci0/1", {"kernelpath": "@/devices/pci0/2/../1/"}),
        (f"bus/pci/devices/{PCI}", {"pciBusID": PCI}),
        (f"bus/pci/devices/{PCI}", {"runtimeConfig": {"deviceID": PCI}}),
        (f"bus/pci/devices/{PCI}", {"runtimeConfig": {"deviceID": PCI}, "pciBusID": "0000:00:00.0"}),
        (f"bus/auxiliary/devices/{AUXILIARY}", {"runtimeConfig": {"deviceID": AUXILIARY}}),
        (f"bus/auxiliary/devices/{AUXILIARY}", {"runtimeConfig": {"deviceID": AUXILIARY}, "pciBusID": "0000:00:00.0"}),
    ],
)
def test_a_device_is_found_in_sysfs(site: Site, fake: _Node, folder: str, config: dict[str, Any]) -> None:
    fake.device(folder)
    config = {key: value.replace("@", str(fake.root)) if isinstance(value, str) else value for key, value in config.items()}
    result = site.call("ADD", site.config(**config))
    assert result["interfaces"] == [{"name": "eth0", "mac": MAC, "sandbox": site.pod.path}]


def test_a_virtio_device_has_its_link_a_level_deeper(site: Site, fake: _Node) -> None:
    folder = fake.device(f"bus/pci/devices/{PCI}", driver="virtio-pci", link="")
    os.makedirs(f"{folder}/virtio3/net/nic0")
    site.call("ADD", site.config(pciBusID=PCI))
    assert site.pod.links()["eth0"].mac == MAC


def test_a_key_that_is_not_used_need_not_be_valid(site: Site) -> None:
    config = site.config(device="nic0", hwaddr="odd", kernelpath="/etc")
    site.call("ADD", config)
    site.call("DEL", config)
    site.call("ADD", site.config(hwaddr=MAC, kernelpath="/etc"))
    assert site.pod.links()["eth0"].mac == MAC


def test_a_name_comes_before_a_hardware_address_and_that_before_a_path(site: Site, fake: _Node) -> None:
    folder = fake.device("devices/pci0/1", link="nowhere")
    site.call("ADD", site.config(hwaddr=MAC, kernelpath=folder))
    site.call("DEL", site.config())
    site.call("ADD", site.config(device="wire", hwaddr=MAC))
    assert list(site.node.links()) == ["nic0"]


@pytest.mark.parametrize("driver", ["vfio-pci", "uio_pci_generic", "igb_uio"])
@pytest.mark.parametrize("ipam", [{}, IPAM])
def test_a_device_for_programs_gets_addresses_in_the_result_alone(site: Site, fake: _Node, driver: str, ipam: dict[str, Any]) -> None:
    fake.device(f"bus/pci/devices/{PCI}", driver=driver, link="")
    before = site.look()
    config = site.config(runtimeConfig={"deviceID": PCI}, ipam=ipam, dns={"domain": "a.org"})
    result = site.call("ADD", config)
    assert result["interfaces"] == [{"name": "eth0", "sandbox": site.pod.path}]
    addresses = [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"interface": 0, "address": "fd00::5/64"}]
    assert (result.get("ips"), result.get("dns")) == ((addresses, {"domain": "a.org"}) if ipam else (None, None))
    site.call("CHECK", {**config, "prevResult": result})
    site.pod.run("ip", "link", "add", "eth0", "type", "bridge")  # by a program of the pod
    site.call("DEL", config)
    assert list(site.pod.links()) == ["eth0"]
    site.pod.run("ip", "link", "del", "eth0")
    assert site.look() == before


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no key says which device: device, hwaddr, kernelpath, pciBusID, or runtimeConfig.deviceID"),
        ({"device": "nowhere"}, "there is no link nowhere in the host"),
        ({"device": 5}, "device 5 is not a string"),
        ({"hwaddr": "odd"}, "hwaddr 'odd' is not a hardware address"),
        ({"hwaddr": "0a:58:00:00:00:77"}, "no link of the host has the hwaddr 0a:58:00:00:00:77"),
        ({"device": "", "hwaddr": "", "kernelpath": "/etc"}, "kernelpath '/etc' is not the path of a device below /sys/devices"),
        ({"kernelpath": "@/devices/bare"}, "the device @/devices/bare has no link"),
        ({"pciBusID": "0000:00:00.0"}, "pciBusID '0000:00:00.0' is not a PCI device of this node"),
        ({"pciBusID": "../../../devices/bare"}, "pciBusID '../../../devices/bare' is not a PCI device of this node"),
        ({"pciBusID": PCI}, f"PCI device {PCI} has no driver"),
        ({"runtimeConfig": {"deviceID": "x"}}, "runtimeConfig.deviceID 'x' is not a PCI or auxiliary device of this node"),
        ({"runtimeConfig": {"deviceID": 5}}, "runtimeConfig.deviceID 5 is not a string"),
        ({"device": "nic0", "ipam": {"type": "static"}}, "ipam gives no address"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(site: Site, fake: _Node, config: dict[str, Any], message: str) -> None:
    fake.device(f"bus/pci/devices/{PCI}", driver="")
    fake.device("devices/bare", link="")
    config = {key: value.replace("@", str(fake.root)) if isinstance(value, str) else value for key, value in config.items()}
    with pytest.raises(MultusError) as caught:
        site.call("ADD", site.config(**config))
    assert caught.value.msg.replace(str(fake.root), "@") == f"interface eth0: {message}"
    assert is_given_back(site)


def test_a_path_does_not_lead_out_of_the_devices(fake: _Node) -> None:
    folder = fake.device("devices/pci0/1")
    fake.device(f"bus/pci/devices/{PCI}")
    paths = (folder, f"{fake.root}/devices/../bus/pci/devices/{PCI}", f"{fake.root}/devices", "devices/pci0/1", "", f"{folder}/\0")
    assert [fake.sysfs.at(path) for path in paths] == [folder, "", "", "", "", ""]


def test_a_failed_add_gives_the_device_back_as_it_was(site: Site, tmp_path: Path) -> None:
    ipam = {**leased(tmp_path), "routes": [{"dst": "198.51.100.0/24", "gw": "192.168.9.9"}]}
    with pytest.raises(IOFailureError, match=r"^interface eth0: cannot add the route to 198\.51\.100\.0/24 via 192\.168\.9\.9"):
        site.call("ADD", site.config(device="nic0", ipam=ipam))
    assert is_given_back(site)
    assert "10.1.0.2" not in os.listdir(tmp_path / "net")


def test_a_move_that_stops_half_way_is_taken_back(site: Site) -> None:
    site.pod.ifname = "a b"  # the kernel moves a link before it looks at the new name
    with pytest.raises(IOFailureError, match=f"^interface a b: cannot move to {site.pod.path} the link nic0"):
        site.call("ADD", site.config(device="nic0"))
    assert is_given_back(site)


def test_an_interface_that_is_there_is_left_alone(site: Site) -> None:
    site.pod.run("ip", "link", "add", "eth0", "type", "bridge")
    with pytest.raises(IOFailureError, match="interface eth0: there is a link of that name"):
        site.call("ADD", site.config(device="nic0"))
    assert ("nic0" in site.node.links(), site.pod.links()["eth0"].kind) == (True, "bridge")


def test_a_device_may_have_the_name_of_another_link_of_the_pod(site: Site) -> None:
    site.pod.run("ip", "link", "add", "nic0", "type", "bridge")
    site.call("ADD", site.config(device="nic0"))
    assert {name: link.kind for name, link in site.pod.links().items()} == {"nic0": "bridge", "eth0": "veth"}
    site.call("DEL", site.config(device="nic0"))
    assert {name: link.kind for name, link in site.pod.links().items()} == {"nic0": "bridge"}
    assert site.node.links()["nic0"].mac == MAC


@pytest.mark.parametrize("has_namesake", [False, True])
def test_delete_waits_until_the_name_is_free_on_the_host(site: Site, has_namesake: bool) -> None:
    if has_namesake:
        site.pod.run("ip", "link", "add", "nic0", "type", "bridge")
    site.call("ADD", site.config(device="nic0"))
    site.node.run("ip", "link", "add", "nic0", "type", "bridge")
    with pytest.raises(IOFailureError, match="interface eth0: it is nic0 of the host, which has another link of that name"):
        site.call("DEL", site.config(device="nic0"))
    assert site.pod.links()["eth0"].mac == MAC
    site.node.run("ip", "link", "del", "nic0")
    site.call("DEL", site.config(device="nic0"))
    assert site.node.links()["nic0"].mac == MAC


def test_a_refused_return_leaves_the_interface_for_the_next(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.call("ADD", site.config(device="nic0"))
    with monkeypatch.context() as patched:
        patched.setattr("multus_netlink.host_device.opened", lambda: open_none())
        with pytest.raises(IOFailureError, match="nowhere to go"):
            site.call("DEL", site.config(device="nic0"))
    assert list(site.pod.links()) == ["eth0"]
    site.call("DEL", site.config(device="nic0"))
    assert site.node.links()["nic0"].mac == MAC


def open_none() -> Any:
    raise IOFailureError("nowhere to go")


def test_delete_does_not_touch_an_interface_of_others(site: Site) -> None:
    site.pod.run("ip", "link", "add", "eth0", "type", "bridge")
    with pytest.raises(IOFailureError, match="interface eth0: it has no alias that tells its name on the host"):
        site.call("DEL", site.config(device="nic0"))
    assert list(site.pod.links()) == ["eth0"]


def test_delete_is_done_once_and_needs_no_namespace(site: Site, tmp_path: Path) -> None:
    config = site.config(device="nic0", ipam=leased(tmp_path))
    site.call("ADD", config)
    for netns in ("/run/netns/gone", ""):
        site.call("DEL", config, netns=netns)
    assert "10.1.0.2" not in os.listdir(tmp_path / "net")
    for _ in range(2):
        site.call("DEL", config)
    assert (site.node.links()["nic0"].is_up, list(site.pod.links())) == (False, [])


def test_the_device_goes_back_though_the_addresses_cannot_be_freed(site: Site, tmp_path: Path) -> None:
    config = site.config(device="nic0", ipam=leased(tmp_path))
    site.call("ADD", config)
    config["ipam"]["dataDir"] = "/dev/null"
    with pytest.raises(IOFailureError, match="cannot lock the address store"):
        site.call("DEL", config)
    assert "nic0" in site.node.links()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ip link set eth0 down", "it is down"),
        ("ip link set eth0 address 0a:58:00:00:00:77", f"its MAC is 0a:58:00:00:00:77, not {MAC}"),
        ("ip address del 10.1.0.5/24 dev eth0", "address 10.1.0.5/24 is gone"),
        ("ip route del 198.51.100.0/24", "the route to 198.51.100.0/24 via 10.1.0.9 is gone"),
        ("ip link set eth0 down; ip link set eth0 name eth1", "there is no link eth0"),
    ],
)
def test_check_notices_drift(site: Site, command: str, message: str) -> None:
    config = site.config(device="nic0", ipam=IPAM)
    config["prevResult"] = site.call("ADD", config)
    site.call("CHECK", config)
    site.pod.run("sh", "-c", command)
    with pytest.raises(IOFailureError) as caught:
        site.call("CHECK", config)
    assert caught.value.msg.startswith(f"interface eth0: {message}")


def test_check_needs_a_previous_result(site: Site) -> None:
    with pytest.raises(InvalidConfigError, match="interface eth0: prevResult is missing"):
        site.call("CHECK", site.config(device="nic0"))


def test_gc_and_status_are_the_ipam_plugins(site: Site, tmp_path: Path) -> None:
    config = site.config(device="nic0", ipam=leased(tmp_path))
    site.call("ADD", config)
    site.call("STATUS", config)
    site.call("GC", {**config, "cni.dev/valid-attachments": []})
    assert "10.1.0.2" not in os.listdir(tmp_path / "net")
    with pytest.raises(MultusError):
        site.call("STATUS", {**config, "ipam": {"type": "host-local"}})
