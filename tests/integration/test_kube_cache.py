"""The daemon's caches against the API server stand-in, on loopback, over both clients: outages, expiry, stalls, storms."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.adapters import kube_client
from multus.adapters.kube_cache import KubeCache
from multus.adapters.kube_informer import Informer, Limits
from multus.adapters.kube_pool import TransportPool
from multus.adapters.kube_rest import Connection
from multus.adapters.kubeconfig import load
from multus.commands import kube_access
from multus.errors import InvalidConfigError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol import watches
from multus.protocol.watches import Collection
from multus.testing.fakes import RecordingLog
from multus.testing.kubeapi import KubeAPI
from multus.testing.kubeapi_credentials import Certificates, make_certificates
from multus.types.cluster import Cluster

NODE = "n1"
PODS = "/api/v1/pods$"
PATIENCE_S = 15.0
QUICK = Limits(watch_min_s=60, watch_max_s=60, margin_s=1.0, open_s=2.0, silence_s=2.0, healthy_s=0.05, delay_factor=0.1)


def pod(name: str = "web", uid: str = "u1", node: str = NODE, **annotations: str) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": name, "uid": uid, "annotations": annotations, "labels": {"a": "b"}}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def network(name: str = "blue", config: str = "{}") -> dict[str, Any]:
    return {
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"namespace": "shop", "name": name}, "spec": {"config": config},
    }  # fmt: skip


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Cached:
    """A cache over one of the clients, started and synced in its ``with`` block; no thread of it is left afterwards."""

    def __init__(self, api: KubeAPI, path: str, is_official: bool, node: str = NODE, limits: Limits = QUICK) -> None:
        self.api = api
        self.log = RecordingLog()
        self.path = path
        self.is_official = is_official
        pods, networks = (self.informer(collection, limits) for collection in (watches.pods(node), watches.net_attach_defs()))
        self.pods, self.networks = pods, networks
        self.cache = KubeCache(pods, networks, TransportPool(self.connection, time), time)

    def informer(self, collection: Collection, limits: Limits) -> Informer:
        source = kube_client.transport(self.path) if self.is_official else self.connection()
        return Informer(collection, source, time, self.log, limits=limits)

    def connection(self) -> Connection:
        return Connection(self.cluster(), time, self.cluster)

    def cluster(self) -> Cluster:
        cluster = load(self.path)
        assert isinstance(cluster, Cluster)
        return cluster

    def __enter__(self) -> Cached:
        self.cache.start()
        assert self.cache.wait_until_synced(PATIENCE_S)
        until(lambda: self.pods.is_watching and self.networks.is_watching)
        return self

    def __exit__(self, *_: object) -> None:
        started = time.monotonic()
        self.cache.stop()
        assert time.monotonic() - started < 5
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("informer")] == []

    def watches(self) -> int:
        return sum(request.path == "/api/v1/pods" and request.is_watch for request in self.api.requests)

    def lists(self) -> int:
        return sum(request.path == "/api/v1/pods" and not request.is_watch for request in self.api.requests)

    def live_reads(self) -> list[str]:
        return [request.path for request in self.api.requests if "/namespaces/" in request.path]

    def annotation(self, key: str = "k", name: str = "web") -> str:
        document: Any = self.pods.get("shop", name) or {}
        return str(document.get("metadata", {}).get("annotations", {}).get(key, ""))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(str(tmp_path_factory.mktemp("certificates")))


@pytest.fixture
def api(certificates: Certificates) -> Iterator[KubeAPI]:
    with KubeAPI(certificates=certificates, token="right") as api:
        api.put(pod(), pod("elsewhere", node="n2"), network())
        yield api


@pytest.fixture(params=[False, True], ids=["small", "official"])
def cached(request: pytest.FixtureRequest, api: KubeAPI, tmp_path: Path) -> Iterator[Cached]:
    with Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), request.param) as cached:
        yield cached


def test_of_the_pods_those_of_the_node_are_cached_and_trimmed(cached: Cached) -> None:
    assert cached.cache.sizes() == {"pods": 1, "net-attach-defs": 1}
    document: Any = cached.pods.get("shop", "web")
    assert document["spec"] == {"nodeName": NODE, "containers": [{"name": "c"}]}
    assert "labels" not in document["metadata"]


def test_an_attachment_with_warm_caches_writes_and_reads_nothing(cached: Cached) -> None:
    kube = cached.cache.for_request(5.0)
    found = kube.pod("shop", "web", "u1")
    assert kube.net_attach_def("shop", "blue").config == "{}"
    assert cached.live_reads() == []
    kube.annotate_status(found, "k", "v")
    assert cached.live_reads() == ["/api/v1/namespaces/shop/pods/web/status"]
    until(lambda: cached.annotation() == "v")


def test_a_new_pod_is_waited_for_and_not_read(cached: Cached) -> None:
    threading.Timer(0.1, cached.api.put, (pod("new", "u2"),)).start()
    assert cached.cache.for_request(5.0).pod("shop", "new", "u2").uid == "u2"
    assert cached.live_reads() == []


def test_a_pod_of_the_same_name_with_another_uid_takes_its_place(cached: Cached) -> None:
    cached.api.store.remove("pods", "shop", "web")
    cached.api.put(pod(uid="u2"))
    assert cached.cache.for_request(5.0).pod("shop", "web", "u2").uid == "u2"
    assert cached.live_reads() == []


def test_a_pod_that_goes_away_goes_from_the_cache(cached: Cached) -> None:
    cached.api.store.remove("pods", "shop", "web")
    until(lambda: cached.cache.sizes()["pods"] == 0)
    with pytest.raises(ObjectNotFoundError):
        cached.cache.for_request(1.0).pod("shop", "web", "u1")


def test_a_pod_that_moves_to_another_node_goes_from_the_cache(cached: Cached) -> None:
    cached.api.put(pod(node="n2"))
    until(lambda: cached.cache.sizes()["pods"] == 0)


def test_a_pod_of_another_node_is_read_live_and_not_kept(cached: Cached) -> None:
    assert cached.cache.for_request(1.0).pod("shop", "elsewhere").name == "elsewhere"
    assert cached.live_reads() == ["/api/v1/namespaces/shop/pods/elsewhere"]
    assert cached.cache.sizes()["pods"] == 1


def test_a_watch_that_is_reset_goes_on_where_it_was(cached: Cached) -> None:
    cached.api.fail("GET", PODS, reset=True, after_events=2)
    cached.api.close_connections()
    until(lambda: cached.watches() >= 2)
    for number in range(4):
        cached.api.put(pod(k=str(number)))
    until(lambda: cached.annotation() == "3")
    assert cached.lists() == 1


def test_an_outage_is_lived_through(cached: Cached) -> None:
    """The API server is gone, comes back on its address, and has changed meanwhile."""
    api = cached.api
    outage = 10**6
    api.fail("GET", "", reset=True, times=outage)
    api.close_connections()
    until(lambda: "kube.watch.failed" in cached.log.events("warning"))
    api.store.remove("pods", "shop", "web")
    api.put(pod("late", "u3"))
    time.sleep(1.0)
    kube = cached.cache.for_request(0.5)
    assert kube.pod("shop", "web", "u1").uid == "u1"
    assert kube.net_attach_def("shop", "blue").config == "{}"
    with pytest.raises(TryAgainLaterError):
        kube.pod("shop", "late", "u3")
    assert min(cached.cache.ages().values()) > 0.5
    api.faults.clear()
    until(lambda: cached.pods.get("shop", "late") is not None and cached.pods.get("shop", "web") is None)
    assert max(cached.cache.ages().values()) < 5.0
    assert "kube.watch.recovered" in cached.log.events("warning")
    assert cached.lists() == 1


def test_an_outage_longer_than_the_servers_memory_leads_to_a_list(cached: Cached) -> None:
    api = cached.api
    api.fail("GET", "", code=503, times=5)
    api.close_connections()
    api.store.remove("pods", "shop", "web")
    api.store.forget_changes()
    until(lambda: cached.pods.get("shop", "web") is None)
    assert cached.lists() >= 2


@pytest.mark.parametrize("fields", [{}, {"after_events": 0}])
def test_gone_leads_to_a_list(cached: Cached, fields: dict[str, int]) -> None:
    cached.api.fail("GET", PODS, code=410, reason="Expired", **fields)
    cached.api.close_connections()
    until(lambda: cached.lists() == 2)
    cached.api.put(pod(k="v"))
    until(lambda: cached.annotation() == "v")


def test_too_many_requests_are_not_repeated_before_the_server_wants(cached: Cached) -> None:
    before = len(cached.api.requests)
    cached.api.fail("GET", PODS, code=429, headers={"Retry-After": "5"})
    cached.api.close_connections()
    until(lambda: len([request for request in cached.api.requests[before:] if request.path == "/api/v1/pods"]) == 1)
    started = time.monotonic()
    until(lambda: len([request for request in cached.api.requests[before:] if request.path == "/api/v1/pods"]) == 2)
    assert time.monotonic() - started >= 0.4


def test_garbage_in_a_watch_is_survived(cached: Cached) -> None:
    cached.api.fail("GET", PODS, garbage=b"5\r\n{}x}\n\r\n", after_events=0)
    cached.api.fail("GET", PODS, garbage=b"zz\r\n", after_events=0)
    cached.api.fail("GET", PODS, garbage=b"no HTTP\r\n\r\n")
    cached.api.close_connections()
    until(lambda: all(fault.times == 0 for fault in cached.api.faults))
    cached.api.put(pod(k="v"))
    until(lambda: cached.annotation() == "v")


@pytest.mark.parametrize("is_official", [False, True])
def test_a_watch_that_falls_silent_is_cut_and_renewed(api: KubeAPI, tmp_path: Path, is_official: bool) -> None:
    api.fail("GET", PODS, hang_s=30.0, after_events=0)
    limits = QUICK._replace(watch_min_s=1, watch_max_s=1, margin_s=0.2)
    with Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), is_official, limits=limits) as cached:
        api.put(pod(k="v"))
        started = time.monotonic()
        until(lambda: cached.annotation() == "v")
        assert 0.9 < time.monotonic() - started < 5.0


def test_watches_that_end_in_time_are_renewed_with_the_version_of_the_bookmark(api: KubeAPI, tmp_path: Path) -> None:
    limits = QUICK._replace(watch_min_s=1, watch_max_s=1)
    with Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), False, limits=limits) as cached:
        api.put(network("another"))
        until(lambda: cached.watches() >= 3)
        first, second, *_ = (request.query for request in api.requests if request.is_watch and request.path == "/api/v1/pods")
        assert (first["timeoutSeconds"], first["allowWatchBookmarks"], first["fieldSelector"]) == ("1", "true", "spec.nodeName=n1")
        assert int(second["resourceVersion"]) == int(first["resourceVersion"]) + 1
        assert cached.log.events("warning") == []


def test_bookmarks_keep_a_quiet_cache_young(api: KubeAPI, tmp_path: Path) -> None:
    api.bookmark_interval_s = 0.1
    with Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), False) as cached:
        time.sleep(2.0)
        assert max(cached.cache.ages().values()) < 1.8


def test_long_lists_come_in_pages(api: KubeAPI, tmp_path: Path) -> None:
    api.put(*(network(f"net-{number}") for number in range(1100)))
    with Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), False) as cached:
        assert cached.cache.sizes()["net-attach-defs"] == 1101
        pages = [request for request in api.requests if "network" in request.path and not request.is_watch]
        assert [("continue" in request.query, request.query.get("resourceVersion")) for request in pages] == [
            (False, "0"), (True, None), (True, None),
        ]  # fmt: skip


def test_renewed_tokens_are_used(cached: Cached) -> None:
    cached.api.token = "new"
    cached.api.kubeconfig(cached.path)
    cached.api.close_connections()
    cached.api.put(pod(k="v"))
    until(lambda: cached.annotation() == "v")
    assert cached.cache.for_request(1.0).pod("shop", "elsewhere").name == "elsewhere"


def test_each_watch_begins_with_the_token_that_the_file_holds_then(certificates: Certificates, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    with KubeAPI(certificates=certificates) as api, Cached(api, api.kubeconfig(tmp_path / "k", token_file=str(token)), False) as cached:
        token.write_text("second")
        api.close_connections()
        until(lambda: cached.watches() == 2)
        sent = [request.headers["authorization"] for request in api.requests if request.is_watch and request.path == "/api/v1/pods"]
        assert sent == ["Bearer first", "Bearer second"]


def test_twenty_threads_read_while_pods_change(cached: Cached) -> None:
    api = cached.api
    api.put(*(pod(f"pod-{number}", f"u{number}") for number in range(20)))
    until(lambda: cached.cache.sizes()["pods"] == 21)
    api.requests.clear()
    done = threading.Event()
    reads: list[int] = []
    failures: list[Exception] = []

    def read(number: int) -> None:
        count = 0
        try:
            while not done.is_set():
                kube = cached.cache.for_request(5.0)
                assert kube.pod("shop", f"pod-{number}", f"u{number}").uid == f"u{number}"
                assert kube.net_attach_def("shop", "blue").config == "{}"
                count += 1
                time.sleep(0.001)
        except Exception as exc:
            failures.append(exc)
        reads.append(count)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for step in range(800):
        api.put(pod(f"pod-{step % 20}", f"u{step % 20}", k=str(step)))
    until(lambda: cached.annotation(name="pod-19") == "799")
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(reads) > 0
    assert cached.live_reads() == []


def test_live_calls_of_many_threads_share_few_connections(cached: Cached) -> None:
    before = cached.api.connections
    for _ in range(20):
        cached.cache.for_request(5.0).get("/version")
    assert cached.api.connections == before + 1


def test_cutting_a_stream_that_has_ended_is_fine(cached: Cached) -> None:
    source = kube_client.transport(cached.path) if cached.is_official else cached.connection()
    stream = source.stream("/version", 5.0, 5.0)
    assert b"gitVersion" in b"".join(stream.chunks())
    cached.api.close_connections()
    for _ in range(2):
        stream.cut()
    stream.close()
    stream.cut()
    source.close()


def test_server_that_cannot_be_a_name_is_an_invalid_configuration() -> None:
    with pytest.raises(InvalidConfigError, match="cannot be one"):
        Connection(Cluster("a" * 64, 80, "http"), time, None).stream("/version", 1.0, 1.0)


def test_certificate_that_is_not_trusted_is_told_and_tried_again(
    api: KubeAPI, tmp_path: Path, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> None:
    strangers = make_certificates(str(tmp_path_factory.mktemp("strangers")))
    cached = Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), False)
    with KubeAPI(certificates=strangers) as stranger:
        path = Path(cached.path)
        path.write_text(path.read_text().replace(str(api.port), str(stranger.port)))
        cached.cache.start()
        assert not cached.cache.wait_until_synced(0.3)
    path.write_text(path.read_text().replace(str(stranger.port), str(api.port)))
    assert cached.cache.wait_until_synced(PATIENCE_S)
    cached.cache.stop()
    assert "is not trusted" in str(cached.log.lines[0][2]["error"])


def test_stop_is_prompt_while_the_server_holds_a_list_back(api: KubeAPI, tmp_path: Path) -> None:
    api.fail("GET", PODS, hang_s=6.0)
    cached = Cached(api, api.kubeconfig(tmp_path / "kubeconfig"), False)
    cached.cache.start()
    assert not cached.cache.wait_until_synced(0.3)
    assert min(cached.cache.ages().values()) >= 0.0
    started = time.monotonic()
    cached.cache.stop()
    assert time.monotonic() - started < 5
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("informer")])


def test_nobody_listening_is_no_end(api: KubeAPI, tmp_path: Path, certificates: Certificates) -> None:
    path = api.kubeconfig(tmp_path / "kubeconfig")
    cached = Cached(api, path, False)
    api.__exit__(None, None, None)
    cached.cache.start()
    assert not cached.cache.wait_until_synced(0.3)
    with KubeAPI(api.port, certificates=certificates, token="right") as again:
        again.put(pod())
        assert cached.cache.wait_until_synced(PATIENCE_S)
        cached.cache.stop()


@pytest.mark.parametrize("prefer_official", [False, True])
def test_the_daemons_cache_is_made_of_a_kubeconfig(api: KubeAPI, tmp_path: Path, prefer_official: bool) -> None:
    log = RecordingLog()
    cache = kube_access.cache(api.kubeconfig(tmp_path / "kubeconfig"), {}, NODE, log, prefer_official=prefer_official)
    cache.start()
    try:
        assert cache.wait_until_synced(PATIENCE_S)
        assert cache.sizes() == {"pods": 1, "net-attach-defs": 1}
        assert cache.for_request(5.0).pod("shop", "elsewhere").uid == "u1"
    finally:
        cache.stop()
    assert log.events("warning") == ["kube.cache.other_node"]  # the pod that was asked for is bound elsewhere


def test_without_a_node_name_all_pods_are_cached_and_that_is_told(api: KubeAPI, tmp_path: Path) -> None:
    log = RecordingLog()
    cache = kube_access.cache(api.kubeconfig(tmp_path / "kubeconfig"), {}, "", log)
    cache.start()
    try:
        assert cache.wait_until_synced(PATIENCE_S)
        assert cache.sizes()["pods"] == 2
    finally:
        cache.stop()
    assert log.events("warning") == ["kube.cache.all_pods"]


def test_no_api_server_is_an_error_at_once() -> None:
    with pytest.raises(InvalidConfigError, match="no API server is configured"):
        kube_access.cache("", {}, NODE, RecordingLog())
