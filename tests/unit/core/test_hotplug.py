"""One network of a running pod plugged in and out, with every port faked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from multus.core import attach, hotplug
from multus.core.attach import Attached
from multus.core.hotplug import Plug
from multus.errors import (
    DelegateError,
    ForbiddenError,
    InvalidConfigError,
    InvalidEnvironmentError,
    InvalidNetnsError,
    IOFailureError,
    MultusError,
    NotAvailableError,
    TryAgainLaterError,
    UnknownContainerError,
)
from multus.testing.fakes import NETNS, FakeNamespace
from multus.testing.world import World
from multus.types.daemon import InterfaceAttributes
from multus.types.delegate import Attachment
from multus.types.invocation import PodArgs

MAC, IP = "02:00:00:00:09:05", "10.9.0.5/24"
ASKED = InterfaceAttributes((IP,), MAC, {"color": "red"})
BLUE: dict[str, object] = {"cniVersion": "1.0.0", "name": "blue", "type": "fake-a", "master": "eth1", "id": 2**64 + 1}
PLACE = "[shop/web/u1:blue]"
NOTHING_ASKED = Plug()


class Node(World):
    """A pod that is attached to ``trunk`` by eth0, and runs."""

    def __init__(self) -> None:
        super().__init__("fake-primary", "fake-a", "fake-b")
        self.add_pod()
        attach.add(self.context("ADD"))
        self.programs.made.clear()
        self.kube.calls.made.clear()

    def plug(
        self,
        command: str,
        conf: Mapping[str, object] = BLUE,
        plug: Plug = NOTHING_ASKED,
        config: Mapping[str, object] | None = None,
        **call: Any,
    ) -> Attached | None:
        settings = {"name": "hotplug", "delegates": [conf], **(config or {})}
        return hotplug.serve(plug, self.context(command, settings, **{"ifname": "net5", **call}))

    def recorded(self) -> list[str]:
        """The interfaces on record."""
        return [attachment.ifname for attachment in self.journal.records.get("c1", ())]

    def record_of(self, ifname: str) -> Attachment:
        return next(attachment for attachment in self.journal.records["c1"] if attachment.ifname == ifname)

    def ran(self) -> list[tuple[str, str, str]]:
        return [(call.command, call.type, call.ifname) for call in self.programs.made]


@pytest.fixture
def node() -> Node:
    return Node()


def message(caught: pytest.ExceptionInfo[MultusError]) -> tuple[int, str]:
    return caught.value.code, caught.value.msg


# --- ADD ---


def test_add_attaches_and_answers_the_result_and_what_there_is_to_announce(node: Node) -> None:
    attached = node.plug("ADD")
    assert attached is not None
    assert attached.result.document["interfaces"] == [{"name": "net5", "mac": "02:00:00:00:00:01", "sandbox": NETNS}]
    assert node.ran() == [("ADD", "fake-a", "net5")]
    attach.announce(attached, node.context("ADD"))
    assert node.kube.events[-1] == ("Normal", "AddedInterface", "Add net5 [198.51.100.2/24] from blue")


def test_the_configuration_reaches_the_plugin_as_it_was_sent(node: Node) -> None:
    node.plug("ADD", config={"binDir": "/other/bin", "logLevel": "debug", "cniVersion": "0.3.1"})
    assert node.programs.made[0].config == BLUE


def test_a_plugin_list_reaches_every_plugin_in_order(node: Node) -> None:
    conf = {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "fake-a", "mtu": 1}, {"type": "fake-b"}]}
    node.plug("ADD", conf)
    first, second = node.programs.made
    assert first.config == {"cniVersion": "1.0.0", "name": "blue", "type": "fake-a", "mtu": 1}
    assert (second.type, second.config["prevResult"]["interfaces"][0]["name"]) == ("fake-b", "net5")


def test_what_is_asked_of_the_interface_reaches_the_plugin_in_all_three_ways(node: Node) -> None:
    conf = {**BLUE, "capabilities": {"mac": True, "ips": True}, "args": {"cni": {"size": 1}}}
    node.plug("ADD", conf, Plug(ASKED))
    call = node.programs.made[0]
    expected = {**conf, "args": {"cni": {"size": 1, "color": "red"}}, "runtimeConfig": {"ips": [IP], "mac": MAC}}
    assert call.config == expected
    assert call.environment["CNI_ARGS"] == (
        "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1;"
        f"MAC={MAC};IP={IP}"
    )


def test_arguments_are_merged_into_every_plugin_of_a_list(node: Node) -> None:
    conf = {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "fake-a"}, {"type": "fake-b"}]}
    node.plug("ADD", conf, Plug(InterfaceAttributes(cni_args={"color": "red"})))
    assert [call.config["args"] for call in node.programs.made] == [{"cni": {"color": "red"}}] * 2


def test_attributes_that_ask_for_nothing_change_nothing(node: Node) -> None:
    node.plug("ADD", plug=Plug(InterfaceAttributes()))
    assert node.programs.made[0].config == BLUE


@pytest.mark.parametrize(
    ("asked", "quoted"),
    [
        (InterfaceAttributes(mac="02:00"), '"02:00"'),
        (InterfaceAttributes(("10.9.0.500/24",)), '"10.9.0.500/24"'),
        (InterfaceAttributes(("10.9.0.5/24", "")), '""'),
    ],
)
def test_a_malformed_mac_or_address_is_refused_before_anything_happens(node: Node, asked: InterfaceAttributes, quoted: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        node.plug("ADD", plug=Plug(asked))
    code, text = message(caught)
    assert (code, text.startswith(PLACE), "interfaceAttributes" in text, quoted in text) == (7, True, True, True)
    assert (node.ran(), node.recorded()) == ([], ["eth0"])


def test_add_is_on_record_before_the_plugin_runs_and_the_pods_del_detaches_it(node: Node) -> None:
    before: list[list[str]] = []

    def look(call: Any) -> Mapping[str, Any]:
        before.append(node.recorded())
        return node.programs.own_answer(call)

    node.programs.answer("fake-a", "ADD", look)
    node.plug("ADD", plug=Plug(ASKED))
    assert before == [["eth0", "net5"]]
    attach.delete(node.context("DEL"))
    assert node.ran() == [("ADD", "fake-a", "net5"), ("DEL", "fake-a", "net5"), ("DEL", "fake-primary", "eth0")]
    assert (node.journal.records, node.journal.results, node.programs.attached) == ({}, {}, set())


@pytest.mark.parametrize("ifname", ["eth0", "net9"])
def test_an_interface_name_that_is_taken_is_refused_and_nothing_is_detached(node: Node, ifname: str) -> None:
    node.netns.namespaces[NETNS].links.add("net9")
    with pytest.raises(MultusError) as caught:
        node.plug("ADD", ifname=ifname)
    assert message(caught) == (999, f"{PLACE}: interface name {ifname!r} is taken in {NETNS}")
    assert (node.ran(), node.recorded()) == ([], ["eth0"])


def test_an_interface_that_is_plugged_in_already_is_taken_even_when_its_link_is_gone(node: Node) -> None:
    node.plug("ADD")
    node.netns.namespaces[NETNS].remove_link("net5")
    with pytest.raises(MultusError, match="interface name 'net5' is taken"):
        node.plug("ADD")
    assert node.recorded() == ["eth0", "net5"]


def test_a_pod_that_does_not_exist_is_refused(node: Node) -> None:
    node.kube.pods.clear()
    with pytest.raises(TryAgainLaterError):
        node.plug("ADD")
    with pytest.raises(InvalidEnvironmentError, match="pod shop/web is not known"):
        node.plug("ADD", config={"podNotFoundResult": "empty"})
    assert (node.ran(), node.recorded()) == ([], ["eth0"])


def test_another_pod_of_the_same_name_is_refused(node: Node) -> None:
    node.add_pod(uid="u2")
    with pytest.raises(MultusError, match="it was replaced"):
        node.plug("ADD")


@pytest.mark.parametrize("pod", [PodArgs(), PodArgs("shop"), PodArgs("", "web")])
@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK"])
def test_a_call_that_names_no_pod_is_refused(node: Node, pod: PodArgs, command: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match="K8S_POD_NAMESPACE and K8S_POD_NAME are expected"):
        node.plug(command, pod=pod)


def test_the_namespace_of_the_daemon_itself_is_refused(node: Node) -> None:
    node.netns.own = NETNS
    with pytest.raises(InvalidNetnsError):
        node.plug("ADD")


def test_a_namespace_that_is_gone_is_an_error(node: Node) -> None:
    with pytest.raises(InvalidNetnsError):
        node.plug("ADD", netns="/nowhere")
    assert (node.ran(), node.recorded()) == ([], ["eth0"])


def test_a_failed_add_is_undone_and_forgotten(node: Node) -> None:
    node.programs.answer("fake-a", "ADD", DelegateError("no uplink", "eth1", 57))
    with pytest.raises(DelegateError) as caught:
        node.plug("ADD")
    assert message(caught) == (57, f"{PLACE}: plugin 'fake-a': no uplink")
    assert node.ran() == [("ADD", "fake-a", "net5"), ("DEL", "fake-a", "net5")]
    assert (node.recorded(), len(node.journal.results)) == (["eth0"], 1)


def test_what_failed_and_cannot_be_undone_stays_on_record_and_keeps_no_pod(node: Node) -> None:
    node.programs.answer("fake-a", "ADD", DelegateError("no uplink"))
    node.programs.answer("fake-a", "DEL", DelegateError("no uplink either"))
    with pytest.raises(DelegateError, match=r"no uplink$"):
        node.plug("ADD")
    assert (node.recorded(), node.record_of("net5").has_failed) == (["eth0", "net5"], True)
    assert "hotplug.undo.failed" in node.log.events("error")
    attach.delete(node.context("DEL"))
    assert node.journal.records == {}


def test_an_interrupted_add_is_not_taken_for_one_that_failed(node: Node) -> None:
    """The plugin may have attached: its DEL has to succeed."""
    node.calls.fail("programs.run", KeyboardInterrupt())
    node.programs.answer("fake-a", "DEL", DelegateError("busy"))
    with pytest.raises(KeyboardInterrupt):
        node.plug("ADD")
    assert (node.recorded(), node.record_of("net5").has_failed) == (["eth0", "net5"], False)


def test_a_result_that_cannot_be_recorded_undoes_the_add(node: Node) -> None:
    node.calls.fail("journal.write_result", IOFailureError("disk full"))
    with pytest.raises(IOFailureError):
        node.plug("ADD")
    assert node.ran() == [("ADD", "fake-a", "net5"), ("DEL", "fake-a", "net5")]
    assert node.programs.made[1].config["prevResult"]["interfaces"][0]["name"] == "net5"
    assert (node.recorded(), node.programs.attached) == (["eth0"], {("fake-primary", "c1", "eth0")})


def test_a_record_that_cannot_be_written_starts_no_plugin(node: Node) -> None:
    node.calls.fail("journal.write", IOFailureError("disk full"))
    with pytest.raises(IOFailureError):
        node.plug("ADD")
    assert node.ran() == []


def test_default_route_and_status_are_left_to_whoever_plugs(node: Node) -> None:
    statuses = len(node.kube.statuses)
    node.plug("ADD")
    assert len(node.kube.statuses) == statuses
    assert [name for name in node.calls.names if "route" in name] == []


# --- DEL ---


def test_del_uses_what_was_recorded_whatever_is_sent_now(node: Node) -> None:
    conf = {**BLUE, "capabilities": {"mac": True, "ips": True}}
    node.plug("ADD", conf, Plug(ASKED))
    node.plug("DEL", {**BLUE, "type": "fake-b"})
    add, delete = node.programs.made
    assert (delete.type, delete.config["runtimeConfig"], delete.config["args"]) == ("fake-a", {"ips": [IP], "mac": MAC}, add.config["args"])
    assert delete.config["prevResult"]["interfaces"][0]["name"] == "net5"
    assert (node.recorded(), len(node.journal.results)) == (["eth0"], 1)


def test_del_uses_the_callers_namespace(node: Node) -> None:
    node.plug("ADD")
    node.netns.namespaces["/run/netns/moved"] = FakeNamespace("net5")
    node.plug("DEL", netns="/run/netns/moved")
    assert node.programs.made[1].environment["CNI_NETNS"] == "/run/netns/moved"


def test_del_of_what_is_on_record_needs_no_pod(node: Node) -> None:
    node.plug("ADD")
    node.kube.pods.clear()
    node.plug("DEL")
    assert node.recorded() == ["eth0"]


def test_del_of_what_is_not_on_record_runs_with_what_is_sent(node: Node) -> None:
    conf = {**BLUE, "capabilities": {"mac": True}}
    node.plug("DEL", conf, Plug(ASKED))
    (call,) = node.programs.made
    assert (call.command, call.config["runtimeConfig"], call.config["args"]) == ("DEL", {"mac": MAC}, {"cni": {"color": "red"}})
    assert node.recorded() == ["eth0"]


def test_del_of_what_is_not_on_record_for_a_pod_that_is_gone_is_an_error(node: Node) -> None:
    node.kube.pods.clear()
    with pytest.raises(TryAgainLaterError):
        node.plug("DEL")


def test_a_failed_del_is_told_and_keeps_the_record(node: Node) -> None:
    node.plug("ADD")
    node.programs.answer("fake-a", "DEL", DelegateError("busy", "", 58), {})
    with pytest.raises(DelegateError) as caught:
        node.plug("DEL")
    assert message(caught) == (58, f"{PLACE}: plugin 'fake-a': busy")
    assert (node.recorded(), len(node.journal.results)) == (["eth0", "net5"], 2)
    node.plug("DEL")
    assert (node.recorded(), len(node.journal.results)) == (["eth0"], 1)


@pytest.mark.parametrize("command", ["DEL", "CHECK"])
def test_the_cluster_networks_interface_cannot_be_plugged(node: Node, command: str) -> None:
    with pytest.raises(InvalidConfigError, match="'eth0' is the cluster network's"):
        node.plug(command, ifname="eth0")
    assert (node.ran(), node.recorded()) == ([], ["eth0"])


def test_a_network_that_the_pod_asked_for_can_be_plugged_out(node: Node) -> None:
    attach.delete(node.context("DEL"))
    node.add_network("blue", BLUE)
    node.add_pod(networks="blue@net5")
    attach.add(node.context("ADD"))
    node.plug("DEL")
    assert node.recorded() == ["eth0"]


def test_the_device_information_goes_with_the_interface(node: Node) -> None:
    node.plug("ADD", plug=Plug(network="shop/blue"))
    path = node.device_info.path("shop/blue", "c1", "net5")
    node.device_info.files[path] = {"type": "pci"}
    node.plug("DEL")
    assert node.device_info.files == {}


# --- CHECK and STATUS ---


def test_check_asks_every_plugin_of_a_list_with_what_was_recorded(node: Node) -> None:
    conf = {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "fake-a", "capabilities": {"mac": True}}, {"type": "fake-b"}]}
    node.plug("ADD", conf, Plug(ASKED))
    node.programs.made.clear()
    assert node.plug("CHECK", conf) is None
    first, second = node.programs.made
    assert node.ran() == [("CHECK", "fake-a", "net5"), ("CHECK", "fake-b", "net5")]
    assert (first.config["runtimeConfig"], "prevResult" in first.config, "prevResult" in second.config) == ({"mac": MAC}, True, True)


def test_check_passes_a_plugins_complaint(node: Node) -> None:
    node.plug("ADD")
    node.programs.answer("fake-a", "CHECK", DelegateError("link is down", "", 59))
    with pytest.raises(DelegateError) as caught:
        node.plug("CHECK")
    assert message(caught) == (59, f"{PLACE}: plugin 'fake-a': link is down")


def test_check_of_an_interface_that_was_never_plugged_is_code_3(node: Node) -> None:
    with pytest.raises(UnknownContainerError) as caught:
        node.plug("CHECK")
    assert message(caught) == (3, f"{PLACE}: interface 'net5' of container 'c1' is not attached")


def test_status_asks_the_plugin_and_passes_its_answer(node: Node) -> None:
    conf = {**BLUE, "cniVersion": "1.1.0"}
    assert node.plug("STATUS", conf, pod=PodArgs(), container_id="", netns="", ifname="") is None
    node.programs.answer("fake-a", "STATUS", NotAvailableError("bridge down", "br0"))
    with pytest.raises(MultusError) as caught:
        node.plug("STATUS", conf)
    assert (caught.value.code, caught.value.details) == (50, "br0")


def test_status_of_an_old_configuration_asks_nobody(node: Node) -> None:
    assert node.plug("STATUS") is None
    assert node.ran() == []


def test_gc_is_unknown_to_hot_plug(node: Node) -> None:
    with pytest.raises(InvalidEnvironmentError, match="'GC' is unknown to hot-plug"):
        node.plug("GC")


# --- Isolation ---

ISOLATED = {"namespaceIsolation": True}


@pytest.mark.parametrize("network", ["shop/blue", "default/blue"])
def test_isolation_allows_networks_of_the_pods_and_of_global_namespaces(node: Node, network: str) -> None:
    node.plug("ADD", plug=Plug(network=network), config=ISOLATED)
    assert (node.recorded(), node.record_of("net5").delegate.name) == (["eth0", "net5"], network)


@pytest.mark.parametrize("network", ["bank/blue", "kube-system/blue", "blue"])
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_isolation_refuses_networks_of_others(node: Node, network: str, command: str) -> None:
    with pytest.raises(ForbiddenError) as caught:
        node.plug(command, plug=Plug(network=network), config=ISOLATED)
    code, text = message(caught)
    assert (code, text.startswith(f"{PLACE}: namespace isolation: a pod of namespace 'shop' may not use")) == (100, True)
    assert (node.ran(), node.recorded()) == ([], ["eth0"])


def test_isolation_refuses_a_configuration_of_no_network(node: Node) -> None:
    with pytest.raises(ForbiddenError, match='has to name the net-attach-def of its configuration, as key "network"'):
        node.plug("ADD", config=ISOLATED)
    assert node.ran() == []


def test_isolation_never_keeps_an_interface_from_being_plugged_out(node: Node) -> None:
    node.plug("ADD")
    node.plug("DEL", config=ISOLATED)
    assert node.recorded() == ["eth0"]


def test_the_journal_is_locked_while_a_network_is_plugged(node: Node) -> None:
    node.calls.made.clear()
    node.plug("ADD")
    names = node.calls.names
    assert names.index("journal.locked") < names.index("programs.run") < names.index("journal.unlocked")
    assert node.calls.of("journal.locked") == [(False,)]
