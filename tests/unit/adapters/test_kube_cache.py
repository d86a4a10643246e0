"""What a request is given from the caches, and what it is given live."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from multus.adapters.kube_cache import KubeCache
from multus.errors import InvalidConfigError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol.api_errors import NO_ANSWER, Answer
from multus.testing.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.protocol.watches import Document


class FakeInformer:
    """An informer that catches up when it is waited for, if it is to."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.objects: dict[tuple[str, str], Document] = {}
        self.coming: Document | None = None
        self.is_watching = True
        self.waits: list[float] = []
        self.offered: list[Document] = []
        self.calls: list[str] = []
        self.synced_after_s = 0.0

    def start(self) -> None:
        self.calls.append("start")

    def renew(self) -> None:
        self.calls.append("renew")

    def ask_to_stop(self) -> None:
        self.calls.append("ask_to_stop")

    def join(self, limit_s: float) -> None:
        self.calls.append(f"join {limit_s:g}")
        self.clock.sleep(limit_s)

    def wait_until_synced(self, limit_s: float) -> bool:
        self.clock.sleep(min(limit_s, self.synced_after_s))
        return self.synced_after_s <= limit_s

    def get(self, namespace: str, name: str) -> Document | None:
        return self.objects.get((namespace, name))

    def wait_for(self, namespace: str, name: str, accept: Callable[[Document], bool], limit_s: float) -> Document | None:
        self.waits.append(limit_s)
        for document in (self.get(namespace, name), self.coming):
            if document is not None and accept(document):
                return document
        self.clock.sleep(limit_s if self.is_watching else 0.0)
        return None

    def offer(self, document: Document) -> None:
        self.offered.append(document)

    def size(self) -> int:
        return len(self.objects)

    def age_s(self) -> float:
        return 2.0


class FakeTransport:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, Any] = {}
        self.is_down = False
        self.is_open = True
        self.renewals = 0

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        self.asked.append((method, target))
        if self.is_down:
            self.clock.sleep(limit_s)
            return Answer(NO_ANSWER, error="no route")
        if method != "GET":
            return Answer(200, b"{}")
        found = self.answers.get(target)
        return Answer(404, b'{"message": "no such thing"}') if found is None else Answer(200, json.dumps(found).encode())

    def renew(self) -> None:
        self.renewals += 1

    def close(self) -> None:
        self.is_open = False


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pods = FakeInformer(self.clock)
        self.networks = FakeInformer(self.clock)
        self.transport = FakeTransport(self.clock)
        self.cache = KubeCache(self.pods, self.networks, self.transport, self.clock)
        self.kube = self.cache.for_request(30.0)


@pytest.fixture
def world() -> World:
    return World()


def pod(uid: str = "u1", **annotations: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "web", "uid": uid, "annotations": annotations}}


POD_PATH = "/api/v1/namespaces/shop/pods/web"
NETWORK_PATH = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/blue"


@pytest.mark.parametrize("uid", ["u1", ""])
def test_cached_pod_asks_nobody(world: World, uid: str) -> None:
    world.pods.objects["shop", "web"] = pod(a="b")
    found = world.kube.pod("shop", "web", uid)
    assert (found.uid, found.annotations, found.document) == ("u1", {"a": "b"}, pod(a="b"))
    assert world.transport.asked == []


def test_static_pod_is_taken_whatever_its_uid(world: World) -> None:
    world.pods.objects["shop", "web"] = pod(**{"kubernetes.io/config.source": "file"})
    assert world.kube.pod("shop", "web", "kubelet's").uid == "u1"
    assert world.transport.asked == []


def test_pod_that_the_watch_brings_in_time_asks_nobody(world: World) -> None:
    world.pods.objects["shop", "web"] = pod("old")
    world.pods.coming = pod()
    assert world.kube.pod("shop", "web", "u1").uid == "u1"
    assert (world.pods.waits, world.transport.asked) == ([1.0], [])


@pytest.mark.parametrize("cached", [None, pod("old")])
def test_pod_that_is_missing_or_another_one_is_read_live_once_and_offered(world: World, cached: Document | None) -> None:
    if cached is not None:
        world.pods.objects["shop", "web"] = cached
    world.transport.answers[POD_PATH] = pod()
    assert world.kube.pod("shop", "web", "u1").uid == "u1"
    assert world.transport.asked == [("GET", POD_PATH)]
    assert world.pods.offered == [pod()]


def test_pod_with_another_uid_live_too_is_answered_as_it_is(world: World) -> None:
    world.transport.answers[POD_PATH] = pod("new")
    assert world.kube.pod("shop", "web", "u1").uid == "new"


def test_live_not_found_is_final(world: World) -> None:
    with pytest.raises(ObjectNotFoundError, match="pod shop/web not found"):
        world.kube.pod("shop", "web", "u1")
    assert world.transport.asked == [("GET", POD_PATH)]


def test_a_request_waits_for_the_watch_once(world: World) -> None:
    for _ in range(2):
        with pytest.raises(ObjectNotFoundError):
            world.kube.pod("shop", "web")
    assert world.pods.waits == [1.0, 0.0]


def test_waiting_and_live_read_share_the_deadline_and_the_read_has_most_of_it(world: World) -> None:
    world.transport.is_down = True
    started = world.clock.monotonic()
    with pytest.raises(TryAgainLaterError):
        world.cache.for_request(2.5).pod("shop", "web")
    assert world.pods.waits == [0.5]
    assert world.clock.monotonic() - started == pytest.approx(2.5)


def test_cached_net_attach_def_asks_nobody(world: World) -> None:
    world.networks.objects["shop", "blue"] = {"spec": {"config": "{}"}}
    assert world.kube.net_attach_def("shop", "blue").config == "{}"
    assert world.transport.asked == []


def test_cached_net_attach_def_that_is_not_valid_is_an_error(world: World) -> None:
    world.networks.objects["shop", "blue"] = {"spec": {"config": 1}}
    with pytest.raises(InvalidConfigError, match=r"net-attach-def shop/blue: spec\.config is a number"):
        world.kube.net_attach_def("shop", "blue")


def test_missing_net_attach_def_is_read_live_without_waiting(world: World) -> None:
    world.transport.answers[NETWORK_PATH] = {"spec": {"config": "{}"}}
    assert world.kube.net_attach_def("shop", "blue").config == "{}"
    assert (world.transport.asked, world.networks.waits) == ([("GET", NETWORK_PATH)], [])


def test_the_rest_is_live(world: World) -> None:
    world.pods.objects["shop", "web"] = pod()
    found = world.kube.pod("shop", "web")
    world.kube.annotate_status(found, "k", "v")
    world.kube.create_event(found, "Normal", "R", "m")
    world.transport.answers["/apis/x/y"] = {"a": 1}
    assert world.kube.get("/apis/x/y") == {"a": 1}
    assert world.transport.asked == [("PATCH", f"{POD_PATH}/status"), ("POST", "/api/v1/namespaces/shop/events"), ("GET", "/apis/x/y")]


def test_sizes_and_ages_are_told_by_collection(world: World) -> None:
    world.pods.objects["shop", "web"] = pod()
    assert world.cache.sizes() == {"pods": 1, "net-attach-defs": 0}
    assert world.cache.ages() == {"pods": 2.0, "net-attach-defs": 2.0}


@pytest.mark.parametrize(("pods_s", "networks_s", "is_synced"), [(1.0, 1.0, True), (3.0, 0.0, False), (1.5, 1.0, False)])
def test_both_collections_are_waited_for_within_one_limit(world: World, pods_s: float, networks_s: float, is_synced: bool) -> None:
    world.pods.synced_after_s, world.networks.synced_after_s = pods_s, networks_s
    assert world.cache.wait_until_synced(2.0) is is_synced


def test_stop_asks_both_before_it_waits_for_either(world: World) -> None:
    world.cache.start()
    world.cache.stop()
    assert world.pods.calls == ["start", "ask_to_stop", "join 0.8"]
    assert world.networks.calls == ["start", "ask_to_stop", "join 0"]
    assert not world.transport.is_open


def test_renewed_credentials_are_for_the_watches_and_for_live_calls(world: World) -> None:
    world.cache.renew()
    assert (world.pods.calls, world.networks.calls, world.transport.renewals) == (["renew"], ["renew"], 1)
