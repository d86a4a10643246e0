"""What a certificate of the node needs to be configured; how it is kept is in ``tests/unit/core/test_certificates.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multus.commands.node_certificate import NodeCertificate
from multus.commands.stop import Stop
from multus.errors import InvalidConfigError, IOFailureError
from multus.testing.fakes import RecordingLog
from multus.types.certificates import CertificateSettings

SETTINGS = CertificateSettings("/no/boot", "/certs", "10m")
NODE = {"MULTUS_NODE_NAME": "w1"}


def bootstrap(folder: Path, **cluster: object) -> str:
    path = folder / "bootstrap"
    path.write_text(json.dumps({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }))  # fmt: skip
    return str(path)


@pytest.mark.parametrize(
    ("settings", "environ", "message"),
    [
        (SETTINGS, {}, "a certificate of the node needs the node's name in environment variable MULTUS_NODE_NAME"),
        (SETTINGS._replace(folder=""), NODE, "a certificate of the node needs a bootstrap kubeconfig and a folder; one of them is not set"),
        (
            SETTINGS._replace(bootstrap_kubeconfig=""),
            NODE,
            "a certificate of the node needs a bootstrap kubeconfig and a folder; one of them is not set",
        ),
        (SETTINGS._replace(folder="certs"), NODE, "folder of certificates 'certs' is not an absolute path"),
        (SETTINGS._replace(duration="ten"), NODE, 'duration of the certificate: "ten" is no duration, such as 10m or 1h30m'),
        (SETTINGS._replace(duration="9m59s"), NODE, "duration of the certificate '9m59s' is not from 600 to 2147483647 s"),
        (SETTINGS._replace(duration="-1h"), NODE, "duration of the certificate '-1h' is not from 600 to 2147483647 s"),
    ],
)
def test_a_setting_that_is_missing_or_not_possible_is_said(settings: CertificateSettings, environ: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        NodeCertificate(settings, environ, RecordingLog())
    assert caught.value.msg == message


def test_a_bootstrap_kubeconfig_that_cannot_be_used_is_said_at_the_start(tmp_path: Path) -> None:
    settings = SETTINGS._replace(folder=str(tmp_path / "certs"))
    with pytest.raises(IOFailureError) as caught:
        NodeCertificate(settings, NODE, RecordingLog()).start()
    assert caught.value.msg == "cannot read kubeconfig /no/boot: No such file or directory"
    proxied = settings._replace(bootstrap_kubeconfig=bootstrap(tmp_path, **{"proxy-url": "http://p"}))
    with pytest.raises(InvalidConfigError) as config:
        NodeCertificate(proxied, NODE, RecordingLog()).start()
    assert config.value.msg.endswith("cluster k: proxy-url: not supported together with a certificate of the node")
    variable = {**NODE, "HTTPS_PROXY": "http://127.0.0.1:1"}
    direct = settings._replace(bootstrap_kubeconfig=bootstrap(tmp_path, server="https://api.example"))
    with pytest.raises(InvalidConfigError) as proxy:
        NodeCertificate(direct, variable, RecordingLog()).start()
    assert proxy.value.msg.endswith("a certificate of the node is not supported through the proxy of HTTPS_PROXY")


def test_the_server_is_the_bootstrap_one_and_the_user_the_certificate(tmp_path: Path) -> None:
    settings = CertificateSettings(bootstrap(tmp_path), str(tmp_path / "certs"))
    cluster = NodeCertificate(settings, NODE, RecordingLog()).cluster()
    path = f"{tmp_path}/certs/multus-client-current.pem"
    assert (cluster.url, cluster.token) == ("https://127.0.0.1:1", "")
    assert (cluster.client_certificate_file, cluster.client_key_file) == (path, path)


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    certificate = NodeCertificate(CertificateSettings(bootstrap(tmp_path), str(tmp_path / "certs")), NODE, RecordingLog())
    stop = Stop()
    stop.set()
    certificate.wait(stop, 60)
    assert certificate.seconds_left() == 0.0
