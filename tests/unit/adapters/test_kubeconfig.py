"""Kubeconfig files and the settings inside a cluster."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from multus.adapters import kubeconfig
from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError
from multus.types.cluster import Cluster, Unsupported


def document(cluster: object = None, user: object = None, **more: object) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "other", "context": {}}, {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://api.example:6443"} if cluster is None else cluster}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        **more,
    }


def write(folder: Path, content: object) -> str:
    path = folder / "kubeconfig"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def load(folder: Path, content: object) -> Cluster:
    found = kubeconfig.load(write(folder, content))
    assert isinstance(found, Cluster)
    return found


def failure(folder: Path, content: object) -> MultusError:
    with pytest.raises(MultusError) as caught:
        kubeconfig.load(write(folder, content))
    return caught.value


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_json_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, document()) == Cluster("api.example", 6443, token="t", namespace="n")


def test_yaml_is_read(tmp_path: Path) -> None:
    text = """
apiVersion: v1
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters:
- name: k
  cluster: {server: "https://api.example:6443"}
users:
- name: u
  user: {token: t}
"""
    assert load(tmp_path, text) == Cluster("api.example", 6443, token="t")


def test_every_setting_is_read(tmp_path: Path) -> None:
    cluster = {
        "server": "https://api.example/prefix/x/", "certificate-authority": "ca.crt", "certificate-authority-data": b64("CA"),
        "tls-server-name": "inner", "disable-compression": True, "extensions": [{}],
    }
    user = {
        "client-certificate": "/abs/c.crt", "client-certificate-data": "Q0VS\nVA==\n", "client-key": "sub/c.key",
        "client-key-data": b64("KEY"), "token": "t", "tokenFile": "token",
    }
    assert load(tmp_path, document(cluster, user)) == Cluster(
        host="api.example",
        port=443,
        base_path="/prefix/x",
        ca_file=str(tmp_path / "ca.crt"),
        ca_data="CA",
        tls_server_name="inner",
        client_certificate_file="/abs/c.crt",
        client_certificate_data="CERT",
        client_key_file=str(tmp_path / "sub/c.key"),
        client_key_data="KEY",
        token="t",
        token_file=str(tmp_path / "token"),
        namespace="n",
    )


def test_insecure_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, document({"server": "https://a", "insecure-skip-tls-verify": True})).insecure_skip_tls_verify


def test_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    content = document()
    content["contexts"] = [{"name": "c", "context": {"cluster": "k"}}]
    assert load(tmp_path, content) == Cluster("api.example", 6443)


@pytest.mark.parametrize(
    ("server", "scheme", "host", "port", "base_path"),
    [
        ("https://h", "https", "h", 443, ""),
        ("HTTP://h/", "http", "h", 80, ""),
        ("http://h:8080/a//", "http", "h", 8080, "/a"),
        ("h:1234", "http", "h", 1234, ""),
        ("https://[fd00::1]:6443", "https", "fd00::1", 6443, ""),
        ("https://[fd00::1]:", "https", "fd00::1", 443, ""),
        ("https://h:", "https", "h", 443, ""),
        ("https://[fd00::1]", "https", "fd00::1", 443, ""),
        ("https://10.0.0.1:6443/k8s/clusters/c-1", "https", "10.0.0.1", 6443, "/k8s/clusters/c-1"),
    ],
)
def test_server_is_taken_apart(tmp_path: Path, server: str, scheme: str, host: str, port: int, base_path: str) -> None:
    found = load(tmp_path, document({"server": server}))
    assert (found.scheme, found.host, found.port, found.base_path) == (scheme, host, port, base_path)


def test_server_without_a_scheme_speaks_tls_when_tls_is_set_up(tmp_path: Path) -> None:
    assert load(tmp_path, document({"server": "h", "certificate-authority": "ca"}))[1:3] == (443, "https")


@pytest.mark.parametrize(
    "server",
    ["", "https://", "https://h:x", "https://h:0", "https://h:65536", "https://h:9999999999", "https://h:1:2", "ftp://h",
     "https://h?a", "https://h#a", "https://h /", "https://é", "https://[::1]x", "https://[::1", "https://[]", "ftp://h:1",
     "https://h/\nX: y"],
)  # fmt: skip
def test_server_that_is_no_url_is_an_error_that_names_it(tmp_path: Path, server: str) -> None:
    error = failure(tmp_path, document({"server": server}))
    assert type(error) is InvalidConfigError
    assert error.msg.startswith(f"kubeconfig {tmp_path}/kubeconfig: cluster k: server ")


def test_password_in_the_server_is_refused_and_not_shown(tmp_path: Path) -> None:
    assert "secret" not in failure(tmp_path, document({"server": "https://me:secret@h"})).msg


@pytest.mark.parametrize(
    ("cluster", "user", "place"),
    [
        ({"proxy-url": "http://p"}, {}, "cluster k: proxy-url"),
        ({"new-key": 1}, {}, "cluster k: new-key"),
        ({}, {"exec": {"command": "x"}}, "user u: exec"),
        ({}, {"auth-provider": {"name": "x"}}, "user u: auth-provider"),
        ({}, {"username": "a", "password": "b"}, "user u: username"),
    ],
)
def test_what_only_the_official_client_serves_is_reported(tmp_path: Path, cluster: object, user: object, place: str) -> None:
    path = write(tmp_path, document(cluster, user))
    assert kubeconfig.load(path) == Unsupported(f"kubeconfig {path}: {place}")


def test_keys_without_a_value_ask_for_nothing(tmp_path: Path) -> None:
    cluster = {"server": "https://h", "proxy-url": "", "certificate-authority": None, "insecure-skip-tls-verify": None}
    assert load(tmp_path, document(cluster, {"exec": None, "token": None, "as": "", "as-groups": None})) == Cluster("h", 443, namespace="n")


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "me", "as-uid": "7", "as-groups": ["g", "h"], "as-user-extra": {"scopes": ["x", "y"]}}
    assert load(tmp_path, document(None, user)).impersonation == (
        ("Impersonate-User", "me"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
        ("Impersonate-Extra-scopes", "x"),
        ("Impersonate-Extra-scopes", "y"),
    )


def test_impersonation_is_never_silently_dropped(tmp_path: Path) -> None:
    """The official client ignores it, so it must not get a configuration that has it."""
    error = failure(tmp_path, document(None, {"exec": {"command": "x"}, "as": "me"}))
    assert error.msg == f"kubeconfig {tmp_path}/kubeconfig: user u: exec: not supported together with impersonation"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(**{"current-context": ""}), "current-context is not set"),
        (document(**{"current-context": 5}), "current-context is not a string"),
        (document(**{"current-context": "x"}), 'contexts has no entry "x"'),
        (document(contexts=None), 'contexts has no entry "c"'),
        (document(contexts=[None, {"name": "c", "context": 5}]), "context c is not an object"),
        (document(clusters=[]), 'context c: clusters has no entry "k"'),
        (document(users=[]), 'users has no entry "u"'),
        (document(users={}), 'users has no entry "u"'),
        (document(None, {"token": 5}), "user u: token is not a string"),
        (document(None, {"as-groups": "g"}), "user u: as-groups is not a list of strings"),
        (document(None, {"as-groups": [1]}), "user u: as-groups is not a list of strings"),
        (document(None, {"as-user-extra": [1]}), "user u: as-user-extra is not an object"),
        (document(None, {"as-user-extra": {"a": "b"}}), "user u: as-user-extra: a is not a list of strings"),
        (document(None, {"client-key": "k"}), "user u: client-certificate and client-key go together: one of them is not set"),
        (document(None, {"client-certificate-data": "!"}), "user u: client-certificate-data is not base64 of a PEM text"),
        (document({"server": "h", "certificate-authority-data": b64("é")}), "certificate-authority-data is not base64 of a PEM text"),
        (document({"server": "h", "insecure-skip-tls-verify": "yes"}), "insecure-skip-tls-verify is not true or false"),
        (
            document({"server": "h", "insecure-skip-tls-verify": True, "certificate-authority": "x"}),
            "insecure-skip-tls-verify is true, and a certificate-authority is set: one of them only",
        ),
    ],
)
def test_invalid_kubeconfig_is_an_error_that_names_file_entry_and_key(tmp_path: Path, content: object, message: str) -> None:
    error = failure(tmp_path, content)
    assert type(error) is InvalidConfigError
    assert error.msg.startswith(f"kubeconfig {tmp_path}/kubeconfig: ")
    assert error.msg.endswith(message.removeprefix("context c: "))


def test_missing_file_is_an_io_failure(tmp_path: Path) -> None:
    with pytest.raises(IOFailureError) as caught:
        kubeconfig.load(str(tmp_path / "none"))
    assert caught.value.msg == f"cannot read kubeconfig {tmp_path}/none: No such file or directory"


@pytest.mark.parametrize("content", ["{", " {]", "a: [", "\t- x", "text", "", "- a", "!!python/object:x {}", "a: \x01", "2020-99-99"])
def test_content_that_is_no_document_is_a_decoding_error(tmp_path: Path, content: str) -> None:
    error = failure(tmp_path, content)
    assert type(error) is DecodingError
    assert error.msg.startswith(f"kubeconfig {tmp_path}/kubeconfig is ")


def test_yaml_error_tells_the_place_and_not_the_content(tmp_path: Path) -> None:
    error = failure(tmp_path, "users:\n- token: secret: x\n")
    assert "at line 2" in error.msg
    assert "secret" not in error.msg


def test_cluster_does_not_show_its_secrets() -> None:
    assert repr(Cluster("fd00::1", 1, token="secret")) == "Cluster(https://[fd00::1]:1)"


# inside a cluster


def test_in_cluster_settings() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert kubeconfig.load_in_cluster(environ, "/sa") == Cluster("10.96.0.1", 443, ca_file="/sa/ca.crt", token_file="/sa/token")


@pytest.mark.parametrize("host", ["fd00::1", "[fd00::1]"])
def test_in_cluster_ipv6(host: str) -> None:
    found = kubeconfig.load_in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"})
    assert found is not None
    assert (found.host, found.authority, found.token_file) == (
        "fd00::1", "[fd00::1]:443", "/var/run/secrets/kubernetes.io/serviceaccount/token",
    )


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"KUBERNETES_SERVICE_HOST": "h"},
        {"KUBERNETES_SERVICE_PORT": "1"},
        {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": ""},
    ],
)
def test_outside_a_cluster_there_is_nothing(environ: dict[str, str]) -> None:
    assert kubeconfig.load_in_cluster(environ) is None


@pytest.mark.parametrize("port", ["x", "0", "70000", "-1"])
def test_in_cluster_port_must_be_one(port: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        kubeconfig.load_in_cluster({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": port})
    assert caught.value.msg == f'KUBERNETES_SERVICE_PORT "{port}" is not a port'


def test_the_server_alone_is_read_whoever_the_user_is(tmp_path: Path) -> None:
    user = {"exec": {"command": "aws"}, "as": "me", "token": "t"}
    cluster = {"server": "https://api.example:6443/k", "certificate-authority-data": b64("CA"), "tls-server-name": "api"}
    found = kubeconfig.load_server(write(tmp_path, document(cluster, user)))
    assert found == Cluster("api.example", 6443, base_path="/k", ca_data="CA", tls_server_name="api", namespace="n")


def test_a_server_that_only_the_official_client_reaches_is_unsupported(tmp_path: Path) -> None:
    found = kubeconfig.load_server(write(tmp_path, document({"server": "https://a", "proxy-url": "http://p"})))
    assert isinstance(found, Unsupported)
    assert found.reason.endswith("cluster k: proxy-url")
