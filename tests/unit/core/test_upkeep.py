"""CHECK, STATUS and GC."""

from __future__ import annotations

import json

import pytest

from multus.core import attach, upkeep
from multus.errors import DelegateError, InvalidConfigError, IOFailureError, MultusError, NotAvailableError, UnknownContainerError
from multus.protocol import conflists
from multus.testing.fakes import NETNS, DefaultRoute
from multus.testing.world import World
from multus.types.invocation import PodArgs


def a_network(name: str, **more: object) -> dict[str, object]:
    return {"cniVersion": "1.1.0", "name": name, "type": f"of-{name}", **more}


def a_world(networks: str = "blue") -> World:
    world = World("of-trunk", "of-blue", "of-red")
    world.config["delegates"] = [a_network("trunk")]
    world.add_pod(networks)
    world.add_network("blue", a_network("blue"))
    world.add_network("red", a_network("red"))
    return world


def attached(*containers: str, networks: str = "blue") -> World:
    """One in which these containers are attached; the second and later ones are of pods of their own."""
    world = a_world(networks)
    for container_id in containers or ("c1",):
        world.netns.namespaces[NETNS].links.clear()
        world.add_pod(networks, name=f"of-{container_id}")
        attach.add(world.context("ADD", container_id=container_id, pod=PodArgs("shop", f"of-{container_id}", "u1", container_id)))
    world.programs.made.clear()
    return world


def ran(world: World) -> list[tuple[str, str, str]]:
    return [(call.command, call.type, call.environment["CNI_CONTAINERID"]) for call in world.programs.made]


def collect(world: World, *alive: str, **config: object) -> None:
    valid = [{"containerID": container_id, "ifname": "eth0"} for container_id in alive]
    config = {"cni.dev/valid-attachments": valid, **config}
    upkeep.collect(world.context("GC", config, container_id="", netns="", ifname="", pod=PodArgs(), generic_args=()))


def told_valid(world: World) -> dict[str, list[tuple[str, str]]]:
    """What each type was told in its GC."""
    lists = {call.type: call.config["cni.dev/valid-attachments"] for call in world.programs.of("GC")}
    return {delegate_type: [(each["containerID"], each["ifname"]) for each in valid] for delegate_type, valid in lists.items()}


# --- CHECK ---


def test_check_asks_every_attachment_in_order() -> None:
    world = attached(networks="blue,red")
    upkeep.check(world.context("CHECK"))
    assert ran(world) == [("CHECK", "of-trunk", "c1"), ("CHECK", "of-blue", "c1"), ("CHECK", "of-red", "c1")]
    assert [call.ifname for call in world.programs.made] == ["eth0", "net1", "net2"]


def test_check_asks_no_api_server() -> None:
    world = attached()
    world.calls.made.clear()
    upkeep.check(world.context("CHECK"))
    assert [name for name in world.calls.names if name.startswith("kube.")] == []


def test_check_is_given_the_namespace_of_the_call() -> None:
    world = attached()
    upkeep.check(world.context("CHECK", netns="/run/netns/moved"))
    assert {call.environment["CNI_NETNS"] for call in world.programs.made} == {"/run/netns/moved"}


def test_check_of_a_container_that_was_never_attached_is_code_3() -> None:
    with pytest.raises(UnknownContainerError, match=r"\[shop/web/u1\]: container 'c1' is not attached"):
        upkeep.check(a_world().context("CHECK"))


def test_first_complaint_ends_check_with_place_and_code() -> None:
    world = attached(networks="blue,red")
    world.programs.answer("of-blue", "CHECK", DelegateError("address is gone", code=57))
    with pytest.raises(DelegateError) as caught:
        upkeep.check(world.context("CHECK"))
    assert (caught.value.code, caught.value.msg) == (57, "[shop/web/u1:blue]: interface 'net1': plugin 'of-blue': address is gone")
    assert len(world.programs.made) == 2


def test_check_of_a_failed_add_is_code_3() -> None:
    world = attached()
    world.journal.results.clear()
    with pytest.raises(UnknownContainerError):
        upkeep.check(world.context("CHECK"))


def test_check_passes_over_a_delegate_that_is_too_old_for_it() -> None:
    world = a_world("old")
    world.add_network("old", a_network("old", cniVersion="0.3.1"))
    world.programs.installed.add("of-old")
    attach.add(world.context("ADD"))
    upkeep.check(world.context("CHECK"))
    assert [call.type for call in world.programs.of("CHECK")] == ["of-trunk"]


def test_check_finds_a_default_route_that_moved_away() -> None:
    world = attached(networks=json.dumps([{"name": "blue", "default-route": ["198.51.100.1"]}]))
    upkeep.check(world.context("CHECK"))
    world.netns.namespaces[NETNS].routes = [DefaultRoute("eth0", 4, "192.0.2.1")]
    with pytest.raises(MultusError, match=r"\[shop/web/u1\]: default route"):
        upkeep.check(world.context("CHECK"))


# --- STATUS ---


def test_status_asks_all_that_every_pod_needs() -> None:
    world = a_world()
    world.conf_dir.names["blue"] = conflists.parse(a_network("blue"), where="a test")
    world.conf_dir.names["red"] = conflists.parse(a_network("red"), where="a test")
    upkeep.status(world.context("STATUS", {"clusterNetwork": "blue", "defaultNetworks": ["red"]}))
    assert ran(world) == [("STATUS", "of-blue", ""), ("STATUS", "of-red", "")]


def test_delegates_own_status_code_passes() -> None:
    world = a_world()
    world.programs.answer("of-trunk", "STATUS", DelegateError("no uplink", code=51))
    with pytest.raises(DelegateError) as caught:
        upkeep.status(world.context("STATUS"))
    assert (caught.value.code, caught.value.msg) == (51, "no uplink")


def test_status_of_a_network_that_is_nowhere_is_code_50() -> None:
    with pytest.raises(NotAvailableError, match="'nowhere'"):
        upkeep.status(a_world().context("STATUS", {"clusterNetwork": "nowhere"}))


def test_status_of_an_api_server_that_refuses_is_code_50() -> None:
    world = a_world()
    world.calls.fail("kube.net_attach_def", InvalidConfigError("kubeconfig /x cannot be used"))
    with pytest.raises(NotAvailableError, match="/x"):
        upkeep.status(world.context("STATUS", {"clusterNetwork": "blue"}))


def test_status_of_a_node_that_is_not_ready_is_code_50_at_once() -> None:
    world = a_world()
    with pytest.raises(NotAvailableError):
        upkeep.status(world.context("STATUS", {"readinessindicatorfile": "/run/ready"}))
    assert (world.clock.sleeps, world.programs.made) == ([], [])


# --- GC ---


def test_gc_detaches_what_the_runtime_does_not_count_and_keeps_the_rest() -> None:
    world = attached("c1", "c2")
    collect(world, "c1")
    assert ran(world)[:2] == [("DEL", "of-blue", "c2"), ("DEL", "of-trunk", "c2")]
    assert {key[0] for key in world.journal.results} == {"c1"}
    assert set(world.journal.records) == {"c1"}


def test_counted_container_keeps_all_its_interfaces() -> None:
    """The runtime counts eth0 alone, which is all it knows of."""
    world = attached("c1")
    collect(world, "c1")
    assert world.programs.of("DEL") == []
    assert told_valid(world) == {"of-trunk": [("c1", "eth0")], "of-blue": [("c1", "net1")]}


def test_every_network_is_told_its_own_attachments() -> None:
    world = attached("c1", "c2", networks="blue,blue,red")
    collect(world, "c1", "c2")
    assert told_valid(world) == {
        "of-trunk": [("c1", "eth0"), ("c2", "eth0")],
        "of-blue": [("c1", "net1"), ("c1", "net2"), ("c2", "net1"), ("c2", "net2")],
        "of-red": [("c1", "net3"), ("c2", "net3")],
    }


def test_network_of_the_configuration_is_collected_without_attachments() -> None:
    world = a_world()
    collect(world)
    assert told_valid(world) == {"of-trunk": []}


def test_network_of_a_stale_container_alone_is_told_that_nothing_is_valid() -> None:
    world = attached("c1")
    collect(world)
    assert told_valid(world) == {"of-trunk": [], "of-blue": []}
    assert (world.journal.records, world.journal.results) == ({}, {})


def test_detaching_comes_before_collecting() -> None:
    world = attached("c1", "c2")
    collect(world, "c1")
    commands = [command for command, _, _ in ran(world)]
    assert commands == sorted(commands)  # DEL before GC


def test_without_the_runtimes_list_nothing_is_stale() -> None:
    world = attached("c1", "c2")
    upkeep.collect(world.context("GC"))
    assert world.programs.of("DEL") == []
    assert told_valid(world)["of-blue"] == [("c1", "net1"), ("c2", "net1")]
    assert world.calls.of("device_info.prune") == []


def test_stale_results_without_a_record_are_detached() -> None:
    world = attached("c1")
    world.journal.records.clear()
    collect(world)
    assert ran(world)[:2] == [("DEL", "of-blue", "c1"), ("DEL", "of-trunk", "c1")]
    assert world.journal.results == {}


def test_what_cannot_be_detached_is_kept_and_named_and_the_rest_goes_on() -> None:
    world = attached("c1", "c2")
    world.programs.answer("of-blue", "DEL", DelegateError("busy", code=57), {})
    with pytest.raises(MultusError) as caught:
        collect(world)
    assert (caught.value.code, caught.value.msg) == (57, "[shop/of-c1/u1:blue]: cannot detach 'net1': plugin 'of-blue': busy")
    assert {container_id: [each.ifname for each in left] for container_id, left in world.journal.records.items()} == {"c1": ["net1"]}
    assert told_valid(world) == {"of-trunk": [], "of-blue": []}


def test_gc_gives_del_what_add_gave() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    added = {call.type: call.environment for call in world.programs.of("ADD")}
    collect(world)
    assert {call.type: call.environment for call in world.programs.of("DEL")} == {
        delegate_type: {**environment, "CNI_COMMAND": "DEL"} for delegate_type, environment in added.items()
    }


def test_gc_touches_no_link_of_our_own_namespace() -> None:
    """A recorded path below /proc may be that of a process of the host by now."""
    world = attached("c1")
    world.netns.own = NETNS
    collect(world)
    assert [call.environment["CNI_NETNS"] for call in world.programs.of("DEL")] == ["", ""]
    assert world.journal.records == {}


def test_failures_of_all_kinds_leave_as_one_error() -> None:
    world = attached("c1", "c2")
    world.programs.answer("of-blue", "DEL", DelegateError("busy", code=57))
    world.programs.answer("of-trunk", "GC", DelegateError("stuck", code=58))
    world.calls.fail("device_info.prune", IOFailureError("cannot list /devinfo"))
    with pytest.raises(MultusError) as caught:
        collect(world, "c2")
    assert caught.value.code == 57
    cause = caught.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert [each.code for each in cause.exceptions] == [57, 5, 58]
    assert [call.type for call in world.programs.of("GC")] == ["of-trunk", "of-blue"]


def test_unreadable_record_is_not_stale() -> None:
    """Nor may a network be told a list that lacks its attachments."""
    world = attached("c1", "c2")
    world.calls.fail("journal.read", IOFailureError("input/output error"))
    with pytest.raises(IOFailureError):
        collect(world)
    assert world.programs.made == []


@pytest.mark.parametrize(("alive", "config"), [(("c1", "c2"), {}), ((), {"cni.dev/valid-attachments": None})])
def test_no_network_is_collected_while_a_counted_containers_record_is_damaged(alive: tuple[str, ...], config: dict[str, object]) -> None:
    """The addresses of networks that nobody knows of any more would be given to others."""
    world = attached("c1", "c2")
    world.journal.damaged_ids = {"c2", "long-gone"}
    with pytest.raises(MultusError, match="containers 'c2' was damaged"):
        collect(world, *alive, **config)
    assert world.programs.of("GC") == []


def test_a_damaged_record_of_a_container_that_is_not_counted_stops_nothing() -> None:
    world = attached("c1", "c2")
    world.journal.damaged_ids = {"c2"}
    collect(world, "c1")
    assert told_valid(world) == {"of-trunk": [("c1", "eth0")], "of-blue": [("c1", "net1")]}


def test_configuration_that_cannot_be_resolved_does_not_stop_the_rest() -> None:
    world = attached("c1")
    collect(world, "c1", clusterNetwork="nowhere")
    assert world.log.events("warning") == ["gc.configuration.unusable"]
    assert told_valid(world) == {"of-trunk": [("c1", "eth0")], "of-blue": [("c1", "net1")]}


def test_device_information_of_other_containers_is_removed() -> None:
    world = attached("c1", "c2")
    world.device_info.files = {"/devinfo/x-c1_net1": {}, "/devinfo/x-gone_net1": {}}
    collect(world, "c1")
    assert world.calls.of("device_info.prune") == [(frozenset({"c1"}),)]
    assert list(world.device_info.files) == ["/devinfo/x-c1_net1"]


def test_gc_runs_alone() -> None:
    world = attached("c1")
    world.calls.made.clear()
    collect(world, "c1")
    assert world.calls.of("journal.locked") == [(True,)]
    assert (world.calls.names[0], world.calls.names[-1]) == ("journal.locked", "journal.unlocked")
