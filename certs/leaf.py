"""When a replica signs its serving certificate anew, and with what. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from certs.issue import Issued
from certs.plan import Bundle, Lifetimes, expired
from certs.secret import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A serving certificate of one replica; it is in memory alone."""

    issued: Issued
    authority: x509.Certificate
    made: datetime

    @property
    def expires(self) -> datetime:
        return self.issued.certificate.not_valid_after_utc

    @property
    def _life(self) -> timedelta:
        return self.expires - self.made

    def is_due(self, now: datetime) -> bool:
        return now >= self.made + self._life * 2 / 3

    def is_dying(self, now: datetime) -> bool:
        """Say whether waiting any longer is worse than a certificate that is not known yet."""
        return now >= self.made + self._life * 5 / 6


def signer(
    leaf: Leaf | None,
    state: State,
    bundle: Bundle,
    *,
    now: datetime,
    lifetimes: Lifetimes,
    is_fresh: bool = True,
) -> Issued | None:
    """Find the authority to sign a new leaf with; None: the one in use stays.

    *is_fresh*: the Secret and caBundle are what they were a moment ago.
    """
    signing = state.signing
    if signing is None or expired(signing.certificate, now):
        return None
    if not bundle.carries(signing.certificate):
        return None
    if leaf is None or leaf.is_dying(now) or not bundle.carries(leaf.authority):
        return signing
    settled = is_fresh and bundle.has_settled(signing.certificate, lifetimes)
    # A retired authority's leaf is replaced at once: nothing then depends on the old one any more.
    wanted = leaf.is_due(now) or leaf.authority != signing.certificate
    return signing if settled and wanted else None


def lifetime(authority: Issued, *, now: datetime, lifetimes: Lifetimes) -> timedelta:
    """Return how long a leaf may live: not beyond its authority."""
    return min(lifetimes.leaf, authority.certificate.not_valid_after_utc - now)
