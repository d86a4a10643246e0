"""What a client trusts and shows in TLS, by the C half of ``ssl``; the only import of it.

Spec: Kubernetes, "Organizing Cluster Access Using kubeconfig Files".
"""

from __future__ import annotations

import os
from _ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, _SSLContext

from multus.errors import IOFailureError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.types.cluster import Cluster


def context(cluster: Cluster) -> _SSLContext:
    """A context that trusts the cluster's own authority, and the system's only when there is none.

    It wants a certificate that is valid and for the host's name, unless the cluster says ``insecure_skip_tls_verify``.

    Raises:
        IOFailureError: A certificate or key cannot be loaded; neither is shown.
    """
    made = _SSLContext(PROTOCOL_TLS_CLIENT)
    what = "certificate authority"
    try:
        if cluster.insecure_skip_tls_verify:
            made.check_hostname = False
            made.verify_mode = CERT_NONE
        elif cluster.ca_data:
            made.load_verify_locations(cadata=cluster.ca_data)
        elif cluster.ca_file:
            what += f" {cluster.ca_file}"
            made.load_verify_locations(cafile=cluster.ca_file)
        else:
            made.set_default_verify_paths()
        certificate, key = cluster.client_certificate_file, cluster.client_key_file
        if cluster.client_certificate_data or certificate:
            what = f"client certificate {certificate} with key {key}" if certificate and key else "client certificate and key"
            certificate_data, key_data = cluster.client_certificate_data, cluster.client_key_data
            if certificate and certificate == key and not certificate_data and not key_data:
                with open(certificate, encoding="ascii", errors="replace") as file:  # once: it may be replaced meanwhile
                    certificate_data = key_data = file.read()
            with _Paper(certificate_data) as data, _Paper(key_data) as own_key:
                made.load_cert_chain(data or certificate, own_key or key, password="")  # never ask at a terminal
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or "not what it should be"
        raise IOFailureError(f"cannot load {what}: {reason}") from exc
    return made


class _Paper:
    """A text as a file in memory, because OpenSSL takes certificates and keys from paths only; no text, no path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._fd = -1

    def __enter__(self) -> str:
        if not self._text:
            return ""
        self._fd = os.memfd_create("multus", os.MFD_CLOEXEC)
        os.write(self._fd, self._text.encode())
        return f"/proc/self/fd/{self._fd}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
