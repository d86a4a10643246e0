"""Which client is chosen."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from multus.adapters.kube_rest import Connection, KubeRest
from multus.commands import kube_access
from multus.errors import InvalidConfigError
from multus.protocol.api_calls import ApiCalls

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "api.example", "KUBERNETES_SERVICE_PORT": "443"}


def write(folder: Path, **user: object) -> str:
    path = folder / "kubeconfig"
    path.write_text(json.dumps({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://api.example:8080"}}],
        "users": [{"name": "u", "user": user}],
    }))  # fmt: skip
    return str(path)


def test_nothing_configured_is_no_client() -> None:
    assert kube_access.connect("", {}, 1.0, time) is None


def test_kubeconfig_is_served_by_our_own_client(tmp_path: Path) -> None:
    assert type(kube_access.connect(write(tmp_path, token="t"), {}, 1.0, time)) is KubeRest


def test_cluster_that_we_run_in_is_served_by_our_own_client() -> None:
    assert type(kube_access.connect("", IN_CLUSTER, 1.0, time)) is KubeRest


def test_kubeconfig_goes_before_the_cluster_that_we_run_in(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("{}")
    with pytest.raises(InvalidConfigError):
        kube_access.connect(str(tmp_path / "kubeconfig"), IN_CLUSTER, 1.0, time)


def test_password_is_served_by_the_official_client(tmp_path: Path) -> None:
    assert type(kube_access.connect(write(tmp_path, username="a", password="b"), {}, 1.0, time)) is ApiCalls


def test_without_the_official_client_the_error_says_what_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a bundle for hosts."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(InvalidConfigError) as caught:
        kube_access.connect(write(tmp_path, username="a", password="b"), {}, 1.0, time)
    wanted = f"kubeconfig {tmp_path}/kubeconfig: user u: username"
    assert f"{wanted}: needs the Python package kubernetes, and this installation was made without it" == caught.value.msg


def test_proxy_of_the_environment_is_served_by_the_official_client(tmp_path: Path) -> None:
    assert type(kube_access.connect(write(tmp_path, token="t"), {"HTTP_PROXY": "http://127.0.0.1:1"}, 1.0, time)) is ApiCalls


def test_impersonation_does_not_go_through_a_proxy(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        kube_access.connect(write(tmp_path, **{"as": "me"}), {"HTTP_PROXY": "http://127.0.0.1:1"}, 1.0, time)
    assert caught.value.msg == f"kubeconfig {tmp_path}/kubeconfig: impersonation is not supported through the proxy of HTTP_PROXY"


def test_a_certificate_of_the_node_takes_the_place_of_the_kubeconfigs_user(tmp_path: Path) -> None:
    path = write(tmp_path, username="a", password="b", **{"as": "me"})
    assert type(kube_access.transport(path, {}, certificate_path="/certs/current.pem")) is Connection
    cluster = kube_access.with_certificate(path, {}, "/certs/current.pem")
    assert (cluster.impersonation, cluster.client_certificate_file, cluster.client_key_file) == ((), *["/certs/current.pem"] * 2)


def test_the_official_client_can_be_asked_for(tmp_path: Path) -> None:
    assert type(kube_access.transport(write(tmp_path, token="t"), {}, prefer_official=True)).__name__ == "OfficialClient"
