"""``kubeconfig_generator``: a kubeconfig for the thin plugin, by a certificate of the node that is kept valid.

It runs beside the plugin's node, in the pod of a DaemonSet, until a signal; then the kubeconfig is removed.

Spec: 14-helpers.md of the behaviour notes, §4.
"""

from __future__ import annotations

import argparse
import binascii
import os
import signal
import sys

from multus import files
from multus.adapters.logs import Log
from multus.commands.node_certificate import START_LIMIT_S, NodeCertificate
from multus.commands.stop import Stop
from multus.errors import InvalidConfigError, IOFailureError, MultusError
from multus.protocol import documents
from multus.types.certificates import CertificateSettings
from multus.types.config import LogConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multus.types.cluster import Cluster

EXIT_FATAL, EXIT_USAGE, EXIT_SECOND_SIGNAL = 255, 1, 1
_LOOK_S = 5.0
"""Between two looks whether the kubeconfig is as it should be."""
CLUSTER, USER, CONTEXT = "default-cluster", "default-auth", "default-context"


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit status is 0, or 255 with a message."""
    options = _options(sys.argv[1:])
    sys.exit(Generator(options, os.environ).run())


class Generator:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, environ: Mapping[str, str], start_limit_s: float = START_LIMIT_S) -> None:
        """``start_limit_s`` is for the first certificate."""
        self._options = options
        self._environ = environ
        self._start_limit_s = start_limit_s
        self._log = Log.from_config(LogConfig(level="verbose"))
        self._stop = Stop()

    def run(self) -> int:
        """The exit status."""
        self._stop.listen(signal.SIGTERM, signal.SIGINT, handler=self._signalled)
        try:
            certificate = self._certificate()
            try:
                self._serve(certificate)
            finally:
                certificate.stop()
        except MultusError as exc:
            print(f"kubeconfig_generator: {exc}", file=sys.stderr)
            return EXIT_FATAL
        return 0

    def _certificate(self) -> NodeCertificate:
        options = self._options
        if not os.path.isdir(options.certdir):
            raise InvalidConfigError(f"--certdir {options.certdir}: there is no such folder")
        if not os.path.isfile(options.bootstrap_config):
            raise InvalidConfigError(f"--bootstrap-config {options.bootstrap_config}: there is no such file")
        settings = CertificateSettings(options.bootstrap_config, os.path.abspath(options.certdir), options.cert_duration)
        return NodeCertificate(settings, self._environ, self._log)

    def _serve(self, certificate: NodeCertificate) -> None:
        certificate.start()
        certificate.wait(self._stop, self._start_limit_s)
        if self._stop.is_set():
            return
        self._write(certificate)
        while not self._stop.wait(_LOOK_S):
            if not certificate.is_kept():
                raise MultusError("nobody renews the node's certificate any more")
            try:
                self._write(certificate)
            except MultusError as exc:
                self._log.error("kubeconfig.not_written", error=exc)
        try:
            files.remove(self._options.kubeconfig)
        except OSError as exc:
            self._log.error("kubeconfig.not_removed", path=self._options.kubeconfig, error=exc)

    def _write(self, certificate: NodeCertificate) -> None:
        """Write the kubeconfig, unless it is there as it should be: the API server's address or authority may be others now."""
        path, on_host = self._options.kubeconfig, self._options.host_certdir
        certificate_path = os.path.join(on_host, os.path.basename(certificate.path)) if on_host else certificate.path
        content = documents.dumps(kubeconfig(certificate.cluster(), certificate_path)).encode() + b"\n"
        try:
            if os.path.exists(path) and files.read(path) == content:
                return
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            files.replace(path, content, 0o600)
        except OSError as exc:
            raise IOFailureError(f"cannot write --kubeconfig {path}: {exc.strerror}") from exc
        self._log.verbose("kubeconfig.written", path=path)

    def _signalled(self, number: int, _frame: object) -> None:
        if self._stop.is_set():  # the second signal: at once
            os._exit(EXIT_SECOND_SIGNAL)
        self._stop.set()


def kubeconfig(cluster: Cluster, certificate_path: str) -> dict[str, object]:
    """A kubeconfig for an API server, by a file that holds a certificate and its key; the authority is embedded.

    Raises:
        IOFailureError: Code 5, the authority's file cannot be read.
    """
    server: dict[str, object] = {"server": cluster.url}
    authority = _authority(cluster)
    if authority:
        server["certificate-authority-data"] = binascii.b2a_base64(authority, newline=False).decode()
    if cluster.tls_server_name:
        server["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        server["insecure-skip-tls-verify"] = True
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": CLUSTER, "cluster": server}],
        "users": [{"name": USER, "user": {"client-certificate": certificate_path, "client-key": certificate_path}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CLUSTER, "namespace": "default", "user": USER}}],
        "current-context": CONTEXT,
    }


def _authority(cluster: Cluster) -> bytes:
    if cluster.ca_data or not cluster.ca_file:
        return cluster.ca_data.encode()
    try:
        return files.read(cluster.ca_file)
    except OSError as exc:
        raise IOFailureError(f"cannot read certificate authority {cluster.ca_file}: {exc.strerror}") from exc


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="kubeconfig_generator", description="Keeps a kubeconfig with a certificate of the node.", allow_abbrev=False, add_help=False
    )
    parser.add_argument("--certdir", default="/tmp", metavar="DIR", help="folder of the certificates; it must exist (default: %(default)s)")
    parser.add_argument("--host-certdir", default="", metavar="DIR", help="the same folder, as the reader of the kubeconfig sees it")
    parser.add_argument("--bootstrap-config", default="/tmp/kubeconfig", metavar="PATH", help="bootstrap kubeconfig (default: %(default)s)")
    parser.add_argument("--kubeconfig", default="/run/multus/kubeconfig", metavar="PATH", help="what is written (default: %(default)s)")
    parser.add_argument("--cert-duration", default="10m", metavar="DURATION", help="lifetime of a certificate (default: %(default)s)")
    parser.add_argument("-h", "--help", action="store_true", help="this text")
    return parser


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser().parse_args(arguments)
    if options.help:
        parser().print_help(sys.stderr)
        sys.exit(EXIT_USAGE)
    return options


if __name__ == "__main__":
    main()
