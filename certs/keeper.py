"""Looks every few seconds whether all is well with the certificates, and takes the next steps.

One keeper a replica; they share nothing but the API server. While that cannot be reached, or holds
nothing that can be read, the leaf in memory goes on being served.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from cryptography import x509

from certs import issue
from certs.errors import Conflict, StoreError
from certs.leaf import Leaf, lifetime, signer
from certs.plan import Action, Bundle, Lifetimes, Step, after, plan, without_revoked
from certs.secret import State
from certs.store import Kept

_LONGEST_WAIT: Final = timedelta(seconds=5)
_MOST_STEPS: Final = 10
"""In one look: two would do for one replica, the others are for those that were second."""


class Trouble(str):
    """A line of the log that an admin must act on; the others say what is done."""

    __slots__ = ()


class Storage(Protocol):
    """What is needed of ``store.Store``."""

    def read(self) -> tuple[Bundle, Kept]: ...

    def write(self, kept: Kept, state: State) -> None: ...

    def publish(self, published: Bundle, certificates: Sequence[x509.Certificate]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a replica has at the end of a look."""

    leaf: Leaf | None = None
    trusted_at: float = 0.0
    """By the keeper's monotonic clock: until then API servers may not know who signed the leaf.
    Whoever has one of another authority that is valid shall use that."""
    authority_expires: datetime | None = None
    notice: str = ""
    """What is not as it should be; empty: all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    state: State
    bundle: Bundle
    at: float


class Keeper:
    """Call ``look`` every ``wait``; clocks come from outside."""

    def __init__(
        self,
        storage: Storage,
        *,
        names: Sequence[str],
        lifetimes: Lifetimes,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.on_leaf: Callable[[Report], None] = lambda _: None
        """Called with each new leaf at once: the rest of a look may take its time."""
        self._storage = storage
        self._names = tuple(names)
        self._lifetimes = lifetimes
        self._now, self._monotonic, self._log = now, monotonic, log
        self._leaf: Leaf | None = None
        self._trusted_at = 0.0
        self._seen: _Seen | None = None
        self._version = ""
        self._carried_since: dict[x509.Certificate, float] = {}
        """When each authority was first seen in every caBundle, and from then on always."""
        self._revoked: tuple[str, ...] = ()
        """Remembered: who deletes the Secret must not bring a revoked authority back."""
        self._mending = ""
        self._trouble = ""

    @property
    def wait(self) -> timedelta:
        """Return how long to wait between two looks."""
        return min(_LONGEST_WAIT, self._lifetimes.settle / 4, self._lifetimes.leaf / 24)

    def step(self) -> Report:
        """Read, take all steps that can be taken now, and sign a leaf if it is time."""
        trouble = ""
        try:
            self._take_steps()
        except StoreError as error:
            trouble = str(error)
        if trouble != self._trouble:
            self._log(Trouble(trouble) if trouble else "the API server answers again")
        self._trouble = trouble
        self._sign()
        return self._report()

    def _take_steps(self) -> None:
        conflict = Conflict("no end of steps")
        for _ in range(_MOST_STEPS):
            # Before: an API server that takes its time must not make a certificate late.
            self._sign()
            asked = self._monotonic()
            published, kept = self._storage.read()
            seen = self._remember(published, kept.state, asked=asked)
            action = plan(
                seen.state,
                seen.bundle,
                now=self._now(),
                lifetimes=self._lifetimes,
                own=self._own_authority(),
            )
            if action is None:
                self._heal(seen)
                return
            try:
                self._take(action, published, replace(kept, state=seen.state))
            except Conflict as error:
                conflict = error
        raise conflict

    def _remember(self, published: Bundle, state: State, *, asked: float) -> _Seen:
        """Take over an answer: it may be as old as the question, and no older."""
        self._revoked = tuple(dict.fromkeys((*self._revoked, *state.revoked)))
        state = without_revoked(replace(state, revoked=self._revoked))
        if published.version != self._version:
            self._version, since = published.version, self._carried_since
            carried = filter(published.carries, published.certificates)
            self._carried_since = {each: since.get(each, self._monotonic()) for each in carried}
        ages = {
            each: timedelta(seconds=max(0.0, asked - since))
            for each, since in self._carried_since.items()
        }
        seen = _Seen(state=state, bundle=replace(published, carried_for=ages), at=asked)
        # What is broken or gone must not be forgotten while there is nothing better.
        if state.signing is not None or self._seen is None:
            self._seen = seen
        return seen

    def _take(self, action: Action, published: Bundle, kept: Kept) -> None:
        if action.step is Step.PUBLISH:
            self._storage.publish(published, action.certificates)
            self._log(_said(action))
            return
        now, authority = self._now(), None
        if action.needs_authority:
            authority = issue.new_authority(self._names[0], now=now, lifetime=self._lifetimes.ca)
        if action.step is Step.MEND and self._is_news(published, kept):
            self._mending = f"the authority's Secret {action.reason}"
        changed = after(kept.state, action, now=now, lifetimes=self._lifetimes, authority=authority)
        self._storage.write(kept, changed)
        self._log(_said(action))

    def _is_news(self, published: Bundle, kept: Kept) -> bool:
        """Say whether something was lost; at the first start there is nothing."""
        return bool(self._leaf or kept.state.faults or any(published.webhooks))

    def _own_authority(self) -> x509.Certificate | None:
        leaf = self._leaf
        return leaf.authority if leaf is not None and self._now() < leaf.expires else None

    def _heal(self, seen: _Seen) -> None:
        signing = seen.state.signing
        if signing is None or not seen.bundle.carries(signing.certificate):
            return
        if self._mending and seen.bundle.has_settled(signing.certificate, self._lifetimes):
            self._log("the authority is whole again")
            self._mending = ""

    def _sign(self) -> None:
        seen, lifetimes = self._seen, self._lifetimes
        now, at = self._now(), self._monotonic()
        if seen is None:
            return
        age = timedelta(seconds=at - seen.at)
        authority = signer(
            self._leaf,
            seen.state,
            seen.bundle,
            now=now,
            lifetimes=lifetimes,
            is_fresh=age < lifetimes.settle,
        )
        if authority is None:
            return
        life = lifetime(authority, now=now, lifetimes=lifetimes)
        issued = issue.new_leaf(authority, self._names, now=now, lifetime=life)
        is_refused = self._leaf is not None and not seen.bundle.carries(self._leaf.authority)
        carried_for = seen.bundle.carried_for.get(authority.certificate, timedelta())
        unsettled = timedelta() if is_refused else lifetimes.settle - carried_for
        self._trusted_at = at + max(0.0, unsettled.total_seconds())
        self._leaf = Leaf(issued=issued, authority=authority.certificate, made=now)
        self._log(f"a certificate that is valid until {self._leaf.expires.isoformat()}")
        self.on_leaf(self._report())

    def _report(self) -> Report:
        seen = self._seen
        signing = seen.state.signing if seen else None
        return Report(
            leaf=self._leaf,
            trusted_at=self._trusted_at,
            authority_expires=signing.certificate.not_valid_after_utc if signing else None,
            notice="; ".join(filter(None, (self._mending, self._trouble, self._missing(seen)))),
        )

    def _missing(self, seen: _Seen | None) -> str:
        if seen is not None and not self._version:
            return "there is no webhook configuration to publish the authority in"
        return ""


def _said(action: Action) -> str:
    match action.step:
        case Step.PUBLISH:
            return f"caBundle: {len(action.certificates)} authorities published"
        case Step.REVOKE:
            return f"{len(action.certificates)} authorities are revoked; a new one signs"
        case Step.MEND:
            return Trouble(f"the authority's Secret {action.reason}: written anew")
        case Step.PREPARE:
            return "the next authority is made"
        case Step.PROMOTE:
            return "the next authority signs from now on"
        case Step.DROP:
            return "old authorities are dropped"
