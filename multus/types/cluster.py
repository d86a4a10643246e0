"""An API server, and how we show it who we are."""

from __future__ import annotations

from multus.types.named import NamedTuple


class Cluster(NamedTuple):
    """One API server with our credentials.  Secrets: never to be logged or shown whole.

    Files are absolute paths; data are PEM texts and win over files, as in client-go.
    """

    host: str
    """A name or an address, IPv6 without brackets."""
    port: int
    scheme: str = "https"
    base_path: str = ""
    """Without a slash at the end; empty for most servers."""
    ca_file: str = ""
    ca_data: str = ""
    tls_server_name: str = ""
    """The name that the server's certificate must have, when it is not ``host``."""
    insecure_skip_tls_verify: bool = False
    client_certificate_file: str = ""
    client_certificate_data: str = ""
    client_key_file: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = ""
    """Wins over ``token`` while it can be read."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Request headers that make the API server take us for another user."""
    namespace: str = ""

    def __repr__(self) -> str:
        return f"Cluster({self.url})"

    @property
    def authority(self) -> str:
        """``host:port`` as it stands in a URL and in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """What stands in a kubeconfig as ``server``."""
        return f"{self.scheme}://{self.authority}{self.base_path}"


class Unsupported(NamedTuple):
    """A configuration that is valid as far as we read it, and that only the official client serves."""

    reason: str
    """The file, and the key or the variable that asks for it."""
