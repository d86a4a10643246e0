"""The kubeconfig that is made of a service account: what is in it, and when it is written."""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path

import pytest
import yaml

from multus.adapters import kubeconfig
from multus.adapters.service_account import ServiceAccountKubeconfig
from multus.errors import InvalidConfigError, IOFailureError
from multus.types.cluster import Cluster

ENVIRON = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
PEM = "-----BEGIN CERTIFICATE-----\nCA-bytes\n-----END CERTIFICATE-----\n"


class Account:
    """A mounted service account, and the kubeconfig made of it."""

    def __init__(self, folder: Path, environ: dict[str, str] = ENVIRON, *, skips: bool = False) -> None:
        self.folder = folder
        self.path = folder / "multus.kubeconfig"
        self.put("token", "tok-aaa\n")
        self.put("ca.crt", PEM)
        self.kubeconfig = ServiceAccountKubeconfig(str(self.path), environ, skips_tls_verify=skips, folder=str(folder))

    def put(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    @property
    def document(self) -> dict:
        return json.loads(self.path.read_text())


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


def test_it_holds_what_is_needed_and_is_read_as_yaml_too(account: Account) -> None:
    assert account.kubeconfig.refresh() == "written"
    cluster = {"server": "https://[fd00::1]:443", "certificate-authority-data": base64.b64encode(PEM.encode()).decode()}
    expected = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "multus", "user": {"token": "tok-aaa"}}],
        "contexts": [{"name": "multus-context", "context": {"cluster": "local", "user": "multus"}}],
        "current-context": "multus-context",
    }
    assert expected == account.document == yaml.safe_load(account.path.read_text())
    assert stat.S_IMODE(account.path.stat().st_mode) == 0o600


def test_the_plugin_reads_it(account: Account) -> None:
    account.kubeconfig.refresh()
    found = kubeconfig.load(str(account.path))
    assert isinstance(found, Cluster)
    assert ("https", "fd00::1", 443, PEM, "tok-aaa") == (found.scheme, found.host, found.port, found.ca_data, found.token)


@pytest.mark.parametrize(
    ("environ", "server"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "https://10.0.0.1:443"),
        ({"KUBERNETES_SERVICE_HOST": "[fd00::1]", "KUBERNETES_SERVICE_PROTOCOL": ""}, "https://[fd00::1]:443"),
        ({"KUBERNETES_SERVICE_HOST": "api.example", "KUBERNETES_SERVICE_PROTOCOL": "http"}, "http://api.example:443"),
    ],
)
def test_the_server_is_that_of_the_environment(tmp_path: Path, environ: dict[str, str], server: str) -> None:
    account = Account(tmp_path, {**ENVIRON, **environ})
    account.kubeconfig.refresh()
    assert server == account.document["clusters"][0]["cluster"]["server"]


@pytest.mark.parametrize("name", ENVIRON)
def test_an_environment_that_does_not_tell_the_server_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigError, match="KUBERNETES_SERVICE_HOST"):
        Account(tmp_path, {**ENVIRON, name: ""})


def test_without_verification_there_is_no_authority(tmp_path: Path) -> None:
    account = Account(tmp_path, skips=True)
    account.kubeconfig.refresh()
    assert {"server": "https://[fd00::1]:443", "insecure-skip-tls-verify": True} == account.document["clusters"][0]["cluster"]
    account.put("ca.crt", "another")
    assert account.kubeconfig.refresh() == ""


@pytest.mark.parametrize(
    ("changes", "news"),
    [
        ({}, ""),
        ({"token": "tok-aaa"}, ""),
        ({"token": "tok-bbb"}, "token changed"),
        ({"ca.crt": "x"}, "ca.crt changed"),
        ({"token": "tok-bbb", "ca.crt": "x"}, "token and ca.crt changed"),
    ],
)
def test_it_is_written_again_when_something_changed_and_says_what(account: Account, changes: dict[str, str], news: str) -> None:
    account.kubeconfig.refresh()
    inode = account.path.stat().st_ino
    for name, content in changes.items():
        account.put(name, content)
    assert news == account.kubeconfig.refresh()
    assert (inode != account.path.stat().st_ino) == bool(news)
    assert account.document["users"][0]["user"]["token"] == changes.get("token", "tok-aaa")


@pytest.mark.parametrize("damage", ["removed", "edited", "readable"])
def test_damage_by_others_is_put_right(account: Account, damage: str) -> None:
    account.kubeconfig.refresh()
    before = account.path.read_bytes()
    if damage == "removed":
        account.path.unlink()
    elif damage == "edited":
        account.path.write_text("{}")
    else:
        account.path.chmod(0o644)
    assert account.kubeconfig.refresh() == "written"
    assert (before, 0o600) == (account.path.read_bytes(), stat.S_IMODE(account.path.stat().st_mode))


def test_after_a_restart_it_is_left_as_it_is(account: Account) -> None:
    account.kubeconfig.refresh()
    again = ServiceAccountKubeconfig(str(account.path), ENVIRON, folder=str(account.folder))
    assert again.refresh() == ""


def test_what_a_killed_write_left_is_removed(account: Account) -> None:
    (account.folder / ".multus.kubeconfig.1.abc.tmp").write_text("secret")
    account.kubeconfig.refresh()
    assert ["ca.crt", "multus.kubeconfig", "token"] == sorted(os.listdir(account.folder))


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_missing_or_empty_file_is_named_and_the_last_kubeconfig_stays(account: Account, name: str) -> None:
    account.kubeconfig.refresh()
    before = account.path.read_bytes()
    account.put(name, " \n")
    with pytest.raises(InvalidConfigError, match=rf"{name} is empty"):
        account.kubeconfig.refresh()
    (account.folder / name).unlink()
    with pytest.raises(IOFailureError, match=rf"cannot read .*/{name}: No such file"):
        account.kubeconfig.refresh()
    assert before == account.path.read_bytes()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    account = Account(tmp_path)
    account.path.mkdir()
    with pytest.raises(IOFailureError, match=r"cannot write .*multus\.kubeconfig: Is a directory"):
        account.kubeconfig.refresh()


def test_it_can_be_removed_once_and_again(account: Account) -> None:
    account.kubeconfig.refresh()
    account.kubeconfig.remove()
    account.kubeconfig.remove()
    assert not account.path.exists()
