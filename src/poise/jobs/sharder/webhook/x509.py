"""Certificates: made for a server by an authority that signs nothing else, and read for how long they last."""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from poise.errors import invalid

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----")


class Span(msgspec.Struct, frozen=True):
    """From when to when a certificate counts, by the wall clock."""

    begins: datetime
    ends: datetime


class Issued(msgspec.Struct, frozen=True):
    """A serving certificate, its key, and the authority that signed it; in PEM. The authority's key is kept nowhere."""

    certificate: str
    key: str
    authority: str


def issue(names: tuple[str, ...], span: Span) -> Issued:
    """Make a certificate for a server of these names, DNS names and addresses."""
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # The number tells authorities of one name apart.
    issuer = _name(f"poise webhook {x509.random_serial_number():x}"[:64])
    root = _begun(issuer, issuer, span, signer.public_key(), signer.public_key(), authority=True)
    leaf = (
        _begun(_name("poise webhook"), issuer, span, key.public_key(), signer.public_key(), authority=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
    )
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(_signed(leaf, signer), written.decode(), _signed(root, signer))


def certificates(pem: str) -> list[str]:
    """Take the certificates of a bundle apart, each in PEM; what stands between them is left out."""
    return [found[0].strip() + "\n" for found in _PEM.finditer(pem)]


def read_span(pem: str) -> Span:
    """Read from when to when the first certificate of a PEM counts; InvalidSpec where there is none to be read."""
    found = _PEM.search(pem)
    if found is None:
        raise invalid("", "it has no certificate in PEM")
    try:
        read = x509.load_pem_x509_certificate(found[0].encode())
        return Span(read.not_valid_before_utc, read.not_valid_after_utc)
    except ValueError:
        raise invalid("", "its certificate cannot be read") from None


def read_names(pem: str) -> list[str]:
    """Read the names and addresses that the first certificate of a PEM is for; what is unreadable has none."""
    found = _PEM.search(pem)
    try:
        read = x509.load_pem_x509_certificate(found[0].encode() if found else b"")
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    span: Span,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    """Begin a certificate: an authority signs certificates, a server signs handshakes."""
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), span.begins, span.ends)
    usage = x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> str:
    return builder.sign(signer, SHA256()).public_bytes(Encoding.PEM).decode()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
