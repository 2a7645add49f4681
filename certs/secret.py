"""What the authority's Secret holds, read from its data and annotations and written back. Pure.

What cannot be read is a stated fault, never an exception: the rest is of use all the same.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from certs.issue import Issued
from certs.pem import UnreadableError, read_authority, read_certificates, write_certificates

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
