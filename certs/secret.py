"""What the authority's Secret holds, read from its data and annotations and written back. Pure.

What cannot be read is a stated fault, never an exception: the rest is of use all the same.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.issue import Issued

ROTATE: Final = "kueue-fallback.dev/rotate"
"""Annotation that asks for a rotation; taken away when it has begun."""
REVOKE: Final = "kueue-fallback.dev/revoke"
"""Annotation that asks for a new authority now, and that no other be trusted from then on."""
REVOKED: Final = "kueue-fallback.dev/revoked"
"""Annotation: digests of authorities that are not to be trusted again, wherever they turn up."""
RETIRED_AT: Final = "kueue-fallback.dev/retired-at"
"""Annotation: when the last of the old authorities ceased to sign."""
KEYS: Final = ("ca.crt", "ca.key", "next.crt", "next.key", "old.crt")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The authorities that there are, by the part they play."""

    signing: Issued | None = None
    next: Issued | None = None
    """Published, not yet signing."""
    old: tuple[x509.Certificate, ...] = ()
    """No longer signing; there may be leaves of theirs in use."""
    retired_at: datetime | None = None
    rotation_asked: bool = False
    revocation_asked: bool = False
    revoked: tuple[str, ...] = ()
    """Digests, in the order in which they came."""
    faults: tuple[str, ...] = ()
    """What could not be read, each with its key."""
    source: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The Secret as it was read; None: there was none, or it is still to be written."""

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """All that API servers must trust; the signing one first."""
        both = tuple(each.certificate for each in (self.signing, self.next) if each is not None)
        return tuple(dict.fromkeys((*both, *self.old)))


def digest(certificate: x509.Certificate) -> str:
    """Return what an authority is known by when it is revoked."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def read_state(data: Mapping[str, str], annotations: Mapping[str, str]) -> State:
    faults: list[str] = []
    given = {key: _decode(key, data[key], faults) for key in KEYS if data.get(key)}
    signing = _authority("ca", given, faults)
    following = _authority("next", given, faults)
    old, clean = read_certificates(given.get("old.crt", b""))
    if not clean:
        faults.append("old.crt: not only certificates of authorities")
    retired_at = _time(annotations)
    if old and retired_at is None:
        faults.append(f"annotation {RETIRED_AT}: missing or not a time")
    return State(
        signing=signing,
        next=following,
        old=old,
        retired_at=retired_at,
        # What was about to follow is lost, the wish for it is not.
        rotation_asked=ROTATE in annotations or (following is None and "next.crt" in given),
        revocation_asked=REVOKE in annotations,
        revoked=tuple(annotations.get(REVOKED, "").split()),
        faults=tuple(faults),
    )


def write_state(state: State) -> tuple[dict[str, str], dict[str, str]]:
    """Return data and annotations; what is not in them is to be taken away."""
    found: dict[str, bytes] = {}
    for name, authority in (("ca", state.signing), ("next", state.next)):
        if authority is not None:
            found[f"{name}.crt"] = authority.certificate_pem
            found[f"{name}.key"] = authority.key_pem
    annotations = {}
    if state.old:
        found["old.crt"] = write_certificates(state.old)
    if state.old and state.retired_at is not None:
        annotations[RETIRED_AT] = state.retired_at.isoformat(timespec="milliseconds")
    if state.revoked:
        annotations[REVOKED] = " ".join(state.revoked)
    return {key: base64.b64encode(text).decode() for key, text in found.items()}, annotations


def _authority(name: str, given: Mapping[str, bytes], faults: list[str]) -> Issued | None:
    certificate, key = given.get(f"{name}.crt"), given.get(f"{name}.key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        faults.append(f"{name}.{'key' if certificate else 'crt'}: missing")
        return None
    try:
        return read_authority(certificate, key)
    except UnreadableError as error:
        faults.append(f"{name}.{error.part}: {error.reason}")
        return None


def _decode(key: str, text: str, faults: list[str]) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        faults.append(f"{key}: not base64")
        return b""


def _time(annotations: Mapping[str, str]) -> datetime | None:
    try:
        found = datetime.fromisoformat(annotations.get(RETIRED_AT, ""))
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


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
