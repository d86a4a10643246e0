"""The node's own certificate in a process that needs it: first waited for, then kept valid in a thread of its own."""

from __future__ import annotations

import os
import random
import threading
import time

from multus.adapters.certificate_store import CertificateStore
from multus.commands import kube_access
from multus.core.certificates import CertificateManager
from multus.errors import InvalidConfigError, MultusError, TryAgainLaterError
from multus.protocol.durations import parse_duration
from multus.protocol.signing_calls import SigningCalls
from multus.types.certificates import node_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from multus.commands.stop import Stop
    from multus.core.ports import Log
    from multus.types.certificates import CertificateSettings
    from multus.types.cluster import Cluster

START_LIMIT_S = 120.0
"""For the first certificate."""
_LOOK_S = 0.1
_STEP_MAX_S = 60.0
"""Between two looks at the store: what others do to it is seen after that long.  More than any delay after a failure."""
_STOP_S = 2.0
_LIFETIME_MIN_S, _LIFETIME_MAX_S = 600, 2**31 - 1
"""What the API server takes as ``expirationSeconds``."""


class NodeCertificate:
    """``start``, ``wait``, ``stop``; the rest at any time, from any thread."""

    def __init__(self, settings: CertificateSettings, environ: Mapping[str, str], log: Log) -> None:
        """
        Args:
            environ: Tells the node's name, and of proxies.

        Raises:
            InvalidConfigError: Code 7, a setting is missing or not possible.
        """
        self._settings = settings
        self._environ = environ
        self._log = log
        self._store = CertificateStore(settings.folder)
        self.path = self._store.path
        """Of the certificate and its key."""
        self.on_renewed: list[Callable[[], None]] = []
        """Called after each renewal."""
        self.on_failed: list[Callable[[str], None]] = []
        """Called with the problem after the first failure in a row."""
        self._stopping = threading.Event()
        self._broken: MultusError | None = None
        self._manager = self._new_manager(*_checked(settings, environ))
        self._thread = threading.Thread(target=self._run, name="node-certificate", daemon=True)

    def start(self) -> None:
        """Ask for a certificate, unless there is a valid one, and keep it valid from now on.

        Raises:
            IOFailureError, InvalidConfigError, DecodingError: The folder or the bootstrap kubeconfig is not usable.
        """
        self._store.prepare()
        self.cluster()
        self._thread.start()

    def wait(self, stop: Stop, limit_s: float = START_LIMIT_S) -> None:
        """Wait until there is a valid certificate, or we are to end.

        Raises:
            TryAgainLaterError: Code 11, there was none in that time; says what the last try met.
            IOFailureError, InvalidConfigError: The store is not as it should be, which waiting does not mend.
        """
        end = time.monotonic() + limit_s
        while not self.seconds_left() and not stop.is_set():
            if self._broken is not None:
                raise self._broken
            if time.monotonic() > end:
                reason = self._manager.problem or "the API server has not answered"
                raise TryAgainLaterError(f"no certificate of the node within {limit_s:g} s: {reason}")
            stop.wait(_LOOK_S)

    def stop(self) -> None:
        """Renew no more; the certificate stays."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def cluster(self) -> Cluster:
        """The API server, and our certificate for it.  Raises what ``kube_access.with_certificate`` does."""
        return kube_access.with_certificate(self._settings.bootstrap_kubeconfig, self._environ, self.path)

    def seconds_left(self) -> float:
        """Until the certificate is over; 0 when it is, or there is none."""
        return self._manager.seconds_left()

    def is_kept(self) -> bool:
        """Whether somebody renews it."""
        return self._thread.is_alive()

    def not_ready(self) -> str:
        """Why the API server does not know us, or soon will not; empty: it does."""
        if not self.is_kept():
            return "nobody renews the node's certificate any more"
        if self.seconds_left():
            return ""
        return f"the node's certificate is over: {self._manager.problem or 'it was not renewed'}"

    def _new_manager(self, node_name: str, lifetime_s: int) -> CertificateManager:
        from multus.adapters import x509  # 45 ms, for nodes that have certificates

        path = self._settings.bootstrap_kubeconfig
        return CertificateManager(
            node_identity(node_name),
            lifetime_s,
            self._store,
            x509,
            own=lambda: SigningCalls(kube_access.transport(path, self._environ, certificate_path=self.path)),
            bootstrap=lambda: SigningCalls(kube_access.transport(path, self._environ)),
            pause=self._stopping.wait,
            clock=time,
            log=self._log,
            on_renewed=lambda: _tell(self.on_renewed),
            on_failed=lambda problem: _tell(self.on_failed, problem),
            fraction=random.random,
        )

    def _run(self) -> None:
        delay_s = 0.0
        while not self._stopping.wait(min(delay_s, _STEP_MAX_S)):
            try:
                delay_s = self._manager.step()
                self._broken = None
            except MultusError as exc:
                if self._broken is None:
                    self._log.error("certificate.store.broken", error=exc)
                self._broken, delay_s = exc, _STEP_MAX_S


def _checked(settings: CertificateSettings, environ: Mapping[str, str]) -> tuple[str, int]:
    """The node's name, and the certificate's lifetime in seconds."""
    node_name = environ.get("MULTUS_NODE_NAME", "")
    if not node_name:
        raise InvalidConfigError("a certificate of the node needs the node's name in environment variable MULTUS_NODE_NAME")
    if not settings.bootstrap_kubeconfig or not settings.folder:
        raise InvalidConfigError("a certificate of the node needs a bootstrap kubeconfig and a folder; one of them is not set")
    if not os.path.isabs(settings.folder):
        raise InvalidConfigError(f"folder of certificates {settings.folder!r} is not an absolute path")
    try:
        lifetime_s = parse_duration(settings.duration)
    except InvalidConfigError as exc:
        raise exc.prefixed("duration of the certificate") from exc
    if not _LIFETIME_MIN_S <= lifetime_s <= _LIFETIME_MAX_S:
        raise InvalidConfigError(f"duration of the certificate {settings.duration!r} is not from {_LIFETIME_MIN_S} to {_LIFETIME_MAX_S} s")
    return node_name, int(lifetime_s)


def _tell(listeners: list[Callable[..., None]], *arguments: object) -> None:
    for listener in listeners:
        listener(*arguments)
