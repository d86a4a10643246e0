"""Where the API server is and who we are to it: a kubeconfig file, or the settings inside a cluster.

Spec: 03-networks.md of the behaviour notes, "Kubernetes clients"; client-go's ``clientcmd``.
"""

from __future__ import annotations

import binascii
import os

from multus import files
from multus.errors import DecodingError, InvalidConfigError, IOFailureError
from multus.protocol import documents
from multus.types.cluster import Cluster, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"

_CLUSTER_KEYS = frozenset((
    "server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name",
    "disable-compression", "extensions",
))
_USER_KEYS = frozenset((
    "token", "tokenFile", "client-certificate", "client-certificate-data", "client-key", "client-key-data", "extensions",
))
_IMPERSONATION_KEYS = frozenset(("as", "as-uid", "as-groups", "as-user-extra"))


def load(path: str) -> Cluster | Unsupported:
    """Read a kubeconfig file: the cluster and the user of its current context.

    ``Unsupported`` answers an exec plugin, an auth provider, a password, a proxy, and any key that we do not know.

    Raises:
        IOFailureError: Code 5, the file cannot be read.
        DecodingError: Code 6, it is neither JSON nor YAML.
        InvalidConfigError: Code 7; names the file, the entry and the key.
    """
    document, context, cluster = _current(path)
    user_name = context.text("user")
    user = document.entry("users", user_name, "user") if user_name else _Section({}, f"{document.where}: no user", document.folder)
    unsupported = cluster.first_key_beyond(_CLUSTER_KEYS) or user.first_key_beyond(_USER_KEYS | _IMPERSONATION_KEYS)
    impersonation = _impersonation(user)
    if unsupported and impersonation:
        raise InvalidConfigError(f"{unsupported}: not supported together with impersonation")
    return Unsupported(unsupported) if unsupported else _cluster(cluster, user, impersonation, context.text("namespace"))


def load_server(path: str) -> Cluster | Unsupported:
    """Where the API server of a kubeconfig's current context is, and by which authority it is known; no user of it.

    Raises as ``load`` does.
    """
    document, context, cluster = _current(path)
    unsupported = cluster.first_key_beyond(_CLUSTER_KEYS)
    nobody = _Section({}, f"{document.where}: no user", document.folder)
    return Unsupported(unsupported) if unsupported else _cluster(cluster, nobody, (), context.text("namespace"))


def load_in_cluster(environ: Mapping[str, str], folder: str = SERVICE_ACCOUNT_FOLDER) -> Cluster | None:
    """The API server of the cluster that we run in, with the service account's token; None: not in a cluster.

    Raises:
        InvalidConfigError: Code 7, ``KUBERNETES_SERVICE_PORT`` is not a port.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    if not _is_port(port):
        raise InvalidConfigError(f"KUBERNETES_SERVICE_PORT {documents.quote(port)} is not a port")
    return Cluster(
        host=host.strip("[]"),
        port=int(port),
        ca_file=os.path.join(folder, "ca.crt"),
        token_file=os.path.join(folder, "token"),
    )


class _Section:
    """One object of a kubeconfig: typed reads that name file, entry and key when they fail."""

    def __init__(self, document: Mapping[str, object], where: str, folder: str) -> None:
        self.document = document
        self.where = where
        self.folder = folder

    def error(self, key: str, problem: str) -> InvalidConfigError:
        return InvalidConfigError(f"{self.where}: {key} {problem}")

    def text(self, key: str) -> str:
        value = self.document.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(key, "is not a string")
        return value

    def flag(self, key: str) -> bool:
        value = self.document.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, "is not true or false")
        return value is True

    def file(self, key: str) -> str:
        path = self.text(key)
        return os.path.join(self.folder, path) if path else ""

    def pem(self, key: str) -> str:
        try:
            return binascii.a2b_base64("".join(self.text(key).split()), strict_mode=True).decode("ascii")
        except ValueError as exc:
            raise self.error(key, "is not base64 of a PEM text") from exc

    def texts(self, key: str) -> list[str]:
        value = self.document.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "is not a list of strings")
        return value

    def entry(self, kind: str, name: str, member: str) -> _Section:
        """The named entry of a list of ``{name: …, <member>: {…}}``."""
        entries = self.document.get(kind)
        for item in entries if isinstance(entries, list) else ():
            if isinstance(item, dict) and item.get("name") == name:
                value = item.get(member)
                where = f"{self.where}: {member} {name}"
                if value is not None and not isinstance(value, dict):
                    raise InvalidConfigError(f"{where} is not an object")
                return _Section(value or {}, where, self.folder)
        raise self.error(kind, f"has no entry {documents.quote(name)}")

    def first_key_beyond(self, known: frozenset[str]) -> str:
        """The place of the first key that has a value and is not known; empty: there is none."""
        return next((f"{self.where}: {key}" for key, value in self.document.items() if value and key not in known), "")


def _current(path: str) -> tuple[_Section, _Section, _Section]:
    """A kubeconfig file, its current context, and the cluster of that."""
    document = _Section(_read(path), f"kubeconfig {path}", os.path.dirname(os.path.abspath(path)))
    context_name = document.text("current-context")
    if not context_name:
        raise document.error("current-context", "is not set")
    context = document.entry("contexts", context_name, "context")
    return document, context, document.entry("clusters", context.text("cluster"), "cluster")


def _read(path: str) -> dict[str, object]:
    what = f"kubeconfig {path}"
    try:
        content = files.read(path)
    except OSError as exc:
        raise IOFailureError(f"cannot read {what}: {exc.strerror}") from exc
    if content.lstrip().startswith(b"{"):
        return documents.load_object(content, what)
    import yaml  # 10 ms, for kubeconfigs in YAML only

    try:
        document = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        mark = getattr(exc, "problem_mark", None)
        place = f" at line {mark.line + 1} column {mark.column + 1}" if mark else ""
        raise DecodingError(f"{what} is neither JSON nor YAML: {getattr(exc, 'problem', None) or 'not readable'}{place}") from exc
    if not isinstance(document, dict):
        raise DecodingError(f"{what} is not an object")
    return document


def _cluster(cluster: _Section, user: _Section, impersonation: tuple[tuple[str, str], ...], namespace: str) -> Cluster:
    ca_file, ca_data = cluster.file("certificate-authority"), cluster.pem("certificate-authority-data")
    certificate_file, certificate_data = user.file("client-certificate"), user.pem("client-certificate-data")
    key_file, key_data = user.file("client-key"), user.pem("client-key-data")
    insecure = cluster.flag("insecure-skip-tls-verify")
    if insecure and (ca_file or ca_data):
        raise cluster.error("insecure-skip-tls-verify", "is true, and a certificate-authority is set: one of them only")
    if bool(certificate_file or certificate_data) != bool(key_file or key_data):
        raise user.error("client-certificate and client-key", "go together: one of them is not set")
    wants_tls = bool(ca_file or ca_data or certificate_file or certificate_data or insecure)
    scheme, host, port, base_path = _server(cluster, "https" if wants_tls else "http")
    return Cluster(
        host=host,
        port=port,
        scheme=scheme,
        base_path=base_path,
        ca_file=ca_file,
        ca_data=ca_data,
        tls_server_name=cluster.text("tls-server-name"),
        insecure_skip_tls_verify=insecure,
        client_certificate_file=certificate_file,
        client_certificate_data=certificate_data,
        client_key_file=key_file,
        client_key_data=key_data,
        token=user.text("token"),
        token_file=user.file("tokenFile"),
        impersonation=impersonation,
        namespace=namespace,
    )


def _server(cluster: _Section, default_scheme: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and base path of the key ``server``."""
    url = cluster.text("server")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = default_scheme, url
    scheme = scheme.lower()
    authority, _, path = rest.partition("/")
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        between, _, port = rest.partition(":")
        is_host = bool(host and bracket) and not between
    else:
        host, _, port = authority.partition(":")
        is_host = bool(host)
    port = port or {"https": "443", "http": "80"}.get(scheme, "")
    is_plain = url.isascii() and url.isprintable() and not set(url) & set(" @?#")
    if not is_host or not _is_port(port) or scheme not in ("http", "https") or not is_plain:
        raise cluster.error("server", f"{documents.quote(url.rpartition('@')[2])} is not a URL that we can use: http(s)://host[:port][/path]")
    return scheme, host, int(port), f"/{path}".rstrip("/")


def _impersonation(user: _Section) -> tuple[tuple[str, str], ...]:
    """The headers that the user's ``as…`` keys ask for."""
    headers = [(header, user.text(key)) for key, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")) if user.text(key)]
    headers += [("Impersonate-Group", group) for group in user.texts("as-groups")]
    extra = user.document.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise user.error("as-user-extra", "is not an object")
    section = _Section(extra, f"{user.where}: as-user-extra", user.folder)
    headers += [(f"Impersonate-Extra-{key}", value) for key in extra for value in section.texts(key)]
    return tuple(headers)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536
