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
from certs.issue import Issued
from certs.plan import (
    Action,
    Bundle,
    Lifetimes,
    Step,
    after,
    lifetime,
    plan,
    signer,
    without_revoked,
)
from certs.secret import State
from certs.store import Conflict, StoreError

_LONGEST_WAIT: Final = timedelta(seconds=5)
_MOST_STEPS: Final = 10
"""In one look: two would do for one replica, the others are for those that were second."""


class Trouble(str):
    """A line of the log that an admin must act on; the others say what is done."""

    __slots__ = ()


class Storage(Protocol):
    """What is needed of ``store.Store``."""

    def read(self) -> tuple[Bundle, State]: ...

    def write(self, before: State, state: State) -> None: ...

    def publish(self, published: Bundle, certificates: Sequence[x509.Certificate]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a replica has at the end of a look."""

    leaf: Issued | None = None
    trusted_at: float = 0.0
    """By the keeper's monotonic clock: until then API servers may not know who signed the leaf.
    Whoever has one of another authority that is valid shall use that."""
    authority_expires: datetime | None = None
    notice: str = ""
    """What is not as it should be; empty: all is well."""


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
        self._leaf: Issued | None = None
        self._trusted_at = 0.0
        self._state: State | None = None
        """As last read, with a signing authority if one ever was; None: nothing was read yet."""
        self._bundle = Bundle(webhooks=())
        """As it was read with that."""
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
            bundle, state = self._remember(*self._storage.read(), asked=asked)
            leaf, now = self._leaf, self._now()
            own = leaf.authority if leaf is not None and now < leaf.expires else None
            action = plan(state, bundle, now=now, lifetimes=self._lifetimes, own=own)
            if action is None:
                self._heal(bundle, state)
                return
            try:
                self._take(action, bundle, state)
            except Conflict as error:
                conflict = error
        raise conflict

    def _remember(self, published: Bundle, state: State, *, asked: float) -> tuple[Bundle, State]:
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
        bundle = replace(published, carried_for=ages, asked_at=asked)
        # What is broken or gone must not be forgotten while there is nothing better.
        if state.signing is not None or self._state is None:
            self._state, self._bundle = state, bundle
        return bundle, state

    def _take(self, action: Action, published: Bundle, state: State) -> None:
        if action.step is Step.PUBLISH:
            self._storage.publish(published, action.certificates)
            self._log(_said(action))
            return
        now, authority = self._now(), None
        if action.needs_authority:
            authority = issue.new_authority(self._names[0], now=now, lifetime=self._lifetimes.ca)
        # At the first start nothing was lost.
        is_news = bool(self._leaf or state.faults or any(published.webhooks))
        if action.step is Step.MEND and is_news:
            self._mending = f"the authority's Secret {action.reason}"
        changed = after(state, action, now=now, lifetimes=self._lifetimes, authority=authority)
        self._storage.write(state, changed)
        self._log(_said(action))

    def _heal(self, bundle: Bundle, state: State) -> None:
        signing = state.signing
        if signing is None or not bundle.carries(signing.certificate):
            return
        if self._mending and bundle.has_settled(signing.certificate, self._lifetimes):
            self._log("the authority is whole again")
            self._mending = ""

    def _sign(self) -> None:
        bundle, lifetimes = self._bundle, self._lifetimes
        now, at = self._now(), self._monotonic()
        if self._state is None:
            return
        age = timedelta(seconds=at - bundle.asked_at)
        authority = signer(
            self._leaf,
            self._state,
            bundle,
            now=now,
            lifetimes=lifetimes,
            is_fresh=age < lifetimes.settle,
        )
        if authority is None:
            return
        life = lifetime(authority, now=now, lifetimes=lifetimes)
        before = self._leaf.authority if self._leaf is not None else None
        is_refused = before is not None and not bundle.carries(before)
        carried_for = bundle.carried_for.get(authority.certificate, timedelta())
        unsettled = timedelta() if is_refused else lifetimes.settle - carried_for
        self._trusted_at = at + max(0.0, unsettled.total_seconds())
        self._leaf = issue.new_leaf(authority, self._names, now=now, lifetime=life)
        self._log(f"a certificate that is valid until {self._leaf.expires.isoformat()}")
        self.on_leaf(self._report())

    def _report(self) -> Report:
        signing = self._state.signing if self._state is not None else None
        missing = ""
        if self._state is not None and not self._version:
            missing = "there is no webhook configuration to publish the authority in"
        return Report(
            leaf=self._leaf,
            trusted_at=self._trusted_at,
            authority_expires=signing.expires if signing else None,
            notice="; ".join(filter(None, (self._mending, self._trouble, missing))),
        )


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
