"""The flags of ``thin_entrypoint``: a row for each, and what it says about the configuration."""

from __future__ import annotations

import pytest

from multus.commands import entrypoint_flags
from multus.errors import IncompatibleVersionError, InvalidConfigError, MultusError

# Spec: Multus behaviour, "thin_entrypoint", "Flags": each flag, its default, another value, and what becomes of that.
TEXTS = [
    ("--cni-bin-dir", "/host/opt/cni/bin", "/b"),
    ("--cni-conf-dir", "/host/etc/cni/net.d", "/c"),
    ("--cni-version", "", "0.4.0"),
    ("--multus-conf-file", "auto", "/x/70-multus.conf"),
    ("--multus-bin-file", "/usr/src/multus-cni/bundle", "/m"),
    ("--multus-cni-conf-dir", "/host/etc/cni/multus/net.d", "/d"),
    ("--multus-kubeconfig-file-host", "/etc/cni/net.d/multus.d/multus.kubeconfig", "/k"),
    ("--multus-master-cni-file-name", "", "10-a.conf"),
    ("--global-namespaces", "", "default,infra"),
    ("--multus-autoconfig-dir", "/host/etc/cni/net.d", "/a"),
    ("--multus-log-level", "", "debug"),
    ("--multus-log-file", "", "/l"),
    ("--readiness-indicator-file", "", "/r"),
    ("--additional-bin-dir", "", "/e"),
]
SWITCHES = [
    ("--skip-multus-binary-copy", False),
    ("--namespace-isolation", False),
    ("--multus-log-to-stderr", True),
    ("--override-network-name", False),
    ("--cleanup-config-on-exit", False),
    ("--skip-config-watch", False),
    ("--rename-conf-file", False),
    ("--skip-tls-verify", False),
    ("--force-cni-version", False),
]
USUAL = {"cniConf": "/host/etc/cni/multus/net.d", "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig"}


def parsed(*arguments: str) -> dict[str, object]:
    return vars(entrypoint_flags.parser().parse_args(arguments))


def made(*arguments: str):
    return entrypoint_flags.settings(entrypoint_flags.parser().parse_args(arguments))


def test_there_are_no_other_flags() -> None:
    known = {action.dest for action in entrypoint_flags.parser()._actions}
    assert known == {flag[2:].replace("-", "_") for flag, *_ in (*TEXTS, *SWITCHES)} | {"help"}


@pytest.mark.parametrize(("flag", "default", "value"), TEXTS)
def test_a_text_has_its_default_and_is_given_either_way(flag: str, default: str, value: str) -> None:
    name = flag[2:].replace("-", "_")
    assert [default, value, value] == [parsed()[name], parsed(flag, value)[name], parsed(f"{flag}={value}")[name]]


@pytest.mark.parametrize(("flag", "default"), SWITCHES)
def test_a_switch_has_its_default_and_is_given_alone_or_with_a_value(flag: str, default: bool) -> None:
    name = flag[2:].replace("-", "_")
    given = [parsed(*arguments)[name] for arguments in ([], [flag], [f"{flag}=true"], [f"{flag}=false"], [f"{flag}=T"], [f"{flag}=0"])]
    assert [default, True, True, False, True, False] == given


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--cni-conf-dir=/c"], "cni_config_dir", "/c"),
        (["--multus-autoconfig-dir=/a"], "autoconfig_dir", "/a"),
        (["--multus-master-cni-file-name=10-a.conf"], "master_cni", "10-a.conf"),
        (["--multus-conf-file=/x/70.conf"], "config_file", "/x/70.conf"),
        (["--cni-version=0.4.0"], "cni_version", "0.4.0"),
        (["--cni-version=0.4.0", "--force-cni-version"], "force_cni_version", True),
        (["--override-network-name"], "override_network_name", True),
        (["--cleanup-config-on-exit"], "cleanup_config_on_exit", True),
        (["--rename-conf-file"], "rename_primary", True),
        ([], "plugin_type", "multus"),
        ([], "passed", USUAL),
        (["--multus-cni-conf-dir=/d"], "passed", {**USUAL, "cniConf": "/d"}),
        (["--multus-kubeconfig-file-host=/k"], "passed", {**USUAL, "kubeconfig": "/k"}),
        (["--namespace-isolation"], "passed", {**USUAL, "namespaceIsolation": True}),
        (["--global-namespaces=default,infra"], "passed", {**USUAL, "globalNamespaces": "default,infra"}),
        (["--multus-log-to-stderr=false"], "passed", {**USUAL, "logToStderr": False}),
        (["--multus-log-level=DEBUG"], "passed", {**USUAL, "logLevel": "debug"}),
        (["--multus-log-file=/l"], "passed", {**USUAL, "logFile": "/l"}),
        (["--readiness-indicator-file=/r"], "passed", {**USUAL, "readinessindicatorfile": "/r"}),
        (["--additional-bin-dir=/e"], "passed", {**USUAL, "binDir": "/e"}),
    ],
)
def test_a_flag_says_one_thing_about_the_configuration(arguments: list[str], field: str, value: object) -> None:
    assert made()._replace(**{field: value}, **_also(arguments)) == made(*arguments)


def _also(arguments: list[str]) -> dict[str, object]:
    return {"cni_version": "0.4.0"} if "--force-cni-version" in arguments else {}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--multus-log-level=loud"], InvalidConfigError),
        (["--multus-master-cni-file-name=../10-a.conf"], InvalidConfigError),
        (["--force-cni-version"], InvalidConfigError),
        (["--cni-version=7.0.0"], IncompatibleVersionError),
    ],
)
def test_what_cannot_be_is_refused_by_the_flag(arguments: list[str], error: type[MultusError]) -> None:
    with pytest.raises(error, match=arguments[0].partition("=")[0]):
        made(*arguments)


@pytest.mark.parametrize("arguments", [["--restart-crio"], ["--cni-ver=0.4.0"], ["--namespace-isolation=maybe"], ["-x"]])
def test_unknown_flags_and_values_are_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parsed(*arguments)
    assert left.value.code == 2
    assert "usage: thin_entrypoint" in capsys.readouterr().err


def test_the_help_has_all_flags_but_those_for_test_clusters() -> None:
    text = entrypoint_flags.parser().format_help()
    shown = {flag for flag, *_ in (*TEXTS, *SWITCHES) if flag in text}
    assert {flag for flag, *_ in (*TEXTS, *SWITCHES)} - {"--skip-tls-verify", "--force-cni-version"} == shown
