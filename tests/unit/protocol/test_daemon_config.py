"""The daemon's configuration file: defaults, each key checked, and its overlay on requests."""

from __future__ import annotations

from typing import Any

import pytest

from multus.errors import InvalidConfigError
from multus.protocol import daemon_config
from multus.types.certificates import CertificateSettings
from multus.types.config import LogConfig, LogOptions
from multus.types.daemon import DaemonConfig

WHERE = "/etc/daemon-config.json"


def read(document: dict[str, Any], cores: int = 2) -> DaemonConfig:
    return daemon_config.from_document(document, WHERE, cores)


def problem(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        read(document)
    return caught.value.msg


def test_an_empty_file_has_defaults_and_no_warnings() -> None:
    assert read({}) == DaemonConfig({}, log=LogConfig(to_stderr=False), connection_limit=4)


def test_every_key_of_the_daemon_is_read() -> None:
    document = {
        "socketDir": "/run/a",
        "chrootDir": "/hostroot",
        "cniDir": "/var/b",
        "logFile": "/var/log/c",
        "logLevel": "debug",
        "logToStderr": True,
        "logOptions": {"maxAge": 1, "maxSize": 2, "maxBackups": 3, "compress": False},
        "connectionLimit": 7,
        "queueTimeout": 1.5,
        "delegateTimeout": 0,
        "shutdownGrace": 20,
        "primaryTimeout": 30,
        "metricsPort": 9091,
        "metricsAddress": "0.0.0.0",
        "enablePprof": True,
        "readinessindicatorfile": "/run/ready",
        "multusConfigFile": "/etc/own.conf",
        "apiServerHost": "192.0.2.1",
        "apiServerPort": 6443,
        "perNodeCertificate": {"enabled": False},
    }
    log = LogConfig("/var/log/c", "debug", True, LogOptions(max_age=1, max_size=2, max_backups=3, compress=False))
    assert read(document) == DaemonConfig(
        document,
        socket_dir="/run/a",
        chroot_dir="/hostroot",
        cni_dir="/var/b",
        log=log,
        connection_limit=7,
        queue_timeout_s=1.5,
        delegate_timeout_s=0.0,
        shutdown_grace_s=20.0,
        primary_timeout_s=30.0,
        metrics_port=9091,
        metrics_address="0.0.0.0",
        debug_endpoints=True,
        readiness_indicator_file="/run/ready",
        is_automatic=False,
        api_server=("192.0.2.1", "6443"),
    )


def test_keys_match_in_any_case() -> None:
    config = read({"SOCKETDIR": "/run/a", "connectionlimit": 9, "MetricsPort": 1, "PerNodeCertificate": {"Enabled": False}})
    assert (config.socket_dir, config.connection_limit, config.metrics_port, config.warnings) == ("/run/a", 9, 1, ())


@pytest.mark.parametrize(("cores", "limit"), [(1, 4), (2, 4), (3, 6), (64, 128)])
def test_the_machine_decides_how_many_requests_are_served_at_a_time(cores: int, limit: int) -> None:
    assert read({}, cores).connection_limit == limit


def test_null_and_empty_text_mean_the_default() -> None:
    keys = ("socketDir", "chrootDir", "cniDir", "metricsAddress", "readinessindicatorfile", "multusConfigFile", "apiServerHost")
    others = ("connectionLimit", "queueTimeout", "metricsPort", "enablePprof", "perNodeCertificate", "apiServerPort")
    expected = read({})
    for document in (dict.fromkeys(keys, ""), dict.fromkeys((*keys, *others))):
        assert read(document) == expected._replace(document=document)


def test_a_port_of_the_api_server_goes_with_its_host() -> None:
    assert [read({"apiServerHost": "api"}).api_server, read({"apiServerPort": 1}).api_server] == [("api", "443"), ("", "")]


def test_a_configuration_is_generated_unless_a_file_is_named() -> None:
    assert [read({"multusConfigFile": value}).is_automatic for value in ("auto", "/etc/own.conf")] == [True, False]


def test_keys_that_nobody_knows_are_warnings() -> None:
    assert read({"zeta": 1, "socketDirr": "/x", "binDir": "/b", "delegates": []}).warnings == (
        f'{WHERE}: key "socketDirr" is unknown and has no effect on the daemon',
        f'{WHERE}: key "zeta" is unknown and has no effect on the daemon',
    )


def test_keys_of_requests_and_of_the_configuration_manager_are_known() -> None:
    keys = (
        "binDir", "confDir", "cniVersion", "name", "type", "capabilities", "clusterNetwork", "defaultNetworks",
        "systemNamespaces", "multusNamespace", "namespaceIsolation", "globalNamespaces", "retryDeleteOnError",
        "auxiliaryCNIChainName", "runtimeConfig", "kubeconfig", "cniConfigDir", "multusAutoconfigDir", "multusMasterCNI",
        "forceCNIVersion", "overrideNetworkName", "daemonSocketDir", "cleanupConfigOnExit", "shimDeadline", "strictCapabilities",
        "allowDeviceID", "delegatePreference", "invalidAnnotation", "podNotFoundResult", "apiDeadline", "plugins",
    )  # fmt: skip
    assert read(dict.fromkeys(keys, "x")).warnings == ()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("socketDir", 5, '5 is a number, a string is expected'),
        ("socketDir", [], '[] is a list, a string is expected'),
        ("chrootDir", False, 'false is a boolean, a string is expected'),
        ("cniDir", "a\0b", '"a\\u0000b" is invalid: it has NUL or half a character'),
        ("metricsAddress", "\ud800", '"\\ud800" is invalid: it has NUL or half a character'),
        ("connectionLimit", 0, "0 is no whole number from 1 to 4096"),
        ("connectionLimit", True, "true is no whole number from 1 to 4096"),
        ("connectionLimit", 2.0, "2.0 is no whole number from 1 to 4096"),
        ("connectionLimit", "4", '"4" is no whole number from 1 to 4096'),
        ("metricsPort", 65536, "65536 is no whole number from 1 to 65535"),
        ("queueTimeout", 0, "0 is no number of seconds from 1 to 3600"),
        ("delegateTimeout", -1, "-1 is no number of seconds from 0 to 3600"),
        ("shutdownGrace", 3601, "3601 is no number of seconds from 0 to 3600"),
        ("delegateTimeout", True, "true is no number of seconds from 0 to 3600"),
        ("enablePprof", "yes", '"yes" is a string, true or false is expected'),
        ("apiServerHost", 1, "1 is a number, a string is expected"),
        ("perNodeCertificate", "yes", '"yes" is a string, an object is expected'),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error_that_names_file_key_and_value(key: str, value: object, expected: str) -> None:
    assert problem({key: value}) == f'{WHERE}: key "{key}" {expected}'


def test_a_bad_port_of_the_api_server_is_an_error() -> None:
    message = f'{WHERE}: key "apiServerPort" "6443" is no whole number from 1 to 65535'
    assert problem({"apiServerHost": "api", "apiServerPort": "6443"}) == message


def test_a_bad_log_setting_is_an_error_that_opens_with_the_file() -> None:
    assert problem({"logOptions": {"maxAge": "x"}}).startswith(f"{WHERE}: ")
    assert '"logToStderr" "no"' in problem({"logToStderr": "no"})


def test_a_certificate_of_the_node_is_asked_for_where_it_is_enabled() -> None:
    keys = {"bootstrapKubeconfig": "/boot", "certDir": "/x", "certDuration": "1h"}
    assert read({"perNodeCertificate": {"enabled": True, **keys}}).certificate == CertificateSettings("/boot", "/x", "1h")
    assert read({"pernodecertificate": {"Enabled": True}}).certificate == CertificateSettings("", "", "10m")
    for disabled in ({"enabled": False, **keys}, keys, {}, None):
        assert read({"perNodeCertificate": disabled}).certificate is None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("enabled", 1, "1 is a number, true or false is expected"),
        ("enabled", 0, "0 is a number, true or false is expected"),
        ("certDir", [], "[] is a list, a string is expected"),
        ("bootstrapKubeconfig", "a\0", '"a\\u0000" is invalid: it has NUL or half a character'),
        ("certDuration", 600, "600 is a number, a string is expected"),
    ],
)
def test_a_setting_of_the_certificate_of_the_wrong_kind_is_an_error(key: str, value: object, expected: str) -> None:
    assert problem({"perNodeCertificate": {key: value}}) == f'{WHERE}: key "perNodeCertificate.{key}" {expected}'


# --- The overlay ---

CLIENT = {"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus-shim", "binDir": "/a", "readinessindicatorfile": "/r"}
SERVER = {"cniVersion": "1.0.0", "binDir": "/b", "socketDir": "/host/run/multus", "readinessindicatorfile": "/r"}
LAID = {"binDir": "/b", "cniVersion": "1.0.0", "name": "multus-cni-network", "socketDir": "/host/run/multus", "type": "multus-shim"}


def test_the_daemons_keys_replace_those_of_a_request_whole() -> None:
    assert daemon_config.overlay(CLIENT, read(SERVER)) == LAID
    assert daemon_config.overlay({"logOptions": {"maxAge": 1}}, read({"logOptions": {}})) == {"logOptions": {}}


def test_requests_wait_for_the_readiness_file_themselves_where_nothing_is_generated() -> None:
    server = {**SERVER, "multusConfigFile": "/own"}
    expected = {**LAID, "readinessindicatorfile": "/r", "multusConfigFile": "/own"}
    assert daemon_config.overlay(CLIENT, read(server)) == expected


def test_the_readiness_file_of_a_request_alone_is_dropped_in_any_case() -> None:
    assert daemon_config.overlay({"ReadinessIndicatorFile": "/r", "name": "n"}, read({})) == {"name": "n"}


def test_the_overlay_knows_keys_in_any_case() -> None:
    assert daemon_config.overlay({"namespaceIsolation": False}, read({"namespaceisolation": True})) == {"namespaceisolation": True}


def test_the_overlay_keeps_numbers_and_leaves_its_arguments_alone() -> None:
    request = {"name": "n", "delegates": [{"id": 2**64 + 1}]}
    config = read({"binDir": "/b"})
    merged = daemon_config.overlay(request, config)
    assert merged == {"name": "n", "delegates": [{"id": 2**64 + 1}], "binDir": "/b"}
    assert (request, config.document) == ({"name": "n", "delegates": [{"id": 2**64 + 1}]}, {"binDir": "/b"})
