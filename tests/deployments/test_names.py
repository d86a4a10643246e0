"""Every command, flag, key and path that the manifests name exists in the code, and both sides of a path agree."""

from __future__ import annotations

import argparse
import configparser
import importlib
import posixpath
from collections.abc import Mapping
from typing import Any

import pytest

from multus.adapters import device_info, kubelet
from multus.commands import daemon, node_certificate, shim
from multus.protocol import daemon_config, primary_settings
from multus.types.config import MultusConfig
from multus.types.daemon import DaemonConfig
from multus.types.primary import PrimarySettings
from tests.deployments.manifests import (
    BIN,
    CERTIFICATES,
    DAEMON_CONFIG,
    ROOT,
    THICK,
    WAYS,
    Container,
    by_identity,
    container,
    containers,
    documents,
    every_container,
    pods,
)
from tests.deployments.manifests import daemon_config as config_of

OF_THE_IMAGE = ("/usr/bin/test",)
"""Commands that are not ours; Debian's coreutils."""
THIN = tuple(way for way in WAYS if way not in THICK)


def console_scripts() -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parser["options.entry_points"]["console_scripts"].strip().splitlines()
    return {name.strip(): target.strip() for name, _, target in (line.partition("=") for line in lines)}


def commands(each: Container) -> list[list[str]]:
    """What a container runs: its own command with its arguments, and its probes'."""
    probes = [each.document[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in each.document]
    return [[*each.document["command"], *each.document.get("args", [])], *(probe["exec"]["command"] for probe in probes)]


class _Found(Exception):
    """Carries a command's parser out of its main function."""


def parse(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> argparse.Namespace:
    """Arguments as the command's own parser reads them."""
    module, _, function = console_scripts()[posixpath.basename(command[0])].partition(":")
    original = argparse.ArgumentParser.parse_args

    def found(parser: argparse.ArgumentParser, *_: object) -> argparse.Namespace:
        raise _Found(parser)

    with monkeypatch.context() as patched:
        patched.setattr("sys.argv", command)
        patched.setattr(argparse.ArgumentParser, "parse_args", found)
        with pytest.raises(_Found) as caught:
            getattr(importlib.import_module(module), function)()
    return original(caught.value.args[0], command[1:])


@pytest.mark.parametrize("each", every_container())
def test_every_command_exists(each: Container) -> None:
    for command in commands(each):
        assert command[0] in OF_THE_IMAGE or posixpath.dirname(command[0]) == BIN
        if command[0] not in OF_THE_IMAGE:
            assert posixpath.basename(command[0]) in console_scripts()


@pytest.mark.parametrize("each", every_container())
def test_every_flag_is_one_of_its_command(each: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands(each):
        if command[0] not in OF_THE_IMAGE:
            parse(monkeypatch, command)


def test_a_flag_that_a_command_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """So the test above can fail."""
    with pytest.raises(SystemExit):
        parse(monkeypatch, [f"{BIN}/multus-daemon", "--confg=x"])
    assert "--confg=x" in capsys.readouterr().err


# --- Thick ---


def path_of(config: Mapping[str, Any], key: str) -> str:
    """A folder of the daemon's configuration, or its default."""
    defaults = {
        "socketDir": DaemonConfig._field_defaults["socket_dir"],
        "cniDir": DaemonConfig._field_defaults["cni_dir"],
        "cniConfigDir": PrimarySettings._field_defaults["cni_config_dir"],
        "binDir": MultusConfig._field_defaults["bin_dir"],
        "confDir": MultusConfig._field_defaults["conf_dir"],
    }
    return posixpath.normpath(config.get(key, defaults.get(key)))


@pytest.mark.parametrize("way", THICK)
def test_the_daemon_knows_every_key_of_its_configuration(way: str) -> None:
    config = config_of(way)
    if "perNodeCertificate" in config:
        assert set(config["perNodeCertificate"]) == {"enabled", "bootstrapKubeconfig", "certDir", "certDuration"}
    assert daemon_config.from_document(config, DAEMON_CONFIG, 2).warnings == ()
    primary_settings.from_document(config, DAEMON_CONFIG)


@pytest.mark.parametrize("way", THICK)
def test_the_daemon_reads_the_configuration_where_it_is_mounted(way: str) -> None:
    mount = container(way, "kube-multus").mount(posixpath.dirname(daemon.DEFAULT_CONFIG))
    assert (mount["name"], mount["readOnly"]) == ("multus-daemon-config", True)
    assert posixpath.basename(daemon.DEFAULT_CONFIG) == DAEMON_CONFIG


@pytest.mark.parametrize("way", THICK)
def test_shim_and_daemon_mean_the_same_folders(way: str) -> None:
    """What the runtime, the shim and the delegates see on the host, and the daemon in its container."""
    each, config = container(way, "kube-multus"), config_of(way)
    host = {key: each.host_path(path_of(config, key)) for key in ("socketDir", "cniDir", "cniConfigDir", "binDir", "confDir")}
    assert host["socketDir"] == posixpath.normpath(default_of_the_shim("daemonSocketDir"))
    assert host["cniDir"] == path_of({}, "cniDir"), "the shim keeps DELs there"
    assert host["cniConfigDir"] == path_of({}, "cniConfigDir"), "the runtime's own"
    assert host["binDir"] == path_of(config, "binDir"), "delegates are found here and run with the host's root"
    assert host["confDir"] == path_of({}, "confDir")
    assert each.host_path(config["multusAutoconfigDir"]) == host["cniConfigDir"]
    assert each.host_path(config["chrootDir"]) == "/"
    installed = container(way, "install-multus-binary")
    assert installed.host_path("/host/opt/cni/bin") == host["binDir"]


def default_of_the_shim(key: str) -> str:
    """What the shim takes where its configuration does not say; from the table of its own documentation."""
    (line,) = (line for line in (shim.__doc__ or "").splitlines() if line.startswith(f"``{key}``"))
    return line.split("``")[3]


@pytest.mark.parametrize("way", THICK)
def test_what_devices_need_is_the_hosts(way: str) -> None:
    each = container(way, "kube-multus")
    assert each.host_path(device_info.BASE.replace("/var/run/", "/run/")) == "/run/k8s.cni.cncf.io/devinfo"
    assert each.host_path(kubelet.SOCKET) == kubelet.SOCKET


@pytest.mark.parametrize("way", THICK)
def test_namespaces_and_mounts_that_are_made_later_are_seen(way: str) -> None:
    each = container(way, "kube-multus")
    for path in ("/run/netns", "/hostroot", "/var/lib/kubelet"):
        assert each.mount(path)["mountPropagation"] == "HostToContainer"
    assert each.pod["hostPID"] is True


@pytest.mark.parametrize("way", THICK)
def test_probes_ask_where_the_daemon_serves(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = container(way, "kube-multus").document
    socket_path = posixpath.join(path_of(config_of(way), "socketDir"), "multus.sock")
    asked = {name: parse(monkeypatch, document[name]["exec"]["command"]) for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: options.path for name, options in asked.items()} == {
        "startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz",
    }  # fmt: skip
    assert {options.socket for options in asked.values()} == {socket_path}


@pytest.mark.parametrize("way", THICK)
def test_times_leave_the_daemon_what_it_takes(way: str) -> None:
    each = container(way, "kube-multus")
    startup = each.document["startupProbe"]
    waits = (
        daemon.READY_TIMEOUT_S + DaemonConfig._field_defaults["primary_timeout_s"] + node_certificate.START_LIMIT_S + daemon.SYNC_TIMEOUT_S
    )
    assert startup["periodSeconds"] * startup["failureThreshold"] > waits
    stops = DaemonConfig._field_defaults["shutdown_grace_s"] + daemon.EVENTS_TIMEOUT_S
    assert each.pod["terminationGracePeriodSeconds"] > stops


@pytest.mark.parametrize("way", THICK)
def test_the_delegates_that_run_at_a_time_are_bounded(way: str) -> None:
    """Their memory is the container's."""
    assert config_of(way)["connectionLimit"] == 16


@pytest.mark.parametrize("way", [way for way in THICK if way in CERTIFICATES])
def test_the_daemon_finds_the_bootstrap_credentials_and_keeps_its_certificates(way: str) -> None:
    each, keys = container(way, "kube-multus"), config_of(way)["perNodeCertificate"]
    assert each.host_path(keys["bootstrapKubeconfig"]) == "/etc/kubernetes/kubelet.conf"
    assert each.host_path("/var/lib/kubelet/pki") == "/var/lib/kubelet/pki", "kubelet.conf names files there"
    assert each.host_path(keys["certDir"]) == keys["certDir"]


# --- Thin ---


@pytest.mark.parametrize("way", THIN)
def test_the_entry_point_writes_what_the_host_reads(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    each = container(way, "kube-multus")
    options = parse(monkeypatch, commands(each)[0])
    assert each.host_path(options.cni_conf_dir) == "/etc/cni/net.d"
    assert each.host_path(options.multus_autoconfig_dir) == "/etc/cni/net.d"
    assert each.host_path(options.multus_cni_conf_dir) == MultusConfig._field_defaults["conf_dir"]
    written = each.host_path(f"{options.cni_conf_dir}/multus.d/multus.kubeconfig")
    assert (options.multus_kubeconfig_file_host == written) is (way not in CERTIFICATES)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_installed_goes_where_the_runtime_looks(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    each = container(way, "install-multus-binary")
    options = parse(monkeypatch, commands(each)[0])
    folder = {"crio": "/usr/libexec/cni"}.get(way, "/opt/cni/bin")
    assert options.type == ("thick" if way in THICK else "thin")
    assert each.host_path(options.dest_dir) == folder
    if way in THIN:
        entry_point = container(way, "kube-multus")
        arguments = parse(monkeypatch, commands(entry_point)[0])
        assert entry_point.host_path(arguments.cni_bin_dir) == folder
        assert (arguments.additional_bin_dir or "/opt/cni/bin") == folder


def test_the_thin_plugin_uses_the_kubeconfig_of_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    way = "thin-certificates"
    plugin = parse(monkeypatch, commands(container(way, "kube-multus"))[0])
    generator = container(way, "kubeconfig-generator")
    options = parse(monkeypatch, commands(generator)[0])
    assert generator.host_path(options.kubeconfig) == plugin.multus_kubeconfig_file_host
    assert generator.host_path(options.certdir) == options.certdir, "the kubeconfig names it, and is read on the host"
    assert generator.host_path(options.bootstrap_config) == "/etc/kubernetes/kubelet.conf"


@pytest.mark.parametrize("way", WAYS)
def test_who_needs_the_nodes_name_is_told(way: str) -> None:
    told = {
        each.name
        for each in containers(way)
        if {"name": "MULTUS_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}} in each.document.get("env", [])
    }
    assert told == {"thin-certificates": {"kubeconfig-generator"}}.get(way, {"kube-multus"} if way in THICK else set())


def test_names_of_objects_are_those_of_the_go_implementation() -> None:
    """So that applying ours over it replaces it: roles with more rights than ours do not stay behind."""
    for way in WAYS:
        names = set(by_identity(documents(way)))
        expected = {(kind, "multus") for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")} | {
            ("DaemonSet", "kube-multus-ds")
        }
        assert expected <= names
        assert (("ConfigMap", "multus-daemon-config") in names) is (way in THICK)
        assert len(list(pods(way))) == (2 if way in CERTIFICATES else 1)
