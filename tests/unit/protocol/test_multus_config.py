"""The configuration of Multus: each key, its default, and its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from multus.errors import DecodingError, IncompatibleVersionError, InvalidConfigError
from multus.protocol import multus_config
from multus.types.config import ConfList, LogConfig, LogOptions, MultusConfig, PluginConf

TRUNK = {"cniVersion": "1.0.0", "name": "trunk", "type": "fake-primary"}


def load(**keys: Any) -> MultusConfig:
    """A configuration of a cluster network by name, with further keys."""
    return multus_config.load(json.dumps({"name": "meta-net", "clusterNetwork": "trunk", **keys}).encode())


def refusal(**keys: Any) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        load(**keys)
    return caught.value.msg


def test_what_is_not_given_has_its_default() -> None:
    assert load() == MultusConfig("meta-net", cluster_network="trunk")


def test_every_key_fills_its_field() -> None:
    config = load(
        cniVersion="1.1.0",
        confDir="/conf",
        cniDir="/state",
        binDir="/bin",
        defaultNetworks=["side"],
        kubeconfig="/kubeconfig",
        readinessindicatorfile="/ready",
        namespaceIsolation=True,
        globalNamespaces="shared, infra",
        systemNamespaces=["kube-system", "sys"],
        multusNamespace="infra",
        auxiliaryCNIChainName="extra",
        delegatePreference="in-process",
        invalidAnnotation="ignore",
        podNotFoundResult="empty",
        strictCapabilities=True,
        allowDeviceID=True,
        retryDeleteOnError=True,
        plugins=["audit"],
        apiDeadline=2,
        maxParallelAttachments=4,
        runtimeConfig={"portMappings": [{"hostPort": 2**70}]},
        prevResult={"ips": []},
        logFile="/log",
        logLevel="debug",
        logToStderr=False,
        logOptions={"maxAge": 1, "maxSize": 2, "maxBackups": 0, "compress": False},
        **{"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0", "more": 1}]},
    )
    assert config == MultusConfig(
        "meta-net",
        "1.1.0",
        conf_dir="/conf",
        cni_dir="/state",
        bin_dir="/bin",
        cluster_network="trunk",
        default_networks=("side",),
        kubeconfig="/kubeconfig",
        readiness_indicator_file="/ready",
        namespace_isolation=True,
        global_namespaces=("shared", "infra"),
        system_namespaces=("kube-system", "sys"),
        multus_namespace="infra",
        auxiliary_chain="extra",
        delegate_preference="in-process",
        invalid_annotation="ignore",
        pod_not_found_result="empty",
        strict_capabilities=True,
        allow_device_id=True,
        retry_delete_on_error=True,
        plugins=("audit",),
        api_deadline_s=2.0,
        max_parallel_attachments=4,
        runtime_config={"portMappings": [{"hostPort": 2**70}]},
        prev_result={"ips": []},
        valid_attachments=(("c1", "eth0"),),
        log=LogConfig("/log", "debug", False, LogOptions(1, 2, 0, False)),
    )


def test_null_means_the_default() -> None:
    assert load(confDir=None, logOptions=None, plugins=None, globalNamespaces=None, apiDeadline=None, delegates=None) == load()


def test_an_empty_folder_or_namespace_means_the_default() -> None:
    assert load(confDir="", cniDir="", binDir="", multusNamespace="", globalNamespaces="") == load()


def test_an_empty_list_of_system_namespaces_means_none() -> None:
    assert load(systemNamespaces=[]).system_namespaces == ()


def test_a_key_matches_in_another_case_and_its_own_spelling_wins() -> None:
    given = ({"CONFDIR": "/a"}, {"CONFDIR": "/a", "confDir": "/b"}, {"confDir": "/b", "CONFDIR": "/a"})
    assert [load(**keys).conf_dir for keys in given] == ["/a", "/b", "/b"]


def test_null_in_the_own_spelling_does_not_hide_another_case() -> None:
    assert load(confDir=None, CONFDIR="/a").conf_dir == "/a"


def test_an_unknown_key_is_ignored() -> None:
    assert load(capabilities={"portMappings": True}, type="multus", someday=[1]) == load()


def test_gc_tells_no_attachments_from_none_valid() -> None:
    assert [load().valid_attachments, load(**{"cni.dev/valid-attachments": []}).valid_attachments] == [None, ()]


def test_delegates_are_read_in_order_and_named_after_the_configuration() -> None:
    side = {"type": "fake-a"}
    given = {"name": "meta-net", "delegates": [{"type": "fake-primary"}, side, TRUNK]}
    config = multus_config.from_document(given)
    assert [delegate.name for delegate in config.delegates] == ["meta-net", "meta-net-1", "trunk"]
    assert config.delegates[1] == ConfList(side, "meta-net-1", "", (PluginConf(side, "fake-a"),), is_list=False)


def test_a_cluster_network_wins_over_delegates_with_a_warning() -> None:
    config = load(delegates=[TRUNK])
    assert (config.delegates, config.warnings) == ((), ('"delegates" is ignored because "clusterNetwork" is set',))


@pytest.mark.parametrize("keys", [{}, {"delegates": []}, {"delegates": None, "clusterNetwork": ""}])
def test_a_configuration_without_a_cluster_network_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match='neither "delegates" nor "clusterNetwork" names the cluster network'):
        multus_config.from_document({"name": "meta-net", **keys})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": ""}, 'key "name" "" is no network name'),
        ({"name": "a/b"}, 'key "name" "a/b" is no network name'),
        ({"name": 1}, 'key "name" 1 is a number, a string is expected'),
        ({"cniVersion": 1.0}, 'key "cniVersion" 1.0 is a number, a string is expected'),
        ({"confDir": ["/a"]}, 'key "confDir" ["/a"] is a list, a string is expected'),
        ({"binDir": "/a\0"}, 'key "binDir" "/a\\u0000" is invalid: it has NUL or half a character'),
        ({"kubeconfig": "/a\ud800"}, 'key "kubeconfig" "/a\\ud800" is invalid: it has NUL or half a character'),
        ({"defaultNetworks": "side"}, 'key "defaultNetworks" "side" is a string, a list of strings is expected'),
        ({"defaultNetworks": [1]}, 'key "defaultNetworks" [1] is a list, a list of strings is expected'),
        ({"defaultNetworks": ["a", "/b\0"]}, 'key "defaultNetworks" ["a", "/b\\u0000"] is invalid: it has NUL or half a character'),
        ({"namespaceIsolation": "true"}, 'key "namespaceIsolation" "true" is a string, true or false is expected'),
        ({"runtimeConfig": []}, 'key "runtimeConfig" [] is a list, an object is expected'),
        ({"globalNamespaces": ["a"]}, 'key "globalNamespaces" ["a"] is a list, a string is expected'),
        *(
            ({"maxParallelAttachments": value}, f'key "maxParallelAttachments" {shown} is invalid, a whole number from 1 to 64 is expected')
            for value, shown in ((0, "0"), (65, "65"), (-1, "-1"), (True, "true"), (1.5, "1.5"), ("4", '"4"'), ([], "[]"))
        ),
        ({"delegatePreference": "wasm"}, 'key "delegatePreference" "wasm" is invalid, one of binary, in-process is expected'),
        ({"invalidAnnotation": []}, 'key "invalidAnnotation" [] is invalid, one of fail, ignore is expected'),
        ({"podNotFoundResult": ""}, 'key "podNotFoundResult" "" is invalid, one of error, empty is expected'),
        ({"apiDeadline": 0}, 'key "apiDeadline" 0 is invalid, seconds above 0 and up to 600 are expected'),
        ({"apiDeadline": 601}, 'key "apiDeadline" 601 is invalid, seconds above 0 and up to 600 are expected'),
        ({"apiDeadline": True}, 'key "apiDeadline" true is invalid, seconds above 0 and up to 600 are expected'),
        ({"apiDeadline": "5s"}, 'key "apiDeadline" "5s" is invalid, seconds above 0 and up to 600 are expected'),
        ({"logOptions": []}, 'key "logOptions" [] is a list, an object is expected'),
        ({"logOptions": {"maxAge": -1}}, 'key "logOptions.maxAge" -1 is invalid, a whole number from 0 is expected'),
        ({"logOptions": {"maxSize": 1.5}}, 'key "logOptions.maxSize" 1.5 is invalid, a whole number from 0 is expected'),
        ({"logOptions": {"maxBackups": True}}, 'key "logOptions.maxBackups" true is invalid, a whole number from 0 is expected'),
        ({"logOptions": {"compress": 1}}, 'key "logOptions.compress" 1 is a number, true or false is expected'),
        ({"logToStderr": "no"}, 'key "logToStderr" "no" is a string, true or false is expected'),
        ({"cni.dev/valid-attachments": {}}, 'key "cni.dev/valid-attachments" is an object, a list is expected'),
        ({"cni.dev/valid-attachments": [None]}, 'key "cni.dev/valid-attachments"[0] has no containerID and ifname'),
        (
            {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c1"}]},
            'key "cni.dev/valid-attachments"[1] has no containerID and ifname',
        ),
        ({"clusterNetwork": "", "delegates": {}}, 'key "delegates" is an object, a list of objects is expected'),
        ({"clusterNetwork": "", "delegates": [TRUNK, None]}, "delegates[1] is null, an object is expected"),
        ({"clusterNetwork": "", "delegates": [{"name": "x"}]}, "delegates[0] has no `type`"),
    ],
)
def test_a_wrong_value_is_refused_with_key_and_value(keys: dict[str, Any], message: str) -> None:
    assert refusal(**keys) == f"multus configuration: {message}"


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(IncompatibleVersionError):
        load(cniVersion="9.0.0")


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff"])
def test_standard_input_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(DecodingError, match=r"^multus configuration is "):
        multus_config.load(text)
