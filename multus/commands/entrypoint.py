"""``thin_entrypoint``: the program of the thin plugin's pods.

It puts the executable on the host, writes the kubeconfig and the configuration that the executable reads, and keeps both as long
as it runs: the kubeconfig always, the configuration if that is asked for.  Spec: Multus behaviour, "thin_entrypoint".
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from multus import files
from multus.adapters.conf_dir import ConfDir
from multus.adapters.conf_watch import ConfigurationManager
from multus.adapters.installation import Installation, host_path
from multus.adapters.logs import Log
from multus.adapters.primary_files import Embedded, ReadyMade
from multus.adapters.service_account import FOLDER, ServiceAccountKubeconfig
from multus.commands import entrypoint_flags, install
from multus.commands.stop import Stop
from multus.errors import IOFailureError, MultusError
from multus.protocol import bundles
from multus.types.config import LogConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multus.types.primary import PrimarySettings

PRIMARY_TIMEOUT_S = 120.0
REFRESH_S = 5.0
"""How often token and certificates are looked at; the kubelet renews a token minutes ahead of its expiry."""


def main() -> None:
    """Run until a signal; the exit status is 0, 1 after a failure, 2 for flags that nobody knows."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str], service_account: str = FOLDER) -> int:
    """The same with these arguments, without leaving.  Unknown ones raise SystemExit with 2."""
    parser = entrypoint_flags.parser()
    flags = parser.parse_args(arguments)
    if flags.help:
        parser.print_help(sys.stderr)
        return 1
    try:
        return EntryPoint(flags, environ, service_account).run()
    except (OSError, MultusError) as exc:
        print(f"thin_entrypoint: {install.reason(exc)}", file=sys.stderr)
        return 1


class EntryPoint:
    """One run, from the flags to the end.

    Raises InvalidConfigError for flags that say what cannot be, or an environment that does not tell the API server.
    """

    def __init__(self, flags: argparse.Namespace, environ: Mapping[str, str], service_account: str = FOLDER) -> None:
        self._flags = flags
        self._settings: PrimarySettings = entrypoint_flags.settings(flags)
        self._log = Log.from_config(LogConfig(level="verbose"))
        self._kubeconfig_dir = os.path.join(self._settings.cni_config_dir, "multus.d")
        self._kubeconfig = ServiceAccountKubeconfig(
            os.path.join(self._kubeconfig_dir, "multus.kubeconfig"), environ, skips_tls_verify=flags.skip_tls_verify, folder=service_account
        )
        self._stop = Stop()
        self._manager: ConfigurationManager | None = None
        self._trouble = ""

    def run(self) -> int:
        """Install, write, keep; the exit status.

        Raises:
            MultusError, OSError: Something is missing or cannot be done; what was made for the pod's time is cleaned up.
        """
        self._stop.listen(signal.SIGTERM, signal.SIGINT, handler=self._signalled)
        self._check()
        self._install()
        for folder in (self._kubeconfig_dir, self._flags.multus_cni_conf_dir):
            os.makedirs(folder, 0o755, exist_ok=True)
        self._say(f"kubeconfig is {self._kubeconfig.refresh() or 'as it should be'}")
        settings = self._settings
        source = Embedded(settings, ConfDir(settings.primary_folder, self._log)) if settings.is_automatic else ReadyMade(settings)
        manager = self._manager = ConfigurationManager(source, self._log, lambda *_: None)
        has_written = False
        try:
            if self._stop.is_set():  # the handler knew of no manager
                return 0
            try:
                manager.wait_for_primary(PRIMARY_TIMEOUT_S)
            except MultusError:
                if self._stop.is_set():
                    return 0
                raise
            has_written = True
            manager.write_once()
            self._say(f"configuration is written to {settings.cni_config_dir}")
            if settings.is_automatic and settings.cleanup_config_on_exit and not self._flags.skip_config_watch:
                manager.start()
            while not self._stop.wait(REFRESH_S):
                self._refresh()
            return 0
        finally:
            self._stop.set()
            manager.stop(settings.cleanup_config_on_exit and has_written)
            if settings.cleanup_config_on_exit:
                self._kubeconfig.remove()

    def _check(self) -> None:
        """Raises IOFailureError that names the flag whose file or folder is missing."""
        wanted = {"--cni-conf-dir": self._flags.cni_conf_dir, "--cni-bin-dir": self._flags.cni_bin_dir}
        if not self._flags.skip_multus_binary_copy:
            wanted["--multus-bin-file"] = self._flags.multus_bin_file
        if not self._settings.is_automatic:
            wanted["--multus-conf-file"] = self._settings.config_file
        for flag, path in wanted.items():
            if not os.path.exists(path):
                raise IOFailureError(f"{flag} {path} does not exist")

    def _install(self) -> None:
        """The bundle's executables, or the one file that the flag names."""
        if self._flags.skip_multus_binary_copy:
            return
        source, bin_dir = self._flags.multus_bin_file, self._flags.cni_bin_dir
        if os.path.exists(os.path.join(source, bundles.DESCRIPTION)):
            made = Installation(bin_dir, host_path(bin_dir)).install(source, install.EXECUTABLES["thin"])
        else:
            made = [os.path.join(bin_dir, "multus")]
            files.remove_temporaries(made[0])
            files.replace(made[0], files.read(source), os.stat(source).st_mode & 0o777)
        for path in made:
            self._say(f"{path} is installed")

    def _refresh(self) -> None:
        """Follow token and certificates; what cannot be done now is said once, and tried again."""
        try:
            news, trouble = self._kubeconfig.refresh(), ""
        except MultusError as exc:
            news, trouble = "", str(exc)
        if news:
            self._say(f"kubeconfig: {news}")
        if trouble and trouble != self._trouble:
            print(f"thin_entrypoint: the kubeconfig stays as it is: {trouble}", file=sys.stderr, flush=True)
        self._trouble = trouble

    def _signalled(self, _number: int, _frame: object) -> None:
        if self._stop.is_set():  # the second signal: at once
            os._exit(1)
        self._stop.set()
        if self._manager is not None:
            self._manager.cancel()

    @staticmethod
    def _say(text: str) -> None:
        print(f"thin_entrypoint: {text}", flush=True)


if __name__ == "__main__":
    main()
