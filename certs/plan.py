"""The next step towards certificates that every API server trusts, now and later. Pure.

The Secret says what must be trusted; caBundle follows it. An authority is published before it
signs, and stays published until the last leaf that it signed is out of validity. Any replica may
take any step: every write is of one version, and whoever is second reads again. Also when a replica
signs its serving certificate anew, and with what.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509

from certs.issue import BACKDATED, Issued
from certs.secret import State, digest

_MOST_OLD: Final = 16
"""A rotation a minute must not fill caBundle."""
_MOST_REVOKED: Final = 64
"""A rotation a minute must not fill the Secret; the first to go have long expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    ca: timedelta
    leaf: timedelta
    settle: timedelta
    """How long an API server may take to see a new caBundle."""

    @property
    def clock_margin(self) -> timedelta:
        """Largest difference between clocks."""
        return min(BACKDATED, self.leaf)

    @property
    def retire(self) -> timedelta:
        """How long leaves of an authority may be in use after it was retired."""
        return self.leaf + self.settle + self.clock_margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The caBundle of each webhook, at one version of the configuration."""

    version: str = ""
    """Empty: there is no configuration."""
    webhooks: tuple[tuple[x509.Certificate, ...], ...]
    clean: bool = True
    """There is nothing else in them."""
    is_required: bool = False
    """Without an answer Jobs are refused: failurePolicy Fail."""
    carried_for: Mapping[x509.Certificate, timedelta] = field(default_factory=dict)
    """For how long, at the least, every webhook's has had it; other changes do not count."""
    asked_at: float = 0.0
    """When it was asked for, by the reader's monotonic clock."""

    def carries(self, certificate: x509.Certificate) -> bool:
        """Say whether every webhook's does."""
        return bool(self.webhooks) and all(certificate in each for each in self.webhooks)

    def has_settled(self, certificate: x509.Certificate, lifetimes: Lifetimes) -> bool:
        """Say whether no API server can act on a caBundle without it any more."""
        return self.carried_for.get(certificate, timedelta()) >= lifetimes.settle

    def is_exactly(self, certificates: Iterable[x509.Certificate]) -> bool:
        wanted = set(certificates)
        return self.clean and all(set(each) == wanted for each in self.webhooks)

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """All that is in any of them."""
        return tuple(dict.fromkeys(each for found in self.webhooks for each in found))


class Step(StrEnum):
    """What is done next: to caBundle, or to the Secret."""

    PUBLISH = "publish"
    """Make caBundle exactly these certificates."""
    REVOKE = "revoke"
    """Let a new authority sign at once, and trust none of these certificates again."""
    MEND = "mend"
    """Make the Secret whole: a signing authority, and as old ones all that are in use."""
    PREPARE = "prepare"
    """Make the authority that is to sign next."""
    PROMOTE = "promote"
    """Let the next authority sign, and retire the one that did."""
    DROP = "drop"
    """Forget old authorities of which no leaf is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A step, with what it needs besides the state that it starts from."""

    step: Step
    certificates: tuple[x509.Certificate, ...] = ()
    needs_authority: bool = False
    """A new one must be made for it."""
    reason: str = ""
    """Why the Secret must be mended."""


def plan(
    state: State,
    bundle: Bundle,
    *,
    now: datetime,
    lifetimes: Lifetimes,
    own: x509.Certificate | None = None,
) -> Action | None:
    """Find the next step; None: all is well. *own* has signed the leaf that is being served."""
    if state.revocation_asked:
        mine = () if own is None else (own,)
        revoked = (*state.certificates, *bundle.certificates, *mine)
        return Action(step=Step.REVOKE, certificates=revoked, needs_authority=True)
    usable = state.signing is not None and not expired(state.signing.certificate, now)
    mend = _mend(state, bundle, now=now, own=own, usable=usable)
    if mend is not None:
        return mend
    if not bundle.is_exactly(state.certificates):
        return Action(step=Step.PUBLISH, certificates=state.certificates)
    if state.next is None and wants_rotation(state, now):
        return Action(step=Step.PREPARE, needs_authority=True)
    if state.next is not None and bundle.has_settled(state.next.certificate, lifetimes):
        return Action(step=Step.PROMOTE)
    if state.old != _still_old(state, now, lifetimes):
        return Action(step=Step.DROP)
    return None


def after(
    state: State,
    action: Action,
    *,
    now: datetime,
    lifetimes: Lifetimes,
    authority: Issued | None = None,
) -> State:
    """Return what the Secret is to hold; *authority* is the new one, where one is needed."""
    match action.step:
        case Step.PUBLISH:
            return state
        case Step.REVOKE:
            revoked = dict.fromkeys((*state.revoked, *map(digest, action.certificates)))
            return State(signing=authority, revoked=tuple(revoked)[-_MOST_REVOKED:])
        case Step.MEND:
            signing, following = _in_order(state, authority, now)
            old = _unexpired((*action.certificates, *state.old), now)
            asked = state.rotation_asked and following is None
            return State(
                signing=signing,
                next=following,
                old=old,
                retired_at=now,
                rotation_asked=asked,
                revoked=state.revoked,
            )
        case Step.PREPARE:
            return replace(state, next=authority, rotation_asked=False)
        case Step.PROMOTE:
            retired = () if state.signing is None else (state.signing.certificate,)
            old = _unexpired((*retired, *state.old), now)
            return State(signing=state.next, old=old, retired_at=now, revoked=state.revoked)
        case Step.DROP:
            return replace(state, old=_still_old(state, now, lifetimes))


def without_revoked(state: State) -> State:
    """Return what is left to be trusted: a Secret may come back from a backup."""
    revoked = set(state.revoked)
    signing, following = (
        None if each is None or digest(each.certificate) in revoked else each
        for each in (state.signing, state.next)
    )
    old = tuple(each for each in state.old if digest(each) not in revoked)
    return replace(state, signing=signing, next=following, old=old)


def wants_rotation(state: State, now: datetime) -> bool:
    """Say whether the signing authority has had two thirds of its life, or was asked to go."""
    if state.signing is None:
        return False
    return state.rotation_asked or now - state.signing.made >= state.signing.life * 2 / 3


def expired(certificate: x509.Certificate, now: datetime) -> bool:
    # Not its beginning: a clock that runs behind must not throw a new authority away.
    return now >= certificate.not_valid_after_utc


def signer(
    leaf: Issued | None,
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
    if leaf is None or leaf.authority is None or not bundle.carries(leaf.authority):
        return signing
    if now >= leaf.made + leaf.life * 5 / 6:
        # Waiting any longer is worse than a certificate that is not known yet.
        return signing
    settled = is_fresh and bundle.has_settled(signing.certificate, lifetimes)
    # A retired authority's leaf is replaced at once: nothing then depends on the old one any more.
    is_due = now >= leaf.made + leaf.life * 2 / 3
    wanted = is_due or leaf.authority != signing.certificate
    return signing if settled and wanted else None


def lifetime(authority: Issued, *, now: datetime, lifetimes: Lifetimes) -> timedelta:
    """Return how long a leaf may live: not beyond its authority."""
    return min(lifetimes.leaf, authority.certificate.not_valid_after_utc - now)


def _mend(
    state: State, bundle: Bundle, *, now: datetime, own: x509.Certificate | None, usable: bool
) -> Action | None:
    is_whole = usable and not state.faults
    # While the signing one is published, what else is in caBundle is a leftover. Else it is what
    # leaves in use were signed by: the Secret was emptied, or put back from elsewhere.
    signing = state.signing.certificate if state.signing else None
    lost = () if is_whole and signing in bundle.certificates else bundle.certificates
    mine = (own,) if own is not None and not (is_whole and not bundle.carries(own)) else ()
    in_use = dict.fromkeys((*mine, *lost))
    known = set(state.certificates)
    adopted = tuple(
        each for each in in_use if each not in known and digest(each) not in state.revoked
    )
    # Compared after the oldest are left out: they must not be adopted again and again.
    if is_whole and set(_unexpired((*adopted, *state.old), now)) <= set(state.old):
        return None
    signs, _ = _in_order(state, None, now)
    return Action(
        step=Step.MEND,
        certificates=adopted,
        needs_authority=signs is None,
        reason=_reason(state, now),
    )


def _in_order(
    state: State, authority: Issued | None, now: datetime
) -> tuple[Issued | None, Issued | None]:
    """Say which authority is to sign and which is to follow: the first of them that still can."""
    found = [
        each
        for each in (state.signing, authority, state.next)
        if each is not None and not expired(each.certificate, now)
    ]
    return (found[0] if found else None), (found[1] if len(found) > 1 else None)


def _reason(state: State, now: datetime) -> str:
    if state.faults:
        return f"cannot be read ({'; '.join(state.faults)})"
    if state.signing is None:
        return "holds no authority"
    if expired(state.signing.certificate, now):
        return "its authority has expired"
    return "does not know an authority that is in use"


def _still_old(state: State, now: datetime, lifetimes: Lifetimes) -> tuple[x509.Certificate, ...]:
    since = state.retired_at
    # Not a sum: whoever writes the Secret may have written the last moment that there is.
    if since is None or now - since >= lifetimes.retire:
        return ()
    return _unexpired(state.old, now)


def _unexpired(
    certificates: Iterable[x509.Certificate], now: datetime
) -> tuple[x509.Certificate, ...]:
    """Keep each once, the youngest first, and not too many."""
    found = dict.fromkeys(each for each in certificates if not expired(each, now))
    # The sort is stable: with the same answer for the same Secret nobody writes for nothing.
    youngest = sorted(found, key=lambda each: each.not_valid_before_utc, reverse=True)
    return tuple(youngest[:_MOST_OLD])
