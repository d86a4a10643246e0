"""Keys, requests and certificates, made and read."""

from __future__ import annotations

import time

import pytest
from cryptography import x509 as crypto
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from multus.adapters import x509
from multus.errors import DecodingError, InvalidConfigError, TryAgainLaterError
from multus.testing.kubeapi_signing import Signer
from multus.types.certificates import Identity, RequestContent, node_identity

W1 = node_identity("w1")


def signed(identity: Identity = W1, lifetime_s: float = 600) -> tuple[bytes, bytes]:
    """A certificate and its key."""
    key, request = x509.new_request(identity)
    return Signer().sign(request, lifetime_s), key


def a_request(*attributes: tuple[crypto.ObjectIdentifier, str], names: list[crypto.GeneralName] | None = None) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = crypto.Name([crypto.NameAttribute(oid, value) for oid, value in attributes])
    builder = crypto.CertificateSigningRequestBuilder().subject_name(subject)
    if names is not None:
        builder = builder.add_extension(crypto.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_request_asks_for_what_it_was_made_for() -> None:
    key, request = x509.new_request(W1)
    assert x509.request_content(request) == RequestContent(("system:multus:w1",), ("system:multus",), (), True)
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp256r1"


def test_each_request_has_a_key_of_its_own() -> None:
    assert x509.new_request(W1)[0] != x509.new_request(W1)[0]


def test_a_certificate_with_its_key_is_read() -> None:
    certificate, key = signed()
    found = x509.certificate(certificate + key)
    assert found.identity == W1
    assert found.not_after - found.not_before == pytest.approx(600, abs=1)
    assert found.not_before == pytest.approx(time.time(), abs=60)


def test_the_first_certificate_of_a_chain_counts() -> None:
    certificate, key = signed()
    assert x509.certificate(certificate + Signer().authority.encode() + key).identity == W1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"",
        lambda _: b"not PEM",
        lambda pair: pair[: len(pair) // 3],
        lambda pair: pair[:-40],
        lambda pair: pair.replace(b"\nM", b"\n*"),
        lambda pair: pair.partition(b"-----BEGIN EC")[0],
    ],
)
def test_what_may_be_written_still_is_worth_another_try(spoil) -> None:
    with pytest.raises(TryAgainLaterError):
        x509.certificate(spoil(b"".join(signed())))


def test_a_pair_without_a_certificate_says_so() -> None:
    with pytest.raises(TryAgainLaterError) as caught:
        x509.certificate(signed()[1])
    assert caught.value.msg == "it has no certificate in PEM"


def test_the_key_of_another_certificate_is_final() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        x509.certificate(signed()[0] + signed()[1])
    assert caught.value.msg == "its key is that of another certificate"


def test_a_block_of_something_else_is_final() -> None:
    _, key = signed()
    block = b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"
    with pytest.raises(InvalidConfigError) as caught:
        x509.certificate(block + key)
    assert caught.value.msg.startswith("it is not a certificate with its key: ")


def test_subjects_are_read_whole() -> None:
    name, organization = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
    request = a_request((name, "a"), (organization, "o"), (organization, "p"), (name, "b"))
    assert x509.request_content(request)[:2] == (("a", "b"), ("o", "p"))


def test_alternative_names_are_told_by_kind() -> None:
    names = [crypto.DNSName("api"), crypto.RFC822Name("a@b"), crypto.UniformResourceIdentifier("spiffe://x")]
    expected = ("DNSName api", "RFC822Name a@b", "UniformResourceIdentifier spiffe://x")
    assert x509.request_content(a_request(names=names)).alternative_names == expected


def test_an_empty_list_of_alternative_names_is_one() -> None:
    assert x509.request_content(a_request(names=[])).alternative_names == ("an empty list",)


def test_a_signature_of_another_key_is_seen() -> None:
    """The subject of one request, with the signature of another."""
    other = crypto.load_pem_x509_csr(a_request((NameOID.COMMON_NAME, "a")))
    own = crypto.load_pem_x509_csr(a_request((NameOID.COMMON_NAME, "b")))
    der = own.public_bytes(serialization.Encoding.DER).replace(own.signature, other.signature)
    if len(own.signature) != len(other.signature):  # DER of two numbers, each of 32 or 33 bytes
        der = own.public_bytes(serialization.Encoding.DER)[:-1] + bytes([own.signature[-1] ^ 1])
    pem = crypto.load_der_x509_csr(der).public_bytes(serialization.Encoding.PEM)
    assert x509.request_content(pem).is_self_signed is False


def test_a_request_by_rsa_is_read_too() -> None:
    key = rsa.generate_private_key(65537, 2048)
    request = crypto.CertificateSigningRequestBuilder().subject_name(crypto.Name([])).sign(key, hashes.SHA256())
    assert x509.request_content(request.public_bytes(serialization.Encoding.PEM)) == RequestContent((), (), (), True)


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN CERTIFICATE REQUEST-----\naGVsbG8=\n-----END CERTIFICATE REQUEST-----\n"])
def test_what_is_no_request_is_a_decoding_error(content: bytes) -> None:
    with pytest.raises(DecodingError) as caught:
        x509.request_content(content)
    assert caught.value.msg.startswith("request for a certificate cannot be read: ")
