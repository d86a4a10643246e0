"""The flags of ``thin_entrypoint``, and what they say about the configuration that is made.

Spec: Multus behaviour, "thin_entrypoint", "Flags".
"""

from __future__ import annotations

import argparse
import os

from multus.adapters.logs import LEVELS
from multus.commands.install import BUNDLE, DEST_DIR
from multus.errors import InvalidConfigError
from multus.protocol import versions
from multus.types.primary import AUTO, PrimarySettings

KUBECONFIG_ON_HOST = "/etc/cni/net.d/multus.d/multus.kubeconfig"
_TRUE, _FALSE = frozenset(("1", "t", "true")), frozenset(("0", "f", "false"))

_TEXTS = {
    "--cni-bin-dir": (DEST_DIR, "the host's CNI plugins"),
    "--cni-conf-dir": ("/host/etc/cni/net.d", "where the container runtime looks for configurations, and multus.d goes"),
    "--cni-version": ("", "the version that the primary configuration has to have; empty: any"),
    "--multus-conf-file": (AUTO, "auto, or a ready-made configuration"),
    "--multus-bin-file": (BUNDLE, "what is installed: a bundle, or one executable"),
    "--multus-cni-conf-dir": ("/host/etc/cni/multus/net.d", "made for configurations of multus alone"),
    "--multus-kubeconfig-file-host": (KUBECONFIG_ON_HOST, "the kubeconfig as the host sees it"),
    "--multus-master-cni-file-name": ("", "the file name of the primary configuration; empty: the first one"),
    "--global-namespaces": ("", "whose networks every namespace may use, separated by commas"),
    "--multus-autoconfig-dir": ("/host/etc/cni/net.d", "where the primary configuration is"),
    "--multus-log-level": ("", "debug, verbose, error or panic"),
    "--multus-log-file": ("", "on the host"),
    "--readiness-indicator-file": ("", "that multus waits for, on the host"),
    "--additional-bin-dir": ("", "where multus looks for plugins first, on the host"),
}
"""Flag: its default and what it is for."""
_SWITCHES = {
    "--skip-multus-binary-copy": (False, "install nothing"),
    "--namespace-isolation": (False, "pods use networks of their own namespace alone"),
    "--multus-log-to-stderr": (True, "log to standard error as well"),
    "--override-network-name": (False, "take the name of the primary configuration"),
    "--cleanup-config-on-exit": (False, "remove configuration and kubeconfig at the end; with auto also follow the primary"),
    "--skip-config-watch": (False, "do not follow the primary configuration"),
    "--rename-conf-file": (False, "rename the primary configuration to <file>.old"),
    "--skip-tls-verify": (False, argparse.SUPPRESS),
    "--force-cni-version": (False, argparse.SUPPRESS),
}


def parser() -> argparse.ArgumentParser:
    """Flags with or without ``=``; a switch alone is true."""
    made = argparse.ArgumentParser(
        prog="thin_entrypoint", description="Keep the thin multus plugin of a node installed and configured.",
        add_help=False, allow_abbrev=False,
    )  # fmt: skip
    for flag, (text, about) in _TEXTS.items():
        made.add_argument(flag, default=text, metavar="TEXT", help=f"{about} (default: {text or 'empty'})")
    for flag, (is_on, about) in _SWITCHES.items():
        shown = about if about == argparse.SUPPRESS else f"{about} (default: {str(is_on).lower()})"
        made.add_argument(flag, default=is_on, nargs="?", const=True, type=_switch, metavar="true|false", help=shown)
    made.add_argument("-h", "--help", action="store_true", help="print this and exit with 1")
    return made


def settings(flags: argparse.Namespace) -> PrimarySettings:
    """What the flags say about the configuration.

    Raises:
        InvalidConfigError: Code 7; an unknown log level, a file name that is a path, or a forced version that is not told.
        IncompatibleVersionError: Code 1, a CNI version that nobody knows.
    """
    level = flags.multus_log_level.lower()
    if level and level not in LEVELS:
        raise InvalidConfigError(f"--multus-log-level {flags.multus_log_level!r} is none of {', '.join(LEVELS)}")
    if "/" in flags.multus_master_cni_file_name:
        raise InvalidConfigError(f"--multus-master-cni-file-name {flags.multus_master_cni_file_name!r} is no file name")
    if flags.cni_version:
        versions.require_supported(flags.cni_version, "--cni-version")
    elif flags.force_cni_version:
        raise InvalidConfigError("--force-cni-version is set, and --cni-version does not say which")
    is_automatic = flags.multus_conf_file == AUTO
    return PrimarySettings(
        cni_config_dir=os.path.abspath(flags.cni_conf_dir),
        autoconfig_dir=os.path.abspath(flags.multus_autoconfig_dir),
        master_cni=flags.multus_master_cni_file_name,
        config_file=AUTO if is_automatic else os.path.abspath(flags.multus_conf_file),
        cni_version=flags.cni_version,
        force_cni_version=flags.force_cni_version,
        override_network_name=flags.override_network_name,
        cleanup_config_on_exit=flags.cleanup_config_on_exit,
        plugin_type="multus",
        passed=_members(flags, level),
        rename_primary=flags.rename_conf_file,
    )


def _members(flags: argparse.Namespace, level: str) -> dict[str, object]:
    """Members of the configuration, without those that are as they would be anyway."""
    members: dict[str, object] = {
        "namespaceIsolation": flags.namespace_isolation,
        "globalNamespaces": flags.global_namespaces,
        "logLevel": level,
        "logFile": flags.multus_log_file,
        "binDir": flags.additional_bin_dir,
        "cniConf": flags.multus_cni_conf_dir,
        "readinessindicatorfile": flags.readiness_indicator_file,
    }
    unset = {} if flags.multus_log_to_stderr else {"logToStderr": False}
    return {**{key: value for key, value in members.items() if value}, **unset, "kubeconfig": flags.multus_kubeconfig_file_host}


def _switch(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
