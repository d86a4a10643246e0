"""Our own client against the API server stand-in, on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.adapters import kubeconfig
from multus.adapters.kube_rest import KubeRest
from multus.commands import kube_access
from multus.errors import DecodingError, ForbiddenError, IOFailureError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol.api_calls import ApiCalls
from multus.testing.kubeapi import KubeAPI
from multus.testing.kubeapi_credentials import Certificates, make_certificates
from multus.types.cluster import Cluster
from multus.types.delegate import NetAttachDef

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "uid": "uid-1"}, "status": {"phase": "Pending"}}
NET_ATTACH_DEF = {
    "apiVersion": "k8s.cni.cncf.io/v1",
    "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": "blue", "namespace": "infra", "annotations": {"k8s.v1.cni.cncf.io/resourceName": "a/b"}},
    "spec": {"config": '{"type": "x"}'},
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(str(tmp_path_factory.mktemp("certificates")))


@pytest.fixture
def api() -> Iterator[KubeAPI]:
    with KubeAPI() as api:
        api.put(POD, NET_ATTACH_DEF)
        yield api


class Clients:
    """Makes clients and closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[ApiCalls] = []

    def by_kubeconfig(self, api: KubeAPI, deadline_s: float = 5.0, **settings: Any) -> ApiCalls:
        kube = kube_access.connect(api.kubeconfig(self.folder / "kubeconfig", **settings), {}, deadline_s, time)
        assert isinstance(kube, KubeRest)
        self.made.append(kube)
        return kube

    def of(self, cluster: Cluster, **settings: Any) -> ApiCalls:
        self.made.append(KubeRest(cluster, time, **settings))
        return self.made[-1]


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    clients = Clients(tmp_path)
    yield clients
    for kube in clients.made:
        kube.close()


def methods(api: KubeAPI) -> list[str]:
    return [request.method for request in api.requests]


def test_attachment_by_four_requests_on_one_connection(api: KubeAPI, clients: Clients) -> None:
    kube = clients.by_kubeconfig(api)
    pod = kube.pod("shop", "web")
    assert kube.net_attach_def("infra", "blue") == NetAttachDef("infra", "blue", '{"type": "x"}', "a/b")
    kube.annotate_status(pod, "k", "v")
    kube.create_event(pod, "Normal", "AddedInterface", "Add eth0 [] from x")

    assert methods(api) == ["GET", "GET", "PATCH", "POST"]
    stored = api.store.find("pods", "shop", "web")
    assert stored is not None
    assert (stored["metadata"]["annotations"], stored["status"]) == ({"k": "v"}, {"phase": "Pending"})
    [event] = api.store.all("events", "shop")
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == ("web", "uid-1")
    assert api.connections == 1


def test_requests_say_who_we_are_and_what_we_accept(api: KubeAPI, clients: Clients) -> None:
    clients.by_kubeconfig(api).pod("shop", "web")
    headers = api.requests[0].headers
    assert headers == {"host": f"127.0.0.1:{api.port}", "user-agent": "multus", "accept": "application/json"}


def test_any_list_is_read(api: KubeAPI, clients: Clients) -> None:
    found = clients.by_kubeconfig(api).get("/api/v1/pods", {"fieldSelector": "metadata.name=web"})
    assert [item["metadata"]["name"] for item in found["items"]] == ["web"]  # type: ignore[attr-defined]


def test_missing_objects_are_named(api: KubeAPI, clients: Clients) -> None:
    kube = clients.by_kubeconfig(api)
    with pytest.raises(ObjectNotFoundError) as caught:
        kube.pod("shop", "none")
    assert caught.value.msg == 'pod shop/none not found: pods "none" not found (HTTP status 404)'


@pytest.mark.parametrize("name", ["web/status", "../pods/web", "web?x=y", "web#x", "web\r\nX: y", "wéb"])
def test_strange_name_never_reaches_another_object(api: KubeAPI, name: str, clients: Clients) -> None:
    with pytest.raises(ObjectNotFoundError):
        clients.by_kubeconfig(api).pod("shop", name)


def test_other_pod_of_the_same_name_is_not_annotated(api: KubeAPI, clients: Clients) -> None:
    kube = clients.by_kubeconfig(api)
    pod = kube.pod("shop", "web")
    api.put({**POD, "metadata": {"name": "web", "namespace": "shop", "uid": "uid-2"}})
    with pytest.raises(ObjectNotFoundError):
        kube.annotate_status(pod, "k", "v")
    assert "annotations" not in (api.store.find("pods", "shop", "web") or {})["metadata"]
    assert methods(api) == ["GET", "PATCH"]


def test_conflict_once_is_no_failure(api: KubeAPI, clients: Clients) -> None:
    kube = clients.by_kubeconfig(api)
    pod = kube.pod("shop", "web")
    api.fail("PATCH", "/status$", 409)
    kube.annotate_status(pod, "k", "v")
    assert methods(api) == ["GET", "PATCH", "PATCH"]


def test_answer_that_is_not_http_is_a_decoding_error(api: KubeAPI, clients: Clients) -> None:
    api.fail(garbage=b"220 mail.example ESMTP\r\n\r\n")
    kube = clients.by_kubeconfig(api)
    with pytest.raises(DecodingError):
        kube.pod("shop", "web")
    assert kube.pod("shop", "web").uid == "uid-1"


def test_answer_that_is_not_an_object_names_the_path(api: KubeAPI, clients: Clients) -> None:
    api.fail(garbage=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
    with pytest.raises(DecodingError) as caught:
        clients.by_kubeconfig(api).pod("shop", "web")
    assert caught.value.msg == "answer to GET /api/v1/namespaces/shop/pods/web is a list, an object is expected"


@pytest.mark.parametrize(
    "fault",
    [{"reset": True}, {"garbage": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"}, {"code": 503}, {"code": 500}],
)
def test_passing_fault_is_overcome(api: KubeAPI, fault: dict[str, Any], clients: Clients) -> None:
    api.fail("GET", "/pods/", times=2, **fault)
    assert clients.by_kubeconfig(api).pod("shop", "web").uid == "uid-1"
    assert methods(api) == ["GET", "GET", "GET"]


def test_retry_after_is_waited_for(api: KubeAPI, clients: Clients) -> None:
    api.fail(code=429, headers={"Retry-After": "1"})
    started = time.monotonic()
    clients.by_kubeconfig(api).pod("shop", "web")
    assert time.monotonic() - started >= 1.0


def test_server_that_hangs_is_given_up_at_the_deadline(api: KubeAPI, clients: Clients) -> None:
    api.fail(hang_s=6.0, times=9)
    started = time.monotonic()
    with pytest.raises(TryAgainLaterError) as caught:
        clients.by_kubeconfig(api, deadline_s=0.3).pod("shop", "web")
    assert 0.3 <= time.monotonic() - started < 5
    assert caught.value.msg.endswith(f"attempt 1: API server 127.0.0.1:{api.port}: timed out")


def test_connection_that_the_server_ends_with_its_answer_is_not_used_again(api: KubeAPI, clients: Clients) -> None:
    api.fail(garbage=b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    kube = clients.by_kubeconfig(api)
    kube.pod("shop", "web")
    kube.pod("shop", "web")
    assert api.connections == 2


def test_event_is_not_sent_again(api: KubeAPI, clients: Clients) -> None:
    kube = clients.by_kubeconfig(api)
    pod = kube.pod("shop", "web")
    api.fail("POST", reset=True)
    with pytest.raises(TryAgainLaterError):
        kube.create_event(pod, "Normal", "R", "m")
    assert methods(api) == ["GET", "POST"]


def test_idle_connection_that_the_server_closed_is_made_again_without_a_failed_attempt(api: KubeAPI, clients: Clients) -> None:
    """So that an event, which is tried once only, is not lost after a slow delegate."""
    kube = clients.by_kubeconfig(api)
    pod = kube.pod("shop", "web")
    api.close_connections()
    time.sleep(0.05)
    kube.create_event(pod, "Normal", "R", "m")
    assert len(api.store.all("events")) == 1


def test_nobody_listening_is_try_again_later(clients: Clients) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(TryAgainLaterError) as caught:
        clients.of(Cluster("127.0.0.1", port, "http"), deadline_s=0.2).pod("a", "b")
    assert caught.value.msg.endswith(f"API server 127.0.0.1:{port}: Connection refused")


def test_server_that_starts_late_is_waited_for(clients: Clients) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = threading.Event()

    def serve_late() -> None:
        time.sleep(0.2)
        with KubeAPI(port) as api:
            api.put(POD)
            done.wait(5)

    late = threading.Thread(target=serve_late)
    late.start()
    try:
        assert clients.of(Cluster("127.0.0.1", port, "http")).pod("shop", "web").uid == "uid-1"
    finally:
        done.set()
        late.join()


# credentials


def test_forbidden_is_told_in_the_servers_words(api: KubeAPI, clients: Clients) -> None:
    api.fail(code=403, message='pods "web" is forbidden: User "x" cannot get')
    with pytest.raises(ForbiddenError) as caught:
        clients.by_kubeconfig(api).pod("shop", "web")
    expected = 'API server refuses to get pod shop/web: pods "web" is forbidden: User "x" cannot get (HTTP status 403)'
    assert caught.value.msg == expected


def test_token_is_sent(clients: Clients) -> None:
    with KubeAPI(token="right") as api:
        api.put(POD)
        assert clients.by_kubeconfig(api).pod("shop", "web").uid == "uid-1"


def test_token_without_a_source_to_read_again_is_tried_once_more(clients: Clients) -> None:
    with KubeAPI() as api:
        api.put(POD)
        api.fail(code=401)
        assert clients.of(Cluster("127.0.0.1", api.port, "http", token="t")).pod("shop", "web").uid == "uid-1"
    assert methods(api) == ["GET", "GET"]


def test_token_file_that_was_renewed_is_read_again(tmp_path: Path, clients: Clients) -> None:
    (tmp_path / "token").write_text("old\n")
    with KubeAPI(token="old") as api:
        api.put(POD)
        kube = clients.by_kubeconfig(api, token_file="token")
        kube.pod("shop", "web")
        api.token = "new"
        (tmp_path / "token").write_text("new\n")
        assert kube.pod("shop", "web").uid == "uid-1"


def test_token_of_the_kubeconfig_that_was_renewed_is_read_again(tmp_path: Path, clients: Clients) -> None:
    with KubeAPI(token="old") as api:
        api.put(POD)
        kube = clients.by_kubeconfig(api)
        kube.pod("shop", "web")
        api.token = "new"
        api.kubeconfig(tmp_path / "kubeconfig")
        assert kube.pod("shop", "web").uid == "uid-1"


def test_kubeconfig_that_changed_to_what_we_cannot_serve_is_an_error(tmp_path: Path, clients: Clients) -> None:
    with KubeAPI(token="old") as api:
        kube = clients.by_kubeconfig(api)
        api.token = "new"
        api.kubeconfig(tmp_path / "kubeconfig", user={"exec": {"command": "x"}})
        with pytest.raises(MultusError) as caught:
            kube.pod("shop", "web")
    assert caught.value.msg == f"kubeconfig {tmp_path}/kubeconfig: changed meanwhile to one for the official client"


def test_token_file_wins_and_the_token_serves_when_it_is_gone(tmp_path: Path, clients: Clients) -> None:
    (tmp_path / "token").write_text("from-file")
    with KubeAPI(token="from-file") as api:
        api.put(POD)
        cluster = Cluster("127.0.0.1", api.port, "http", token="inline", token_file=str(tmp_path / "token"))
        assert clients.of(cluster).pod("shop", "web").uid == "uid-1"
        (tmp_path / "token").unlink()
        api.token = "inline"
        assert clients.of(cluster).pod("shop", "web").uid == "uid-1"


def test_wrong_token_is_forbidden_and_not_shown(clients: Clients) -> None:
    with KubeAPI(token="right") as api:
        kube = clients.by_kubeconfig(api, user={"token": "wrong-secret"})
        with pytest.raises(ForbiddenError) as caught:
            kube.pod("shop", "web")
    assert caught.value.msg == "API server refuses to get pod shop/web: Unauthorized (HTTP status 401)"


def test_impersonation_is_sent(api: KubeAPI, clients: Clients) -> None:
    clients.by_kubeconfig(api, user={"as": "me"}).pod("shop", "web")
    assert api.requests[0].headers["impersonate-user"] == "me"


# TLS


@pytest.mark.parametrize("style", ["json", "yaml"])
@pytest.mark.parametrize("inline", [False, True])
def test_https_with_client_certificate(certificates: Certificates, style: str, inline: bool, clients: Clients) -> None:
    with KubeAPI(certificates=certificates, client_certificate=True) as api:
        api.put(POD)
        kube = clients.by_kubeconfig(api, style=style, inline=inline)
        assert [kube.pod("shop", "web").uid for _ in range(3)] == ["uid-1"] * 3
        assert api.connections == 1


def test_client_without_its_certificate_is_not_answered(certificates: Certificates, clients: Clients) -> None:
    with KubeAPI(certificates=certificates, client_certificate=True) as api:
        kube = clients.by_kubeconfig(api, deadline_s=0.2, user={})
        with pytest.raises(TryAgainLaterError):
            kube.pod("shop", "web")


def cluster_of(api: KubeAPI, certificates: Certificates) -> Cluster:
    return Cluster("127.0.0.1", api.port, ca_file=certificates.server)


def test_server_of_another_authority_is_not_trusted_and_not_tried_again(certificates: Certificates, clients: Clients) -> None:
    with KubeAPI(certificates=certificates) as api:
        cluster = cluster_of(api, certificates)._replace(ca_file=certificates.client)
        with pytest.raises(MultusError) as caught:
            clients.of(cluster).pod("shop", "web")
    assert caught.value.msg.startswith(f"certificate of API server 127.0.0.1:{api.port} is not trusted: ")
    assert type(caught.value) is MultusError


def test_systems_authorities_do_not_know_the_server(certificates: Certificates, clients: Clients) -> None:
    with KubeAPI(certificates=certificates) as api, pytest.raises(MultusError) as caught:
        clients.of(cluster_of(api, certificates)._replace(ca_file="")).pod("shop", "web")
    assert type(caught.value) is MultusError


def test_insecure_server_is_not_verified(certificates: Certificates, clients: Clients) -> None:
    with KubeAPI(certificates=certificates) as api:
        api.put(POD)
        cluster = Cluster("127.0.0.1", api.port, insecure_skip_tls_verify=True)
        assert clients.of(cluster).pod("shop", "web").uid == "uid-1"


def test_server_name_is_what_the_certificate_must_have(certificates: Certificates, clients: Clients) -> None:
    with KubeAPI(certificates=certificates) as api:
        api.put(POD)
        cluster = cluster_of(api, certificates)
        assert clients.of(cluster._replace(tls_server_name="localhost")).pod("shop", "web").uid == "uid-1"
        with pytest.raises(MultusError) as caught:
            clients.of(cluster._replace(tls_server_name="other.example")).pod("shop", "web")
    assert "is not trusted" in caught.value.msg


def test_https_to_a_plain_server_is_try_again_later(api: KubeAPI, clients: Clients) -> None:
    with pytest.raises(TryAgainLaterError):
        clients.of(Cluster("127.0.0.1", api.port, insecure_skip_tls_verify=True), deadline_s=0.1).pod("shop", "web")


def test_renewed_certificates_are_read_again(certificates: Certificates, tmp_path: Path, clients: Clients) -> None:
    """A rotated service account in the cluster: the token file changes, and so may the authority."""
    (tmp_path / "token").write_text("old")
    (tmp_path / "ca.crt").write_bytes(Path(certificates.server).read_bytes())
    with KubeAPI(certificates=certificates, token="new") as api:
        api.put(POD)
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}

        def reload() -> Cluster:
            (tmp_path / "token").write_text("new")
            found = kubeconfig.load_in_cluster(environ, str(tmp_path))
            assert found is not None
            return found

        found = kubeconfig.load_in_cluster(environ, str(tmp_path))
        assert found is not None
        assert clients.of(found, reload=reload).pod("shop", "web").uid == "uid-1"


def test_missing_authority_is_an_io_failure_at_once(certificates: Certificates, clients: Clients) -> None:
    with KubeAPI(certificates=certificates) as api, pytest.raises(IOFailureError):
        clients.of(cluster_of(api, certificates)._replace(ca_file="/nowhere/ca.crt")).pod("shop", "web")


def test_ipv6_server(clients: Clients) -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            heard.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    thread = threading.Thread(target=serve)
    thread.start()
    with server:
        port = server.getsockname()[1]
        clients.of(Cluster("::1", port, "http", base_path="/prefix")).pod("a", "b")
        thread.join()
    assert heard[0].startswith(f"GET /prefix/api/v1/namespaces/a/pods/b HTTP/1.1\r\nHost: [::1]:{port}\r\n".encode())


def test_hot_path_imports_stay_few(tmp_path: Path) -> None:
    code = (
        "import sys, time; from multus.commands import kube_access; "
        "print(*sorted({'re', 'json', 'enum', 'socket', 'selectors', 'subprocess', 'logging', 'datetime', 'ipaddress', 'urllib', 'http', "
        "'base64', 'tempfile', 'pathlib', 'dataclasses', 'attrs', 'attr', 'cattrs', 'pluggy', 'yaml', 'threading', 'ctypes', 'pyroute2', "
        "'kubernetes', 'ssl', 'random'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
