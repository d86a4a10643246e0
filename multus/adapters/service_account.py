"""The kubeconfig of the thin plugin, made of the service account that a pod of ours has, and kept like it.

The kubelet replaces the mounted token well ahead of its expiry; what is read anew each time follows it.  The file is JSON, which
is YAML as well, and which the plugin reads 10 ms faster.  Spec: Multus behaviour, "Kubeconfig" of ``thin_entrypoint``.
"""

from __future__ import annotations

import binascii
import os

from multus import files
from multus.errors import InvalidConfigError, IOFailureError
from multus.protocol import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_ATTEMPTS = 10


class ServiceAccountKubeconfig:
    """The file at ``path``, with the token and the authority's certificates of ``folder``."""

    def __init__(self, path: str, environ: Mapping[str, str], *, skips_tls_verify: bool = False, folder: str = FOLDER) -> None:
        """Args:
            environ: ``KUBERNETES_SERVICE_HOST`` and ``KUBERNETES_SERVICE_PORT`` in it say where the API server is.

        Raises:
            InvalidConfigError: They do not.
        """
        self._path = path
        self._server = _server(environ)
        self._skips_tls_verify = skips_tls_verify
        self._folder = folder
        self._last = ("", "")

    def refresh(self) -> str:
        """Write the file, if it is not as it should be; what is new in it, for people; empty: nothing is.

        Raises:
            IOFailureError: Token or certificates cannot be read, or the file not be written.
            InvalidConfigError: One of them is empty.
        """
        read_token, read_authority = self._credentials()
        token = read_token.decode(errors="replace").strip()
        authority = binascii.b2a_base64(read_authority, newline=False).decode()
        content = documents.dumps_indented(self._document(token, authority)).encode() + b"\n"
        try:
            if _content(self._path) == content:
                return ""
            files.remove_temporaries(self._path)
            files.replace(self._path, content)
        except OSError as exc:
            raise IOFailureError(f"cannot write {self._path}: {exc.strerror}") from exc
        last, self._last = self._last, (token, authority)
        changed = [name for name, old, new in zip(("token", "ca.crt"), last, self._last, strict=True) if old and old != new]
        return f"{' and '.join(changed)} changed" if changed else "written"

    def remove(self) -> None:
        """Take the file away: it holds a credential.  Raises IOFailureError."""
        try:
            files.remove(self._path)
        except OSError as exc:
            raise IOFailureError(f"cannot remove {self._path}: {exc.strerror}") from exc

    def _credentials(self) -> tuple[bytes, bytes]:
        """Token and certificates of one rotation: the kubelet replaces both at once, and may do so between two readings."""
        for _ in range(_ATTEMPTS):
            token, authority = self._read("token"), self._read("ca.crt")
            if self._read("token") == token:
                return token, authority
        raise IOFailureError(f"{self._folder} changes while it is read, {_ATTEMPTS} times in a row")

    def _read(self, name: str) -> bytes:
        path = os.path.join(self._folder, name)
        try:
            content = files.read(path)
        except OSError as exc:
            raise IOFailureError(f"cannot read {path}: {exc.strerror}") from exc
        if not content.strip():
            raise InvalidConfigError(f"{path} is empty")
        return content

    def _document(self, token: str, authority: str) -> dict[str, object]:
        trust = {"insecure-skip-tls-verify": True} if self._skips_tls_verify else {"certificate-authority-data": authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self._server, **trust}}],
            "users": [{"name": "multus", "user": {"token": token}}],
            "contexts": [{"name": "multus-context", "context": {"cluster": "local", "user": "multus"}}],
            "current-context": "multus-context",
        }


def _server(environ: Mapping[str, str]) -> str:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise InvalidConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not say where the API server is")
    bare = host.strip("[]")
    return f"{environ.get('KUBERNETES_SERVICE_PROTOCOL') or 'https'}://{f'[{bare}]' if ':' in bare else bare}:{port}"


def _content(path: str) -> bytes | None:
    """Of a file that its owner alone can read; None: there is none."""
    try:
        return files.read(path) if os.stat(path).st_mode & 0o777 == 0o600 else None
    except FileNotFoundError:
        return None
