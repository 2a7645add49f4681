"""Issue a certificate authority and the leaves it signs; pure, the time comes in.

What the API server asks of a webhook's certificate: a SAN that names the Service, serverAuth,
and no SHA-1.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# An API server whose clock runs behind ours must not see a certificate of the future.
BACKDATED: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate with its private key: an authority's, or the leaf of one replica."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    authority: x509.Certificate | None = None
    """The one that signed a leaf, which is in memory alone; None: it is an authority itself."""

    @property
    def made(self) -> datetime:
        return self.certificate.not_valid_before_utc + BACKDATED

    @property
    def expires(self) -> datetime:
        return self.certificate.not_valid_after_utc

    @property
    def life(self) -> timedelta:
        return self.expires - self.made

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def new_authority(name: str, *, now: datetime, lifetime: timedelta) -> Issued:
    """Issue a self-signed authority that may sign leaves and nothing deeper."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(name)
    builder = (
        _builder(subject, key.public_key(), now=now, lifetime=lifetime)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return Issued(certificate=builder.sign(key, hashes.SHA256()), key=key)


def new_leaf(
    authority: Issued, names: Sequence[str], *, now: datetime, lifetime: timedelta
) -> Issued:
    """Issue a serving certificate for DNS names and IP addresses; the first is its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = authority.key.public_key()
    builder = (
        _builder(_common_name(names[0]), key.public_key(), now=now, lifetime=lifetime)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        # An old and a new authority share one subject name; this tells them apart.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    certificate = builder.sign(authority.key, hashes.SHA256())
    return Issued(certificate=certificate, key=key, authority=authority.certificate)


def _builder(
    subject: x509.Name, public: ec.EllipticCurvePublicKey, *, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    # X.520 allows a common name 64 characters; what is checked is the SAN.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
