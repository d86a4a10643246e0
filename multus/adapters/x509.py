"""Keys, requests for certificates, and certificates.  The only import of cryptography: 45 ms and 12 MB, for those who need it.

Whatever bytes come in, only errors of ours come out.

Spec: RFC 2986 (PKCS #10), RFC 5280, RFC 7468 (PEM); 03-networks.md of the behaviour notes, §11.
"""

from __future__ import annotations

import binascii
import re

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from multus.errors import DecodingError, InvalidConfigError, TryAgainLaterError
from multus.types.certificates import Certificate, Identity, RequestContent

_BLOCK = rb"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----"
_UNREADABLE = (
    ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
)  # fmt: skip


def new_request(identity: Identity) -> tuple[bytes, bytes]:
    """A new P-256 key, and a request for a client's certificate of it; both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name((
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organization),
        x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name),
    ))
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return private, request.public_bytes(pem)


def certificate(pair: bytes) -> Certificate:
    """The first certificate of a chain in PEM, followed by its key.

    Raises:
        TryAgainLaterError: Code 11, there is no PEM in it, or no whole block of one of the two: it may be written still.
        InvalidConfigError: Code 7, the blocks hold something else, or the key of another certificate.
    """
    blocks = _blocks(pair)
    chain = [content for label, content in blocks if label == b"CERTIFICATE"]
    keys = [content for label, content in blocks if label.endswith(b"PRIVATE KEY")]
    if not chain or not keys:
        raise TryAgainLaterError(f"it has no {'private key' if chain else 'certificate'} in PEM")
    try:
        leaf = x509.load_der_x509_certificate(chain[0])
        key = serialization.load_der_private_key(keys[0], password=None)
        names, organizations = (_texts(leaf.subject, oid) for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME))
        not_before, not_after = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
        is_pair = leaf.public_key() == key.public_key()
    except _UNREADABLE as exc:
        raise InvalidConfigError(f"it is not a certificate with its key: {_line(exc)}") from exc
    if not is_pair:
        raise InvalidConfigError("its key is that of another certificate")
    return Certificate(Identity(",".join(names), ",".join(organizations)), not_before, not_after)


def request_content(request: bytes) -> RequestContent:
    """What a PKCS #10 request in PEM asks for.

    Raises:
        DecodingError: Code 6, it is none.
    """
    try:
        parsed = x509.load_pem_x509_csr(request)
        names, organizations = (_texts(parsed.subject, oid) for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME))
        return RequestContent(names, organizations, _alternative_names(parsed), _is_self_signed(parsed))
    except _UNREADABLE as exc:
        raise DecodingError(f"request for a certificate cannot be read: {_line(exc)}") from exc


def _blocks(pem: bytes) -> list[tuple[bytes, bytes]]:
    """Label and content of each whole block."""
    blocks = []
    for label, body in re.findall(_BLOCK, pem, re.DOTALL):
        try:
            blocks.append((label, binascii.a2b_base64(b"".join(body.split()), strict_mode=True)))
        except ValueError:
            continue  # torn: as if it was not there
    return blocks


def _texts(name: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(attribute.value) for attribute in name.get_attributes_for_oid(oid))


def _alternative_names(request: x509.CertificateSigningRequest) -> tuple[str, ...]:
    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    names = tuple(f"{type(name).__name__} {name.value}" for name in extension.value)
    return names or ("an empty list",)


def _is_self_signed(request: x509.CertificateSigningRequest) -> bool:
    try:
        return request.is_signature_valid
    except _UNREADABLE:
        return False  # a key that signs nothing, or in a way that nobody knows


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__
