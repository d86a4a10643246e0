"""ADD and DEL with every port faked: what is attached stands whole or not at all, and what is detached is forgotten."""

from __future__ import annotations

import json

import pytest

from multus.core import attach
from multus.errors import (
    DelegateError,
    DelegateNotFoundError,
    ForbiddenError,
    InvalidConfigError,
    InvalidEnvironmentError,
    InvalidNetnsError,
    IOFailureError,
    MultusError,
    ObjectNotFoundError,
    TryAgainLaterError,
)
from multus.protocol import conflists, results
from multus.testing.fakes import NETNS, DefaultRoute, FakeNamespace
from multus.testing.world import World
from multus.types.config import PluginConf
from multus.types.invocation import Completed, Outcome, PodArgs
from multus.types.pod import STATUS_ANNOTATION

VF = "example.test/vf"
PLACE = "[shop/web/u1:"


def network(name: str, *types: str, **more: object) -> dict[str, object]:
    """A configuration of one plugin, or a list of several."""
    if len(types) == 1:
        return {"cniVersion": "1.0.0", "name": name, "type": types[0], **more}
    return {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": each} for each in types], **more}


def a_world(networks: str = "lan-a,lan-b") -> World:
    """eth0 by ``fake-primary``; ``lan-a`` and ``lan-b`` to be had."""
    world = World("fake-primary", "fake-a", "fake-b")
    world.add_pod(networks)
    world.add_network("lan-a", network("lan-a", "fake-a"))
    world.add_network("lan-b", network("lan-b", "fake-b"))
    return world


def a_busy_world() -> World:
    """Every port has work: a plugin list, a device with information, a default route that moves."""
    world = a_world(json.dumps([{"name": "lan-a", "default-route": ["198.51.100.1"]}, {"name": "vf"}]))
    world.add_network("lan-a", network("lan-a", "fake-a", "fake-b"))
    world.add_network("vf", network("vf", "fake-b", capabilities={"deviceID": True}), resource_name=VF)
    world.devices = {VF: ["0000:3b:02.1"]}
    world.device_info.devices[VF, "0000:3b:02.1"] = {"type": "pci", "version": "1.1.0"}
    world.programs.answer("fake-primary", "ADD", with_default_route)
    return world


def with_default_route(call):
    interface = {"name": call.ifname, "sandbox": call.environment["CNI_NETNS"]}
    routes = [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}, {"dst": "10.0.0.0/8", "gw": "192.0.2.1"}]
    return {"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": "192.0.2.5/24", "interface": 0}], "routes": routes}


def ran(world: World, command: str) -> list[tuple[str, str]]:
    """Type and interface of each call of a verb."""
    return [(call.type, call.ifname) for call in world.programs.of(command)]


def ifnames(world: World, command: str) -> list[str]:
    """The interfaces of the calls of a verb, each once."""
    return list(dict.fromkeys(ifname for _, ifname in ran(world, command)))


def nothing_is_left(world: World) -> bool:
    state = (world.journal.records, world.journal.results, world.device_info.files)
    return not any((world.programs.attached, world.netns.namespaces[NETNS].links, *state))


def busy(code: int = 11) -> DelegateError:
    return DelegateError("link busy: no such file or directory in pool", code=code)


def failed_add(world: World, **changes) -> MultusError:
    with pytest.raises(MultusError) as caught:
        attach.add(world.context("ADD", **changes))
    return caught.value


def failed_delete(world: World) -> MultusError:
    with pytest.raises(MultusError) as caught:
        attach.delete(world.context("DEL"))
    return caught.value


# --- ADD ---


def test_networks_are_attached_in_order_under_generated_names() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    assert ran(world, "ADD") == [("fake-primary", "eth0"), ("fake-a", "net1"), ("fake-b", "net2")]


def test_explicit_name_uses_up_its_position() -> None:
    world = a_world("lan-a@web0,lan-b")
    attach.add(world.context("ADD"))
    assert ifnames(world, "ADD") == ["eth0", "web0", "net2"]


def test_runtime_gets_the_cluster_networks_result_in_the_version_it_speaks() -> None:
    attached = attach.add(a_world().context("ADD", {"cniVersion": "0.4.0"}))
    assert attached.result.document["ips"] == [
        {"version": "4", "interface": 0, "address": "198.51.100.2/24", "gateway": "198.51.100.1"},
    ]


def test_record_is_written_before_the_first_delegate_runs() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    assert world.calls.names.index("journal.write") < world.calls.names.index("programs.run")


def test_nothing_is_looked_up_once_delegates_run() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    names = world.calls.names
    assert [name for name in names[names.index("programs.run") :] if name.startswith("kube.")] == ["kube.annotate_status"]


def test_pod_is_read_once_and_its_status_patched_once() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    assert [name for name in world.calls.names if name.startswith("kube.")] == [
        "kube.pod", "kube.net_attach_def", "kube.net_attach_def", "kube.annotate_status",
    ]  # fmt: skip


def test_status_tells_every_attachment() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    ((pod, key, value),) = world.kube.statuses
    assert (pod.name, key) == ("web", STATUS_ANNOTATION)
    assert [(entry["name"], entry["interface"], entry.get("default", False)) for entry in json.loads(value)] == [
        ("trunk", "eth0", True), ("shop/lan-a", "net1", False), ("shop/lan-b", "net2", False),
    ]  # fmt: skip


def test_pod_that_is_gone_by_the_time_of_its_status_is_attached_all_the_same() -> None:
    world = a_world()
    world.calls.fail("kube.annotate_status", ObjectNotFoundError("gone"))
    attach.add(world.context("ADD"))
    assert world.programs.of("DEL") == []
    assert world.log.events("warning") == ["status.pod.gone"]


def test_without_an_api_server_only_the_configured_delegates_are_attached() -> None:
    world = World("fake-primary", has_kube=False)
    attached = attach.add(world.context("ADD"))
    attach.announce(attached, world.context("ADD"))
    assert ran(world, "ADD") == [("fake-primary", "eth0")]
    assert world.kube.events == []


def test_chained_multus_hands_its_prev_result_to_the_cluster_network() -> None:
    world = a_world("")
    previous = {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "mtu": 1400, "sandbox": NETNS}]}
    attached = attach.add(world.context("ADD", {"prevResult": previous}))
    assert world.programs.of("ADD")[0].config["prevResult"] == {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}
    assert attached.result.document == {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}


def test_device_is_allocated_once_per_pod_and_its_information_published() -> None:
    world = a_busy_world()
    world.kube.pods["shop", "web"] = world.kube.pods["shop", "web"]._replace(annotations={"k8s.v1.cni.cncf.io/networks": "vf,vf"})
    world.devices = {VF: ["0000:3b:02.1", "0000:3b:02.2"]}
    attach.add(world.context("ADD"))
    assert [call.config["runtimeConfig"]["deviceID"] for call in world.programs.of("ADD", "fake-b")] == ["0000:3b:02.1", "0000:3b:02.2"]
    assert len(world.allocators) == 1
    told = [entry.get("device-info") for entry in json.loads(world.kube.statuses[0][2])]
    assert told == [None, {"type": "pci", "version": "1.1.0"}, None]


def test_auxiliary_chain_runs_last_on_the_cluster_networks_interface_and_has_no_status() -> None:
    world = World("fake-primary", "passthru", "tuning")
    world.add_pod()
    path = "/etc/cni/net.d/10-trunk.conflist"
    world.conf_dir.paths[path] = conflists.parse(network("trunk", "fake-primary"), where="a test")
    world.conf_dir.chains[path, "aux"] = (PluginConf({"type": "tuning", "mtu": 9000}, "tuning"),)
    attached = attach.add(world.context("ADD", {"clusterNetwork": path, "auxiliaryCNIChainName": "aux"}))
    attach.announce(attached, world.context("ADD"))
    assert ran(world, "ADD") == [("fake-primary", "eth0"), ("passthru", "eth0"), ("tuning", "eth0")]
    assert [entry["name"] for entry in json.loads(world.kube.statuses[0][2])] == ["trunk"]
    assert len(world.kube.events) == 1
    attach.delete(world.context("DEL"))
    assert ran(world, "DEL") == [("tuning", "eth0"), ("passthru", "eth0"), ("fake-primary", "eth0")]


def test_events_tell_what_stands() -> None:
    world = a_world("lan-a")
    attached = attach.add(world.context("ADD"))
    assert world.kube.events == []
    attach.announce(attached, world.context("ADD"))
    assert world.kube.events == [
        ("Normal", "AddedInterface", "Add eth0 [198.51.100.2/24] from trunk"),
        ("Normal", "AddedInterface", "Add net1 [198.51.100.2/24] from shop/lan-a"),
    ]


def test_failed_event_is_logged_and_ends_the_announcing() -> None:
    world = a_world("lan-a")
    attached = attach.add(world.context("ADD"))
    world.calls.fail("kube.create_event", TryAgainLaterError("busy"))
    attach.announce(attached, world.context("ADD"))
    assert world.kube.events == []
    assert world.log.events("error") == ["report.attachment.failed"]


# --- ADD that is refused before anything is done ---


def test_own_namespace_is_refused_before_anything() -> None:
    world = a_world()
    world.netns.own = NETNS
    assert failed_add(world).code == InvalidNetnsError.code
    assert world.calls.names == ["netns.is_own"]


def test_own_namespace_is_refused_by_del_as_well() -> None:
    world = a_world()
    world.netns.own = NETNS
    assert failed_delete(world).code == InvalidNetnsError.code
    assert world.calls.names == ["netns.is_own"]


def test_override_allows_the_own_namespace() -> None:
    world = a_world()
    world.netns.own = NETNS
    attach.add(world.context("ADD", netns_override=True))
    assert ifnames(world, "ADD") == ["eth0", "net1", "net2"]


def test_pod_that_does_not_exist_is_code_11_and_nothing_is_done() -> None:
    world = World("fake-primary")
    error = failed_add(world)
    assert error.code == TryAgainLaterError.code
    assert "shop/web" in error.msg
    assert "u1" in error.msg
    assert nothing_is_left(world)
    assert world.programs.made == []


def test_pod_that_does_not_exist_may_get_an_answer_without_addresses() -> None:
    world = World("fake-primary")
    attached = attach.add(world.context("ADD", {"podNotFoundResult": "empty"}))
    attach.announce(attached, world.context("ADD"))
    assert attached.result.document == {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}
    assert nothing_is_left(world)


def test_call_that_names_no_pod_is_code_4() -> None:
    assert failed_add(a_world(), pod=PodArgs()).code == InvalidEnvironmentError.code


def test_network_that_does_not_exist_is_an_event_of_its_own_reason() -> None:
    world = a_world("lan-a,nowhere")
    error = failed_add(world)
    assert error.code == ObjectNotFoundError.code
    assert [(kind, reason) for kind, reason, _ in world.kube.events] == [("Warning", "NoNetworkFound")]
    assert world.kube.events[0][2] == str(error)
    assert world.programs.made == []


def test_failed_event_about_a_problem_hides_nothing() -> None:
    world = a_world("lan-a,nowhere")
    world.calls.fail("kube.create_event", TryAgainLaterError("busy"))
    assert failed_add(world).code == ObjectNotFoundError.code
    assert "report.problem.failed" in world.log.events("error")


def test_undeclared_capability_is_an_event_and_the_pod_is_attached() -> None:
    world = a_world('[{"name":"lan-a","mac":"02:00:5e:00:00:4d"}]')
    attach.add(world.context("ADD"))
    assert [(kind, reason) for kind, reason, _ in world.kube.events] == [("Warning", "UndeclaredCapability")]
    assert "mac" in world.kube.events[0][2]
    assert ifnames(world, "ADD") == ["eth0", "net1"]


def test_interface_that_exists_already_fails_and_later_networks_are_not_touched() -> None:
    world = a_world("lan-a@busy0,lan-b")
    world.netns.namespaces[NETNS].links.add("busy0")
    error = failed_add(world)
    assert "'busy0' is taken" in error.msg
    assert ran(world, "ADD") == [("fake-primary", "eth0")]
    assert "net2" not in ifnames(world, "DEL")


# --- ADD that fails on the way ---


def test_delegates_code_is_kept_and_its_place_put_in_front_once() -> None:
    world = a_world()
    world.programs.answer("fake-b", "ADD", DelegateError("pool is empty", "192.0.2.0/24", 11))
    error = failed_add(world)
    assert error.document("1.1.0") == {
        "cniVersion": "1.1.0",
        "code": 11,
        "msg": "[shop/web/u1:lan-b]: cannot attach 'net2': plugin 'fake-b': pool is empty",
        "details": "192.0.2.0/24",
    }


def test_failed_add_is_an_event_and_nothing_else_is_announced() -> None:
    world = a_world()
    world.programs.answer("fake-b", "ADD", busy())
    error = failed_add(world)
    assert world.kube.events == [("Warning", "FailedAddNetworks", str(error))]


def test_failed_add_undoes_in_reverse_and_leaves_later_networks_alone() -> None:
    world = a_world()
    world.programs.answer("fake-a", "ADD", busy())
    failed_add(world)
    assert ran(world, "DEL") == [("fake-a", "net1"), ("fake-primary", "eth0")]


def test_undo_goes_on_after_a_failing_delegate_and_the_first_error_is_raised() -> None:
    world = a_world()
    world.programs.answer("fake-b", "ADD", busy(code=57))
    world.programs.answer("fake-a", "DEL", busy(code=999))
    assert failed_add(world).code == 57
    assert ran(world, "DEL") == [("fake-b", "net2"), ("fake-a", "net1"), ("fake-primary", "eth0")]
    assert [attachment.ifname for attachment in world.journal.results.values()] == ["net1"]
    assert [(attachment.ifname, attachment.has_failed) for attachment in world.journal.records["c1"]] == [
        ("eth0", False), ("net1", False), ("net2", True),
    ]  # fmt: skip


def test_network_whose_add_failed_does_not_keep_its_pod_from_being_deleted() -> None:
    world = a_world()
    world.programs.answer("fake-b", "ADD", busy())
    world.programs.answer("fake-b", "DEL", busy(code=57))
    failed_add(world)
    attach.delete(world.context("DEL"))
    assert [call.ifname for call in world.programs.of("DEL", "fake-b")] == ["net2", "net2"]
    assert "del.given_up" in world.log.events("error")
    assert (world.journal.records, world.journal.results) == ({}, {})


def test_network_whose_plugin_never_ran_does_not_keep_its_pod_from_being_deleted() -> None:
    """Its interface's name was taken, or the binary cannot be run."""
    taken, not_runnable = a_world("lan-a@lo"), a_world("lan-a")
    taken.netns.namespaces[NETNS].links.add("lo")
    error = IOFailureError("/opt/cni/bin/fake-a cannot be run: Exec format error")
    error.attached_nothing = True
    not_runnable.programs.answer("fake-a", "ADD", error)
    for world in (taken, not_runnable):
        world.programs.answer("fake-a", "DEL", busy(code=57))
        failed_add(world)
        attach.delete(world.context("DEL"))
        assert "del.given_up" in world.log.events("error")
        assert (world.journal.records, world.journal.results) == ({}, {})


@pytest.mark.parametrize("name", ["programs.run", "journal.write_result"])
def test_network_that_may_be_attached_is_not_given_up(name: str) -> None:
    """Its ADD was interrupted, or went well and could not be recorded."""
    world = a_world("lan-a")
    error = {"programs.run": KeyboardInterrupt(), "journal.write_result": IOFailureError("disk full")}[name]
    world.calls.fail(name, None, error)
    world.programs.answer("fake-a", "DEL", busy(), busy(), {})
    with pytest.raises(type(error)):
        attach.add(world.context("ADD"))
    failed_delete(world)
    assert [attachment.ifname for attachment in world.journal.records["c1"]] == ["net1"]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_undo_gives_the_result_that_could_not_be_recorded() -> None:
    world = a_world("")
    world.calls.fail("journal.write_result", IOFailureError("disk full"))
    failed_add(world)
    (call,) = world.programs.of("DEL")
    assert call.config["prevResult"]["interfaces"][0]["name"] == "eth0"


def test_undo_whose_record_cannot_be_written_goes_on_and_the_first_record_stays() -> None:
    world = a_world()
    world.programs.answer("fake-a", "ADD", busy())
    world.calls.fail("journal.write", None, IOFailureError("disk full"))
    assert failed_add(world).code == 11
    assert ran(world, "DEL") == [("fake-a", "net1"), ("fake-primary", "eth0")]
    assert [attachment.ifname for attachment in world.journal.records["c1"]] == ["eth0", "net1", "net2"]


@pytest.mark.parametrize("fails_del", [True, False])
def test_forgetting_a_failed_network_that_cannot_be_written_fails_del_and_the_next_one_finishes(fails_del: bool) -> None:
    world = a_world("lan-a")
    world.programs.answer("fake-a", "ADD", busy())
    failed_add(world)
    if fails_del:
        world.programs.answer("fake-a", "DEL", busy())
    world.calls.fail("journal.write", IOFailureError("disk full"))
    world.kube.pods.clear()
    assert failed_delete(world).code == IOFailureError.code
    attach.delete(world.context("DEL"))
    assert world.journal.records == {}


def test_undo_goes_on_after_a_plugins_fault() -> None:
    world = a_world()
    world.programs.answer("fake-b", "ADD", busy())

    class Faulty:
        def multus_invoke_delegate(self, invocation, delegate, config):
            if (invocation.command, invocation.type) == ("DEL", "fake-a"):
                raise ValueError("a fault")

    world.plugins.append(Faulty())
    assert failed_add(world).code == 11
    assert ran(world, "DEL") == [("fake-b", "net2"), ("fake-primary", "eth0")]


def test_default_route_that_does_not_move_fails_and_undoes() -> None:
    world = a_busy_world()
    world.netns.keeps_routes = True
    error = failed_add(world)
    assert "default route" in error.msg
    assert ifnames(world, "DEL") == ["net2", "net1", "eth0"]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_default_route_moves_in_kernel_and_results() -> None:
    world = a_busy_world()
    attached = attach.add(world.context("ADD"))
    assert world.netns.namespaces[NETNS].routes == [DefaultRoute("net1", 4, "198.51.100.1", 0)]
    assert [route.dst for route in results.view(attached.result).routes] == ["10.0.0.0/8"]
    recorded = {key[2]: [tuple(route) for route in results.view(each.result).routes] for key, each in world.journal.results.items()}
    assert recorded == {"eth0": [("10.0.0.0/8", "192.0.2.1")], "net1": [("0.0.0.0/0", "198.51.100.1")], "net2": []}


NEVER_FAILS = ("netns.is_own", "journal.unlocked")
NOT_ESSENTIAL = ("device_info.publish", "device_info.read")


def _steps() -> list[tuple[int, str]]:
    """The calls of an ADD that goes well, as far as it fails if they do."""
    world = a_busy_world()
    attach.add(world.context("ADD"))
    return [(position, name) for position, name in enumerate(world.calls.names) if name not in NEVER_FAILS + NOT_ESSENTIAL]


STEPS = _steps()
at_every_step = pytest.mark.parametrize(("position", "name"), STEPS, ids=[f"{position}-{name}" for position, name in STEPS])


def test_steps_cover_every_port() -> None:
    assert {name for _, name in STEPS} >= {
        "kube.pod", "kube.net_attach_def", "kube.annotate_status",
        "journal.locked", "journal.read", "journal.write", "journal.write_result",
        "netns.has_link", "netns.default_routes", "netns.remove_default_routes", "netns.add_default_route", "programs.run",
        "devices.take",
    }  # fmt: skip


@pytest.mark.parametrize("name", NOT_ESSENTIAL)
def test_device_information_that_cannot_be_had_is_logged_and_the_pod_attached(name: str) -> None:
    world = a_busy_world()
    world.calls.fail(name, IOFailureError("disk full"))
    attach.add(world.context("ADD"))
    assert ifnames(world, "ADD") == ["eth0", "net1", "net2"]
    assert [event for event in world.log.events("warning") if event.startswith("device_info.")] != []
    assert all("device-info" not in entry for entry in json.loads(world.kube.statuses[0][2]))


@at_every_step
@pytest.mark.parametrize(
    "error", [IOFailureError("injected"), KeyboardInterrupt("injected"), RuntimeError("injected")], ids=lambda error: type(error).__name__
)
def test_add_that_fails_at_any_step_is_undone(position: int, name: str, error: BaseException) -> None:
    world = a_busy_world()
    world.calls.fail_at(position, error)
    with pytest.raises(type(error)) as caught:
        attach.add(world.context("ADD"))
    begun, undone = ifnames(world, "ADD"), ifnames(world, "DEL")
    assert "injected" in str(caught.value)
    assert [ifname for ifname in undone if ifname in begun] == begun[::-1]
    assert len(undone) - len(begun) in (0, 1)  # the attachment whose interface name could not be looked up, or none
    assert (world.programs.attached, world.journal.results, world.device_info.files) == (set(), {}, {})
    assert world.kube.statuses == []
    recorded = [attachment.ifname for attachment in world.journal.records.get("c1", ())]
    assert recorded == undone[::-1]  # what never began needs no DEL
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


@at_every_step
def test_error_of_any_step_tells_its_place_once(position: int, name: str) -> None:
    world = a_busy_world()
    world.calls.fail_at(position, IOFailureError("injected"))
    error = failed_add(world)
    assert error.code == IOFailureError.code
    if name != "journal.locked":  # raised as the block is entered, which has no place of its own
        assert error.msg.count("[shop/web/u1") == 1


@at_every_step
def test_add_after_a_failure_at_any_step_attaches_everything_afresh(position: int, name: str) -> None:
    world = a_busy_world()
    world.calls.fail_at(position, IOFailureError("injected"))
    failed_add(world)
    attach.add(world.context("ADD"))
    assert {(delegate_type, ifname) for delegate_type, _, ifname in world.programs.attached} == {
        ("fake-primary", "eth0"), ("fake-a", "net1"), ("fake-b", "net1"), ("fake-b", "net2"),
    }  # fmt: skip
    assert sorted(attachment.ifname for attachment in world.journal.results.values()) == ["eth0", "net1", "net2"]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


# --- ADD after ADD ---


def test_add_of_a_container_that_stands_is_refused_and_touches_nothing() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    records, attached, made = dict(world.journal.records), dict(world.journal.results), len(world.programs.made)
    assert "attached already" in failed_add(world).msg
    assert (world.journal.records, world.journal.results, len(world.programs.made)) == (records, attached, made)


def test_add_after_a_killed_one_finishes_undoing_it_first() -> None:
    """Killed while net1 was attached: the record is whole, and the only result is eth0's."""
    world = a_world()
    attach.add(world.context("ADD"))
    for key in [key for key in world.journal.results if key[2] != "eth0"]:
        del world.journal.results[key]
    world.programs.made.clear()
    attach.add(world.context("ADD"))
    assert [(call.command, call.ifname) for call in world.programs.made] == [
        ("DEL", "net2"), ("DEL", "net1"), ("DEL", "eth0"), ("ADD", "eth0"), ("ADD", "net1"), ("ADD", "net2"),
    ]  # fmt: skip


def test_add_that_cannot_finish_undoing_attaches_nothing_and_keeps_what_is_left() -> None:
    world = a_world()
    world.programs.answer("fake-b", "ADD", busy())
    world.programs.answer("fake-a", "DEL", busy(code=57))
    failed_add(world)
    world.programs.made.clear()
    error = failed_add(world)
    assert (error.code, error.msg.count(PLACE), error.msg.count("[shop/web/u1")) == (57, 1, 1)
    assert world.programs.of("ADD") == []
    assert [attachment.ifname for attachment in world.journal.records["c1"]] == ["net1"]


# --- DEL ---


def test_del_runs_in_reverse_with_what_add_gave_and_got() -> None:
    world = a_busy_world()
    attach.add(world.context("ADD"))
    results_of_add = {key[2]: each.result.document for key, each in world.journal.results.items()}
    world.kube.pods.clear()
    attach.delete(world.context("DEL"))
    assert ran(world, "DEL") == [("fake-b", "net2"), ("fake-b", "net1"), ("fake-a", "net1"), ("fake-primary", "eth0")]
    for call in world.programs.of("DEL"):
        (of_add,) = [added for added in world.programs.of("ADD", call.type) if added.ifname == call.ifname]
        given = {key: value for key, value in of_add.config.items() if key != "prevResult"}
        assert call.config == {**given, "prevResult": results_of_add[call.ifname]}
        assert call.environment == {**of_add.environment, "CNI_COMMAND": "DEL"}


def test_del_of_a_recorded_container_asks_no_api_server() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.calls.made.clear()
    attach.delete(world.context("DEL"))
    assert [name for name in world.calls.names if name.startswith("kube.")] == []


def test_del_continues_after_a_failing_delegate_and_keeps_its_record_alone() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.programs.answer("fake-a", "DEL", busy(code=999), {})
    error = failed_delete(world)
    assert ran(world, "DEL") == [("fake-b", "net2"), ("fake-a", "net1"), ("fake-primary", "eth0")]
    assert (error.code, error.msg) == (
        999, "[shop/web/u1:lan-a]: cannot detach 'net1': plugin 'fake-a': link busy: no such file or directory in pool",
    )  # fmt: skip
    assert [attachment.ifname for attachment in world.journal.records["c1"]] == ["net1"]
    assert [key[2] for key in world.journal.results] == ["net1"]


def test_second_del_calls_what_is_left_with_the_same_input_and_the_third_nothing() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.kube.pods.clear()
    world.programs.answer("fake-a", "DEL", busy(), {})
    failed_delete(world)
    first = world.programs.of("DEL", "fake-a")[0]
    world.programs.made.clear()
    attach.delete(world.context("DEL"))
    assert world.programs.made == [first]
    assert nothing_is_left(world)
    world.programs.made.clear()
    attach.delete(world.context("DEL"))
    assert world.programs.made == []


def test_failures_leave_as_one_error_with_the_first_code_and_all_messages() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.programs.answer("fake-b", "DEL", DelegateError("no lease", "lease 7", 57))
    world.programs.answer("fake-primary", "DEL", DelegateError("no bridge", "br0", 58))
    error = failed_delete(world)
    assert error.code == 57
    assert error.msg == (
        "2 failures: [shop/web/u1:lan-b]: cannot detach 'net2': plugin 'fake-b': no lease / "
        "[shop/web/u1:trunk]: cannot detach 'eth0': plugin 'fake-primary': no bridge"
    )
    assert error.details == "lease 7; br0"
    assert isinstance(error.__cause__, ExceptionGroup)
    assert [each.code for each in error.__cause__.exceptions] == [57, 58]


def test_fault_of_a_plugin_in_del_is_code_999_and_the_others_are_detached() -> None:
    world = a_world("lan-a")

    class Faulty:
        def multus_invoke_delegate(self, invocation, delegate, config):
            if (invocation.command, invocation.type) == ("DEL", "fake-a"):
                raise ValueError("a fault")

    attach.add(world.context("ADD"))
    world.plugins.append(Faulty())
    error = failed_delete(world)
    assert (error.code, error.msg) == (999, "[shop/web/u1:lan-a]: cannot detach 'net1': internal error: ValueError: a fault")
    assert ran(world, "DEL") == [("fake-primary", "eth0")]


def test_failed_list_keeps_its_result_for_the_next_del() -> None:
    world = a_busy_world()
    attach.add(world.context("ADD"))
    world.programs.answer("fake-a", "DEL", busy(), {})
    failed_delete(world)
    attach.delete(world.context("DEL"))
    first, second = world.programs.of("DEL", "fake-a")
    assert first == second
    assert "prevResult" in second.config
    assert nothing_is_left(world)


def test_del_is_given_the_namespace_of_the_call() -> None:
    world = a_world("")
    attach.add(world.context("ADD"))
    attach.delete(world.context("DEL", netns=""))
    assert [call.environment["CNI_NETNS"] for call in world.programs.of("DEL")] == [""]


def test_del_without_a_record_detaches_what_the_pod_asks_for() -> None:
    world = a_world()
    attach.delete(world.context("DEL"))
    assert ran(world, "DEL") == [("fake-b", "net2"), ("fake-a", "net1"), ("fake-primary", "eth0")]
    assert all("prevResult" not in call.config for call in world.programs.made)
    assert world.journal.records == {}


def test_del_without_a_record_keeps_what_failed() -> None:
    world = a_world()
    world.programs.answer("fake-a", "DEL", busy())
    failed_delete(world)
    assert [attachment.ifname for attachment in world.journal.records["c1"]] == ["net1"]


def test_del_without_a_record_of_an_unusable_annotation_detaches_the_configured_delegates() -> None:
    world = a_world("lan-a,")
    attach.delete(world.context("DEL"))
    assert ran(world, "DEL") == [("fake-primary", "eth0")]
    assert world.log.events("warning") == ["del.annotations.unusable"]


def test_del_of_which_nothing_can_be_known_succeeds() -> None:
    world = a_world("nowhere")
    attach.delete(world.context("DEL", {"clusterNetwork": "gone"}))
    assert world.programs.made == []
    assert world.log.events("warning") == ["del.annotations.unusable", "del.nothing.known"]


@pytest.mark.parametrize(
    "error", [ObjectNotFoundError("gone"), TryAgainLaterError("down"), ForbiddenError("no"), InvalidConfigError("kubeconfig")]
)
def test_del_without_a_record_of_a_pod_that_cannot_be_had_succeeds(error: MultusError) -> None:
    world = a_world()
    world.calls.fail("kube.pod", error)
    attach.delete(world.context("DEL"))
    assert world.programs.made == []


def test_del_without_a_record_leaves_another_pod_of_that_name_alone() -> None:
    world = a_world()
    attach.delete(world.context("DEL", pod=PodArgs("shop", "web", "of-another-pod", "c1")))
    assert world.programs.made == []


def test_record_that_is_lost_is_made_up_for_by_the_results() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.journal.records.clear()
    world.kube.pods.clear()
    attach.delete(world.context("DEL"))
    assert ran(world, "DEL") == [("fake-b", "net2"), ("fake-a", "net1"), ("fake-primary", "eth0")]


def test_delegate_that_never_ran_and_has_no_binary_needs_no_del() -> None:
    world = a_world()
    world.programs.installed.remove("fake-b")
    assert failed_add(world).code == DelegateNotFoundError.code
    assert ran(world, "DEL") == [("fake-a", "net1"), ("fake-primary", "eth0")]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_delegate_that_ran_and_lost_its_binary_keeps_its_record() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.programs.installed.remove("fake-b")
    assert failed_delete(world).code == DelegateNotFoundError.code
    assert [attachment.ifname for attachment in world.journal.records["c1"]] == ["net2"]


@pytest.mark.parametrize("name", ["journal.write", "journal.remove_result", "device_info.remove"])
def test_state_that_cannot_be_removed_fails_del_and_the_next_one_finishes(name: str) -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    world.calls.fail(name, IOFailureError("disk full"))
    assert failed_delete(world).code == IOFailureError.code
    assert ifnames(world, "DEL") == ["net2", "net1", "eth0"]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_unreadable_record_fails_del_and_runs_nothing() -> None:
    """It may not be taken for missing: the next DEL finds it again."""
    world = a_world()
    attach.add(world.context("ADD"))
    world.programs.made.clear()
    world.calls.fail("journal.read", IOFailureError("input/output error"))
    assert failed_delete(world).code == IOFailureError.code
    assert world.programs.made == []


def test_add_and_del_share_the_lock_for_all_they_do() -> None:
    world = a_world()
    attach.add(world.context("ADD"))
    attach.delete(world.context("DEL"))
    assert world.calls.of("journal.locked") == [(False,), (False,)]
    names = [name for name in world.calls.names if name in ("journal.locked", "journal.unlocked", "programs.run", "journal.write")]
    assert [names[0], names[-1]] == ["journal.locked", "journal.unlocked"]
    assert names.index("journal.unlocked") < len(names) - 1 - names[::-1].index("journal.locked")


def test_raise_all_of_nothing_is_nothing() -> None:
    attach.raise_all([])


def test_raise_all_of_one_is_that_one() -> None:
    error = busy()
    with pytest.raises(DelegateError) as caught:
        attach.raise_all([error])
    assert caught.value is error


def test_result_of_a_plugin_without_interfaces_is_returned_as_it_is() -> None:
    world = a_world("")
    world.programs.answer("fake-primary", "ADD", Completed(0, b'{"cniVersion":"1.0.0"}', b"a warning"))
    attached = attach.add(world.context("ADD", {"cniVersion": "1.0.0"}))
    assert attached.result.document == {"cniVersion": "1.0.0"}
    assert world.programs.forwarded == [b"a warning"]


def test_merging_plugin_decides_the_answer() -> None:
    world = a_world("lan-a")

    class Merging:
        def multus_merge_results(self, attachments, config):
            return attachments[-1].result

    world.plugins.append(Merging())
    attached = attach.add(world.context("ADD"))
    assert [interface.name for interface in results.view(attached.result).interfaces] == ["net1"]


def test_plugin_that_executes_is_asked_before_the_binary() -> None:
    world = a_world("")

    class Executing:
        def multus_invoke_delegate(self, invocation, delegate, config):
            return Outcome(results.empty("1.0.0"))

    world.plugins.append(Executing())
    attach.add(world.context("ADD"))
    assert world.programs.made == []


def test_namespace_that_is_gone_fails_add_with_code_8() -> None:
    world = a_world()
    world.netns.namespaces = {"/run/netns/other": FakeNamespace()}
    assert failed_add(world).code == InvalidNetnsError.code
    assert world.programs.of("ADD") == []


# --- A network that could never be attached ---


def test_del_gives_up_a_network_whose_add_had_failed_and_whose_del_fails_too() -> None:
    """A macvlan without its master fails ADD and DEL alike; kept on record it would keep its pod from being deleted."""
    world = a_world()
    world.programs.answer("fake-a", "ADD", DelegateError("no master"))
    world.programs.answer("fake-a", "DEL", DelegateError("no master"))
    failed_add(world)
    attach.delete(world.context("DEL"))
    assert {} == world.journal.records


def test_del_after_a_killed_add_keeps_what_it_cannot_detach() -> None:
    """Nobody has said that the network is not attached."""
    world = a_world()
    attach.add(world.context("ADD"))
    world.journal.results.clear()  # as after kill -9 before any result was written
    world.programs.answer("fake-a", "DEL", DelegateError("link busy"))
    failed_delete(world)
    assert ["net1"] == [attachment.ifname for attachment in world.journal.records["c1"]]


@pytest.mark.parametrize("failure", [Completed(-9, b"", b""), Completed(0, b"hello", b"")])
def test_del_keeps_a_network_whose_add_failed_without_an_answer(failure: Completed) -> None:
    """Killed, or succeeded with garbage: it may well be attached."""
    world = a_world("lan-a")
    world.programs.answer("fake-a", "ADD", failure)
    world.programs.answer("fake-a", "DEL", DelegateError("link busy"))
    failed_add(world)
    failed_delete(world)
    assert ["net1"] == [attachment.ifname for attachment in world.journal.records["c1"]]


def test_del_keeps_a_list_whose_second_plugin_failed() -> None:
    """The first one has attached, and holds an address."""
    world = a_world("lan-a")
    world.add_network("lan-a", network("lan-a", "fake-a", "fake-b"))
    world.programs.answer("fake-b", "ADD", DelegateError("no such sysctl"))
    world.programs.answer("fake-a", "DEL", DelegateError("link busy"))
    failed_add(world)
    failed_delete(world)
    assert ["net1"] == [attachment.ifname for attachment in world.journal.records["c1"]]
