"""The fakes behave as the ports promise, where our own tests do not show it anyway."""

from __future__ import annotations

import pytest

from multus.core import attach, ports
from multus.errors import InvalidConfigError, IOFailureError, ObjectNotFoundError, TryAgainLaterError
from multus.testing import fakes
from multus.testing.world import World
from multus.types.pod import Pod


def test_scripted_errors_come_in_turn_and_none_lets_a_call_pass() -> None:
    calls = fakes.Calls()
    calls.fail("a.b", IOFailureError("first"), None, IOFailureError("third"))
    outcomes = []
    for _ in range(4):
        try:
            calls.note("a.b", 1)
            outcomes.append("")
        except IOFailureError as exc:
            outcomes.append(exc.msg)
    assert outcomes == ["first", "", "third", ""]
    assert calls.of("a.b") == [(1,)] * 4


def test_call_fails_at_a_position_over_all_fakes() -> None:
    world = World("bridge")
    world.add_pod()
    world.calls.fail_at(1, TryAgainLaterError("down"))
    with pytest.raises(TryAgainLaterError):
        attach.add(world.context("ADD"))
    assert world.calls.names == ["netns.is_own", "kube.pod"]


def test_kube_answers_what_it_holds_and_refuses_the_rest() -> None:
    kube = fakes.FakeKube()
    kube.objects["/api/v1/nodes/n1"] = {"kind": "Node"}
    assert kube.get("/api/v1/nodes/n1") == {"kind": "Node"}
    with pytest.raises(ObjectNotFoundError):
        kube.get("/api/v1/nodes/n2")
    with pytest.raises(ObjectNotFoundError):
        kube.annotate_status(Pod("shop", "web", "u1"), "key", "value")
    assert kube.statuses == []


def test_default_route_of_the_same_metric_is_refused_and_an_identical_one_is_there_already() -> None:
    netns = fakes.FakeNetns(namespaces={fakes.NETNS: fakes.FakeNamespace("eth0", "net1")})
    netns.add_default_route(fakes.NETNS, "eth0", "192.0.2.1", 0)
    netns.add_default_route(fakes.NETNS, "eth0", "192.0.2.1", 0)
    assert netns.default_routes(fakes.NETNS, "eth0", 4) == ("192.0.2.1",)
    with pytest.raises(IOFailureError):
        netns.add_default_route(fakes.NETNS, "net1", "198.51.100.1", 0)
    with pytest.raises(IOFailureError, match="net9"):
        netns.default_routes(fakes.NETNS, "net9", 4)


def test_link_takes_its_routes_along() -> None:
    namespace = fakes.FakeNamespace("eth0", routes=(fakes.DefaultRoute("eth0", 4, "192.0.2.1"),))
    namespace.remove_link("eth0")
    assert (namespace.links, namespace.routes) == (set(), [])


def test_in_process_delegates_and_files_are_found_by_name() -> None:
    serves = object()
    assert (fakes.FakeRegistry({"bridge": serves}).delegate("bridge"), fakes.FakeRegistry().delegate("bridge")) == (serves, None)
    world = World("bridge")
    world.paths.add("/run/ready")
    assert world.context().readiness("/run/ready")


def test_devices_run_out() -> None:
    devices = fakes.FakeDevices(devices={"vf": ["a"]})
    assert devices.take("vf", "blue") == "a"
    with pytest.raises(InvalidConfigError, match="'vf'"):
        devices.take("vf", "blue")


def test_intents_wait_until_dropped_or_put_aside() -> None:
    intents = fakes.FakeIntentStore(intents={"1": b"a", "2": b"b"})
    assert (intents.names(), intents.read("1")) == (["1", "2"], b"a")
    intents.drop("1")
    intents.put_aside("2")
    assert (intents.names(), intents.aside) == ([], {"2": b"b"})


def test_log_keeps_level_event_and_bound_fields() -> None:
    log = fakes.RecordingLog()
    log.bind(pod="web").debug("event", ifname="net1")
    assert (log.lines, log.events("debug")) == ([("debug", "event", {"pod": "web", "ifname": "net1"})], ["event"])


def the_ports(world: World) -> tuple[ports.Kube, ports.Journal, ports.Netns, ports.Programs, ports.Registry, ports.Clock, ports.ConfDir,
                                     ports.DeviceInfoFiles, ports.Devices, ports.Log, ports.IntentStore]:  # fmt: skip
    """For the type checker: every fake is its port."""
    return (
        world.kube, world.journal, world.netns, world.programs, world.registry, world.clock, world.conf_dir, world.device_info,
        fakes.FakeDevices(), world.log, fakes.FakeIntentStore(),
    )  # fmt: skip


def test_every_fake_is_its_port() -> None:
    assert len(the_ports(World())) == 11
