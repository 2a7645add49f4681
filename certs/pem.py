"""PEM text to authorities and back; what cannot be read is named, never guessed. Pure."""

import re
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.issue import Issued

_BLOCK = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.MULTILINE
)


class UnreadableError(Exception):
    """One of a pair is not what it should be."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(part, reason)
        self.part = part
        """``crt`` or ``key``."""
        self.reason = reason


def read_certificates(text: bytes) -> tuple[tuple[x509.Certificate, ...], bool]:
    """Read all certificates of authorities, each once; also say whether that was all there is."""
    found: dict[x509.Certificate, None] = {}
    rest = _BLOCK.sub(b"", text).strip()
    clean = not rest
    for block in _BLOCK.findall(text):
        try:
            certificate = x509.load_pem_x509_certificate(block)
        except ValueError:
            clean = False
            continue
        clean = clean and certificate not in found
        if is_authority(certificate):
            found[certificate] = None
        else:
            clean = False
    return tuple(found), clean


def read_authority(certificate_text: bytes, key_text: bytes) -> Issued:
    """Read an authority with its key.

    Raises:
        UnreadableError: one of the two cannot be read, or they are not an authority's pair.

    """
    try:
        certificate = x509.load_pem_x509_certificate(certificate_text)
        public = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnreadableError("crt", "not a certificate") from error
    if not is_authority(certificate):
        raise UnreadableError("crt", "not an authority's")
    try:
        key = serialization.load_pem_private_key(key_text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnreadableError("key", "not a private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != public:
        raise UnreadableError("key", "not the certificate's")
    return Issued(certificate=certificate, key=key)


def write_certificates(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, ValueError):
        return False
    return found.value.ca
