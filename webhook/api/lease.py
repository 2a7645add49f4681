"""Leader election by a Lease: which one of several replicas leads.

Time is measured by our own monotonic clock, from when the Lease was first read in its present
version; clocks of machines are never compared. Each write names the version that was read, so the
second of two candidates gets a conflict. The functions decide, ``Elector`` calls the API server,
``Leadership`` is the thread that does so.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi, NotServed
from webhook.model.faults import Attention

NAME: Final = "kueue-fallback-controller"
LEASE_SECONDS: Final = 12
"""After so long without any change of the Lease another replica may claim it."""
GIVE_UP_SECONDS: Final = 8.0
"""So long after its last renewal was sent the holder stops leading. The rest of the Lease's time is
for writes in flight, and for clocks that run at different speeds."""
RENEW_SECONDS: Final = 3.0
STEP_SECONDS: Final = 1.0
"""Between two reads of a replica that does not lead, and after a failure: a takeover takes two of
them and the Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """What the Lease says."""

    version: str
    """The resourceVersion; empty: the Lease was deleted afterwards."""
    holder: str
    """Empty: released."""
    seconds: float
    """How long it is valid without a change."""
    acquired: str
    transitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What one candidate knows; all times are of its own monotonic clock."""

    record: LeaseRecord | None = None
    """None: no Lease was ever read."""
    changed_at: float = -math.inf
    """When it was first read in its present version."""
    heard_at: float = -math.inf
    """When another holder was last read to renew it."""
    held_until: float = -math.inf
    terms: int = 0
    """How often leadership was gained."""

    def leads(self, now: float) -> bool:
        return now < self.held_until


def saw(holder: Holder, record: LeaseRecord | None, *, identity: str, now: float) -> Holder:
    """Return the state after the Lease was read at *now*; a *record* of None: there is no Lease."""
    before = holder.record
    if record is None:
        if before is None:
            return holder
        # Its holder may not know yet, and gets as much time as with any other change.
        record = replace(before, version="")
    if before is not None and record.version == before.version:
        return holder
    is_ours = record.holder == identity
    heard = before is not None and record.holder and record.version and not is_ours
    return replace(
        holder,
        record=record,
        changed_at=now,
        heard_at=now if heard else holder.heard_at,
        held_until=holder.held_until if is_ours else -math.inf,
    )


def may_claim(holder: Holder, *, identity: str, now: float) -> bool:
    record = holder.record
    if record is None or record.holder in ("", identity):
        return True
    return now >= holder.changed_at + record.seconds


def claim(holder: Holder, *, identity: str, stamp: str) -> Mapping[str, Any]:
    """Return the spec with which we acquire the Lease at *stamp*, or renew it."""
    record = holder.record
    is_ours = record is not None and record.holder == identity
    transitions = 0 if record is None else record.transitions + (not is_ours)
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": LEASE_SECONDS,
        "acquireTime": record.acquired if record is not None and is_ours else stamp,
        "renewTime": stamp,
        "leaseTransitions": transitions,
    }


def with_granted_claim(holder: Holder, record: LeaseRecord, *, asked: float, now: float) -> Holder:
    """Return the state after a claim, sent at *asked*, was granted; the answer came at *now*."""
    return replace(
        holder,
        record=record,
        changed_at=now,
        held_until=asked + GIVE_UP_SECONDS,
        terms=holder.terms + (not holder.leads(now)),
    )


def resigned(holder: Holder) -> Holder:
    return replace(holder, held_until=-math.inf)


def read_lease(source: Mapping[str, Any]) -> LeaseRecord:
    spec = source.get("spec") or {}
    return LeaseRecord(
        version=str(source["metadata"]["resourceVersion"]),
        holder=str(spec.get("holderIdentity") or ""),
        # With a shorter one we could claim it while its holder still leads.
        seconds=float(max(LEASE_SECONDS, spec.get("leaseDurationSeconds") or 0)),
        acquired=str(spec.get("acquireTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
    )


class Elector:
    """Takes part in the election: one thread calls ``step`` and finally ``resign``.

    Any thread may ask whether it leads.
    """

    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        identity: str,
        clock: Callable[[], float],
        stamp: Callable[[], str],
    ) -> None:
        """Take part as *identity*, which must be unique to this process; *clock* is monotonic."""
        self._transport = transport
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._stamp = stamp
        self._place = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._holder = Holder()
        self.trouble = ""
        """What failed at the last step; empty: nothing."""

    def term(self) -> int:
        """Return how often leadership was gained, this term included; 0: we do not lead."""
        holder = self._holder
        return holder.terms if holder.leads(self._clock()) else 0

    @property
    def heard_at(self) -> float:
        """Monotonic time at which another leader was last read to renew; -inf: never."""
        return self._holder.heard_at

    def step(self) -> float:
        """Read the Lease, and acquire or renew it if allowed.

        Return the longest time to wait, in seconds.
        """
        try:
            self._compete()
        except ClusterError as error:
            lost = error.is_conflict
            self.trouble = "" if lost else str(error)
            return STEP_SECONDS
        self.trouble = ""
        return RENEW_SECONDS if self.term() else STEP_SECONDS

    def resign(self) -> None:
        """Stop leading and release the Lease, so that another replica can acquire it at once."""
        self._holder = resigned(self._holder)
        try:
            source = self._get()
            if source is not None and read_lease(source).holder == self._identity:
                spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
                self._put(source, spec)
        except ClusterError as error:
            self.trouble = str(error)

    def _compete(self) -> None:
        source = self._get()
        record, asked = None if source is None else read_lease(source), self._clock()
        identity = self._identity
        self._holder = saw(self._holder, record, identity=identity, now=asked)
        if not may_claim(self._holder, identity=identity, now=asked):
            return
        spec = claim(self._holder, identity=identity, stamp=self._stamp())
        answer = self._post(spec) if source is None else self._put(source, spec)
        now = self._clock()
        self._holder = with_granted_claim(self._holder, read_lease(answer), asked=asked, now=now)

    def _get(self) -> Mapping[str, Any] | None:
        try:
            return self._transport.get(f"{self._place}/{NAME}")
        except NotServed:
            return None

    def _post(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        kinds = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        metadata = {"name": NAME, "namespace": self._namespace}
        return self._transport.post(self._place, {**kinds, "metadata": metadata, "spec": spec})

    def _put(self, source: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
        changed = {**source, "spec": {**(source.get("spec") or {}), **spec}}
        return self._transport.put(f"{self._place}/{NAME}", changed)


_END_SECONDS: Final = 10.0


class Leadership:
    def __init__(
        self,
        elector: Elector,
        *,
        on_change: Callable[[], None],
        log: Callable[[str], None],
        uniform: Callable[[float, float], float],
    ) -> None:
        """Call *on_change*, in the thread, when leadership is gained or lost."""
        self._elector = elector
        self._on_change = on_change
        self._log = log
        self._uniform = uniform
        self._term = 0
        self._failed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._take_part, name="lease", daemon=True)

    def start(self) -> None:
        """Start taking part in the election, unless it has been started."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Release the Lease; the caller must not act as leader any more."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def term(self) -> int:
        """Return a number that identifies this term of leading; 0: we do not lead."""
        return self._elector.term()

    def is_leader(self) -> bool:
        return self.term() > 0

    @property
    def heard_at(self) -> float:
        """Monotonic time at which another leader was last known to lead."""
        return self._elector.heard_at

    def notice(self) -> str:
        """Return why we could not lead; empty: we could."""
        trouble = self._elector.trouble
        return Attention(f"the Lease cannot be held: {trouble}") if trouble else ""

    def _take_part(self) -> None:
        while not self._ending.is_set():
            wait = self._elector.step()
            self._report()
            # Replicas that started together must not stay in step.
            self._ending.wait(wait * self._uniform(0.8, 1.0))
        self._elector.resign()

    def _report(self) -> None:
        term, notice = self.term(), self.notice()
        # The connection's message differs from try to try, so only the first is logged.
        if bool(notice) != self._failed:
            self._failed = bool(notice)
            self._log(notice or "the Lease can be held again")
        if term != self._term:
            self._term = term
            self._on_change()
