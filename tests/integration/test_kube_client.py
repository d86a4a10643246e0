"""The official client as a transport, against the API server stand-in, on loopback."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.adapters import kube_client
from multus.adapters.kube_rest import KubeRest
from multus.commands import kube_access
from multus.errors import ForbiddenError, InvalidConfigError, IOFailureError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol.api_calls import ApiCalls
from multus.testing.kubeapi import KubeAPI
from multus.testing.kubeapi_credentials import Certificates, make_certificates

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "uid": "uid-1"}}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(str(tmp_path_factory.mktemp("certificates")))


@pytest.fixture
def api(certificates: Certificates) -> Iterator[KubeAPI]:
    with KubeAPI(certificates=certificates, token="right") as api:
        api.put(POD)
        yield api


class Plugin:
    """A credential plugin that hands out the token of a file."""

    def __init__(self, folder: Path) -> None:
        self.token = folder / "plugin-token"
        self.script = folder / "plugin"
        self.script.write_text(
            "#!/bin/sh\n"
            'printf \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}\' '
            f'"$(cat {self.token})"\n'
        )
        self.script.chmod(0o755)

    @property
    def user(self) -> dict[str, Any]:
        return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(self.script), "interactiveMode": "Never"}}


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    plugin = Plugin(tmp_path)
    plugin.token.write_text("right")
    return plugin


class Clients:
    """Makes official clients and closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[ApiCalls] = []

    def connect(self, api: KubeAPI, user: dict[str, Any], deadline_s: float = 5.0) -> ApiCalls:
        kube = kube_access.connect(api.kubeconfig(self.folder / "kubeconfig", user=user), {}, deadline_s, time)
        assert kube is not None
        assert not isinstance(kube, KubeRest)
        self.made.append(kube)
        return kube


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    clients = Clients(tmp_path)
    yield clients
    for kube in clients.made:
        kube.close()


def methods(api: KubeAPI) -> list[str]:
    return [request.method for request in api.requests]


def test_attachment_with_a_credential_plugin(api: KubeAPI, plugin: Plugin, clients: Clients) -> None:
    kube = clients.connect(api, plugin.user)
    pod = kube.pod("shop", "web")
    kube.annotate_status(pod, "k", "v")
    kube.create_event(pod, "Normal", "R", "m")

    assert methods(api) == ["GET", "PATCH", "POST"]
    assert api.requests[1].headers["content-type"] == "application/merge-patch+json"
    assert {(request.headers["user-agent"], request.headers["accept"]) for request in api.requests} == {("multus", "application/json")}
    stored = api.store.find("pods", "shop", "web")
    assert stored is not None
    assert stored["metadata"]["annotations"] == {"k": "v"}
    assert len(api.store.all("events", "shop")) == 1


def test_credential_plugin_is_asked_again_when_the_server_does_not_know_us(api: KubeAPI, plugin: Plugin, clients: Clients) -> None:
    kube = clients.connect(api, plugin.user)
    kube.pod("shop", "web")
    api.token = "new"
    plugin.token.write_text("new")
    assert kube.pod("shop", "web").uid == "uid-1"


def test_wrong_token_is_forbidden_and_not_shown(api: KubeAPI, plugin: Plugin, clients: Clients) -> None:
    plugin.token.write_text("wrong-secret")
    with pytest.raises(ForbiddenError) as caught:
        clients.connect(api, plugin.user).pod("shop", "web")
    assert caught.value.msg == "API server refuses to get pod shop/web: Unauthorized (HTTP status 401)"


@pytest.mark.parametrize(
    ("code", "error"), [(404, ObjectNotFoundError), (403, ForbiddenError), (400, MultusError)]
)  # fmt: skip
def test_failures_are_our_errors(api: KubeAPI, plugin: Plugin, clients: Clients, code: int, error: type[MultusError]) -> None:
    api.fail("GET", code=code, message="why")
    with pytest.raises(error) as caught:
        clients.connect(api, plugin.user).pod("shop", "web")
    assert type(caught.value) is error
    assert f"why (HTTP status {code})" in caught.value.msg


@pytest.mark.parametrize("fault", [{"reset": True}, {"code": 503}, {"code": 429, "headers": {"Retry-After": "0"}}])
def test_passing_fault_is_overcome(api: KubeAPI, plugin: Plugin, clients: Clients, fault: dict[str, Any]) -> None:
    api.fail("GET", times=2, **fault)
    assert clients.connect(api, plugin.user).pod("shop", "web").uid == "uid-1"
    assert methods(api) == ["GET", "GET", "GET"]


def test_redirect_is_not_followed(api: KubeAPI, plugin: Plugin, clients: Clients) -> None:
    """It would carry our token to whoever is named."""
    api.fail("GET", code=302, headers={"Location": f"{api.url}/elsewhere"})
    with pytest.raises(MultusError):
        clients.connect(api, plugin.user).pod("shop", "web")
    assert [request.path for request in api.requests] == ["/api/v1/namespaces/shop/pods/web"]


def test_server_that_hangs_is_given_up_at_the_deadline(api: KubeAPI, plugin: Plugin, clients: Clients) -> None:
    kube = clients.connect(api, plugin.user, deadline_s=0.3)
    api.fail(hang_s=6.0)
    started = time.monotonic()
    with pytest.raises(TryAgainLaterError):
        kube.pod("shop", "web")
    assert time.monotonic() - started < 5


def test_nobody_listening_is_try_again_later(api: KubeAPI, plugin: Plugin, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    document = json.loads(Path(api.kubeconfig(tmp_path / "k", user=plugin.user)).read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    (tmp_path / "k").write_text(json.dumps(document))
    with pytest.raises(TryAgainLaterError) as caught:
        kube_client.connect(str(tmp_path / "k"), time, deadline_s=0.2).pod("shop", "web")
    assert "refused" in caught.value.msg


def test_server_of_another_authority_is_not_trusted_and_not_tried_again(
    api: KubeAPI, plugin: Plugin, certificates: Certificates, tmp_path: Path
) -> None:
    document = json.loads(Path(api.kubeconfig(tmp_path / "k", user=plugin.user)).read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = certificates.client
    (tmp_path / "k").write_text(json.dumps(document))
    with pytest.raises(MultusError) as caught:
        kube_client.connect(str(tmp_path / "k"), time).pod("shop", "web")
    assert caught.value.msg.startswith(f"certificate of API server {api.url} is not trusted: ")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{}", InvalidConfigError),
        ("a: [", InvalidConfigError),
        ("", InvalidConfigError),
        ("current-context: x\ncontexts: []\n", InvalidConfigError),
    ],
)
def test_configuration_that_the_official_client_cannot_use_is_our_error(tmp_path: Path, content: str, error: type[MultusError]) -> None:
    (tmp_path / "k").write_text(content)
    with pytest.raises(error) as caught:
        kube_client.connect(str(tmp_path / "k"), time)
    assert f"kubeconfig {tmp_path}/k" in caught.value.msg


def test_configuration_that_is_a_folder_is_an_io_failure(tmp_path: Path) -> None:
    with pytest.raises(IOFailureError):
        kube_client.connect(str(tmp_path), time)


def test_outside_a_cluster_there_is_no_configuration() -> None:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        pytest.skip("runs in a cluster")
    with pytest.raises(InvalidConfigError) as caught:
        kube_client.connect("", time)
    assert caught.value.msg.startswith("official client cannot use settings of the cluster: ")
