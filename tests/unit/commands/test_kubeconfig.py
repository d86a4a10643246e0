"""What ``kubeconfig_generator`` writes, and what it takes; the command at work is in ``tests/integration/test_certificates.py``."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from multus.commands import kubeconfig
from multus.errors import IOFailureError
from multus.types.cluster import Cluster

CLUSTER = Cluster("10.0.0.1", 6443)
PATH = "/var/lib/multus/certs/multus-client-current.pem"


def test_the_kubeconfig_is_that_of_the_reference(tmp_path: Path) -> None:
    """With the authority in it, where the bootstrap kubeconfig names a file."""
    (tmp_path / "ca.crt").write_text("PEM")
    assert kubeconfig.kubeconfig(CLUSTER._replace(ca_file=f"{tmp_path}/ca.crt"), PATH) == {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [
            {
                "name": "default-cluster",
                "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": base64.b64encode(b"PEM").decode()},
            }
        ],
        "users": [{"name": "default-auth", "user": {"client-certificate": PATH, "client-key": PATH}}],
        "contexts": [
            {"name": "default-context", "context": {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}}
        ],
        "current-context": "default-context",
    }


def server(cluster: Cluster) -> object:
    clusters = kubeconfig.kubeconfig(cluster, PATH)["clusters"]
    assert isinstance(clusters, list)
    return clusters[0]["cluster"]


def test_how_the_server_is_known_is_kept() -> None:
    named = CLUSTER._replace(host="fd00::1", base_path="/k", ca_data="PEM", tls_server_name="api")
    expected = {"server": "https://[fd00::1]:6443/k", "certificate-authority-data": "UEVN", "tls-server-name": "api"}
    assert server(named) == expected
    assert server(CLUSTER._replace(insecure_skip_tls_verify=True)) == {"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": True}


def test_an_authority_that_cannot_be_read_is_named() -> None:
    with pytest.raises(IOFailureError) as caught:
        kubeconfig.kubeconfig(CLUSTER._replace(ca_file="/nowhere/ca.crt"), PATH)
    assert caught.value.msg == "cannot read certificate authority /nowhere/ca.crt: No such file or directory"


def test_defaults_are_those_of_the_reference() -> None:
    assert vars(kubeconfig._options([])) == {
        "certdir": "/tmp",
        "host_certdir": "",
        "bootstrap_config": "/tmp/kubeconfig",
        "kubeconfig": "/run/multus/kubeconfig",
        "cert_duration": "10m",
        "help": False,
    }


@pytest.mark.parametrize(("arguments", "status"), [(["-h"], 1), (["--help"], 1), (["--nosuch"], 2), (["--cert", "/x"], 2)])
def test_help_is_status_1_and_an_unknown_flag_2(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        kubeconfig._options(arguments)
    told = capsys.readouterr()
    assert (caught.value.code, told.out, "usage: kubeconfig_generator" in told.err) == (status, "", True)
