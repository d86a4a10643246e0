"""``cert-approver``: the controller that approves and denies the nodes' requests for certificates; one for a cluster.

It runs over the official client, with the service account of its pod.

Spec: 14-helpers.md of the behaviour notes, §5.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

from multus.adapters import x509
from multus.adapters.kube_informer import Informer
from multus.adapters.logs import Log
from multus.commands import kube_access
from multus.commands.stop import Stop
from multus.core.approver import Approver
from multus.errors import InvalidConfigError, MultusError
from multus.protocol import signing_requests
from multus.protocol.signing_calls import SigningCalls
from multus.types.config import LogConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

COMPONENT = "cert-approver"
EXIT_FATAL, EXIT_SECOND_SIGNAL = 255, 1
_LOOK_UP_S = 0.5
"""How long a wait for requests may keep us from seeing a signal."""
_STOP_S = 1.0


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit status is 0, or 255 with a message."""
    parser = argparse.ArgumentParser(prog=COMPONENT, description="Approves the certificates of the nodes of Multus.", allow_abbrev=False)
    parser.add_argument("--kubeconfig", default="", metavar="PATH", help="outside of the cluster (default: the service account of the pod)")
    options = parser.parse_args()
    sys.exit(Command(options.kubeconfig, os.environ).run())


class Command:
    """One run of the command."""

    def __init__(self, kubeconfig: str, environ: Mapping[str, str]) -> None:
        self._kubeconfig = kubeconfig
        self._environ = environ
        self._log = Log.from_config(LogConfig(level="verbose"))
        self._stop = Stop()

    def run(self) -> int:
        """The exit status."""
        self._stop.listen(signal.SIGTERM, signal.SIGINT, handler=self._signalled)
        try:
            self._serve()
        except MultusError as exc:
            print(f"{COMPONENT}: {exc}", file=sys.stderr)
            return EXIT_FATAL
        self._log.verbose("approver.ended")
        return 0

    def _serve(self) -> None:
        in_cluster = self._environ.get("KUBERNETES_SERVICE_HOST") and self._environ.get("KUBERNETES_SERVICE_PORT")
        if not self._kubeconfig and not in_cluster:
            raise InvalidConfigError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        calls, source = (kube_access.transport(self._kubeconfig, self._environ, prefer_official=True) for _ in range(2))
        informer = Informer(signing_requests.collection(), source, time, self._log)
        approver = Approver(SigningCalls(calls, COMPONENT), x509.request_content, time, self._log)
        informer.start()
        self._log.verbose("approver.started")
        try:
            seen = 0
            while not self._stop.is_set():
                seen = informer.wait_for_change(seen, _LOOK_UP_S)
                approver.sweep(map(signing_requests.from_document, informer.objects()), self._stop.is_set)
        finally:
            informer.ask_to_stop()
            informer.join(_STOP_S)
            calls.close()

    def _signalled(self, number: int, _frame: object) -> None:
        if self._stop.is_set():  # the second signal: at once
            os._exit(EXIT_SECOND_SIGNAL)
        self._stop.set()


if __name__ == "__main__":
    main()
