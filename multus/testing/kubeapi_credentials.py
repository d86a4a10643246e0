"""Certificates and kubeconfigs for the API server stand-in."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.testing.kubeapi_store import Document


class Certificates(NamedTuple):
    """Paths of PEM files; each certificate is its own authority."""

    server: str
    server_key: str
    client: str = ""
    client_key: str = ""


def make_certificates(folder: str) -> Certificates:
    """Make a server's and a client's certificate for two days, with the openssl program."""
    made = []
    for name, subject in (("server", "/CN=127.0.0.1"), ("client", "/O=multus/CN=tester")):
        certificate, key = os.path.join(folder, f"{name}.crt"), os.path.join(folder, f"{name}.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", subject, "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )
        made += [certificate, key]
    return Certificates(*made)


def user_entry(certificates: Certificates | None, token: str, token_file: str, inline: bool) -> Document:
    """The ``user`` of a kubeconfig: by token or token file, if any, and by client certificate, if any."""
    entry: Document = {"tokenFile": token_file} if token_file else {"token": token} if token else {}
    if certificates is not None and certificates.client:
        entry |= _reference("client-certificate", certificates.client, inline)
        entry |= _reference("client-key", certificates.client_key, inline)
    return entry


def kubeconfig(url: str, certificates: Certificates | None, inline: bool, user: Mapping[str, object]) -> Document:
    """A kubeconfig of one context."""
    cluster: Document = {"server": url}
    if certificates is not None:
        cluster |= _reference("certificate-authority", certificates.server, inline)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stand-in",
        "clusters": [{"name": "stand-in", "cluster": cluster}],
        "users": [{"name": "tester", "user": dict(user)}],
        "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "tester", "namespace": "kube-system"}}],
    }


def write(path: str | os.PathLike[str], document: Document, style: str) -> str:
    """Write a document as ``json`` or ``yaml``, for its owner's eyes only; answers the path."""
    if style == "yaml":
        import yaml

        text = yaml.safe_dump(document, sort_keys=False)
    else:
        text = json.dumps(document, indent=1)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return os.fspath(path)


def _reference(key: str, path: str, inline: bool) -> Document:
    if not inline:
        return {key: path}
    with open(path, "rb") as file:
        return {f"{key}-data": base64.b64encode(file.read()).decode()}
