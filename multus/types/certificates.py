"""Certificates of nodes: whom they name, the requests for them, and what a request asks for."""

from __future__ import annotations

from multus.types.named import NamedTuple

GROUP = "system:multus"
"""The organization of every node's certificate, and the beginning of its common name."""


class Identity(NamedTuple):
    """Whom a certificate names, as the API server reads it: the user and the group."""

    common_name: str
    organization: str = GROUP


def node_identity(node_name: str) -> Identity:
    """Who a node is to the API server.  Spec: Multus behaviour, "Per-node client certificates"."""
    return Identity(f"{GROUP}:{node_name}")


class CertificateSettings(NamedTuple):
    """How a node comes by its certificate, as configured.  ``docs/certificates.md`` explains it."""

    bootstrap_kubeconfig: str = ""
    """Of the identity that asks for the first certificate."""
    folder: str = ""
    duration: str = "10m"
    """The lifetime that is asked for, as Go writes it."""


class Certificate(NamedTuple):
    """A certificate that a node has; times in seconds since 1970."""

    identity: Identity
    not_before: float
    not_after: float


class RequestContent(NamedTuple):
    """What a PKCS #10 request asks for."""

    common_names: tuple[str, ...]
    """Of the subject, in its order; a certificate has one."""
    organizations: tuple[str, ...]
    alternative_names: tuple[str, ...] = ()
    """DNS names, addresses, URIs and so on, each with its kind."""
    is_self_signed: bool = True
    """Whether the signature is that of the key in it."""


class Condition(NamedTuple):
    """What somebody has said about an object."""

    type: str
    reason: str = ""
    message: str = ""


class SigningRequest(NamedTuple):
    """A CertificateSigningRequest of the API server."""

    name: str
    uid: str = ""
    version: str = ""
    signer: str = ""
    username: str = ""
    """Who made it, by the API server's word."""
    groups: tuple[str, ...] = ()
    usages: tuple[str, ...] = ()
    expiration_s: int | None = None
    request: bytes = b""
    """PKCS #10 in PEM."""
    conditions: tuple[Condition, ...] = ()
    certificate: bytes = b""
    """The chain in PEM, once it was signed."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    @property
    def is_decided(self) -> bool:
        """Whether it was approved, denied or signed."""
        return bool(self.certificate or self.condition("Approved") or self.condition("Denied"))
