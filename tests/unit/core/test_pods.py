"""The pod of a call: waited for, read, and compared with what the runtime says."""

from __future__ import annotations

import pytest

from multus.core import pods
from multus.errors import InvalidEnvironmentError, MultusError, NotAvailableError, ObjectNotFoundError, TryAgainLaterError
from multus.testing.fakes import NETNS
from multus.testing.world import World
from multus.types.invocation import PodArgs
from multus.types.result import Result

INDICATOR = {"readinessindicatorfile": "/run/net/ready"}


class AppearsAfter:
    """A readiness indicator file that is there from some look on."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def __call__(self, path: str) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_no_indicator_file_is_no_wait() -> None:
    world = World()
    pods.wait_until_ready(world.context())
    assert world.clock.sleeps == []


def test_file_that_is_there_is_no_wait() -> None:
    world = World()
    world.paths.add("/run/net/ready")
    pods.wait_until_ready(world.context("ADD", INDICATOR))
    assert world.clock.sleeps == []


def test_file_is_looked_for_every_second_until_it_appears() -> None:
    world = World()
    pods.wait_until_ready(world.context("ADD", INDICATOR)._replace(readiness=AppearsAfter(3)))
    assert world.clock.sleeps == [1.0, 1.0, 1.0]


def test_file_that_does_not_appear_within_45_s_is_code_11_and_named() -> None:
    world = World()
    with pytest.raises(TryAgainLaterError, match="'/run/net/ready'"):
        pods.wait_until_ready(world.context("ADD", INDICATOR))
    assert sum(world.clock.sleeps) == 45.0


def test_probe_does_not_wait_and_is_code_50() -> None:
    world = World()
    with pytest.raises(NotAvailableError) as caught:
        pods.require_ready(world.context("STATUS", INDICATOR))
    assert (caught.value.code, world.clock.sleeps) == (50, [])


@pytest.mark.parametrize("config", [INDICATOR, {}])
def test_probe_passes_when_the_file_is_there_or_none_is_configured(config: dict[str, str]) -> None:
    world = World()
    world.paths.add("/run/net/ready")
    pods.require_ready(world.context("STATUS", config))


def test_without_an_api_server_there_is_no_pod() -> None:
    world = World(has_kube=False)
    assert (pods.for_add(world.context()), pods.for_delete(world.context())) == (None, None)


def test_pod_of_the_uid_that_the_runtime_asks_for_is_found() -> None:
    world = World()
    pod = world.add_pod("blue")
    assert pods.for_add(world.context()) == pod
    assert pods.for_delete(world.context()) == pod
    assert world.calls.of("kube.pod") == [("shop", "web", "u1")] * 2


def test_runtime_that_gives_no_uid_gets_the_pod_of_that_name() -> None:
    world = World()
    pod = world.add_pod()
    assert pods.for_add(world.context(pod=PodArgs("shop", "web"))) == pod


def test_pod_of_another_uid_fails_add_and_both_are_named() -> None:
    world = World()
    world.add_pod(uid="u2")
    with pytest.raises(MultusError, match=r"'u2'.*'u1'") as caught:
        pods.for_add(world.context())
    assert caught.value.code == 999


def test_pod_of_another_uid_is_none_of_dels() -> None:
    world = World()
    world.add_pod(uid="u2")
    assert pods.for_delete(world.context()) is None


def test_mirror_pod_has_another_uid_and_is_the_one() -> None:
    world = World()
    pod = world.add_pod(uid="u2", annotations={"kubernetes.io/config.source": "file"})
    assert pods.for_add(world.context()) == pod
    assert pods.for_delete(world.context()) == pod


def test_pod_from_the_api_is_no_mirror_pod() -> None:
    world = World()
    world.add_pod(uid="u2", annotations={"kubernetes.io/config.source": "api"})
    with pytest.raises(MultusError):
        pods.for_add(world.context())


@pytest.mark.parametrize("pod", [PodArgs(), PodArgs(namespace="shop"), PodArgs(name="web")])
def test_call_that_names_no_pod_is_code_4_for_add_and_no_pod_for_del(pod: PodArgs) -> None:
    world = World()
    with pytest.raises(InvalidEnvironmentError):
        pods.for_add(world.context(pod=pod))
    assert pods.for_delete(world.context(pod=pod)) is None
    assert world.calls.made == []


def test_pod_that_is_not_there_is_code_11_with_name_and_uid() -> None:
    with pytest.raises(TryAgainLaterError, match="shop/web with UID 'u1'") as caught:
        pods.for_add(World().context())
    assert caught.value.code == 11


def test_api_server_that_does_not_answer_fails_add_as_it_says() -> None:
    world = World()
    error = TryAgainLaterError("no answer within 30 s")
    world.calls.fail("kube.pod", error)
    with pytest.raises(TryAgainLaterError) as caught:
        pods.for_add(world.context("ADD", {"podNotFoundResult": "empty"}))
    assert caught.value is error


@pytest.mark.parametrize("error", [ObjectNotFoundError("gone"), TryAgainLaterError("down")])
def test_pod_that_del_cannot_have_is_logged_and_none(error: MultusError) -> None:
    world = World()
    world.calls.fail("kube.pod", error)
    assert pods.for_delete(world.context()) is None
    assert world.log.events("warning") == ["del.pod.unknown"]


@pytest.mark.parametrize(
    ("version", "document"),
    [
        ("1.1.0", {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}),
        ("0.4.0", {"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}], "dns": {}}),
        ("0.2.0", {"cniVersion": "0.2.0", "dns": {}}),
        ("0.1.0", {"cniVersion": "0.1.0", "dns": {}}),
    ],
)
def test_answer_for_a_pod_that_is_gone_has_the_callers_version_and_no_address(version: str, document: dict[str, object]) -> None:
    world = World()
    assert pods.for_add(world.context("ADD", {"podNotFoundResult": "empty", "cniVersion": version})) == Result(document)
