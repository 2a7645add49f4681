"""An API server that holds one Lease, and several candidates whose messages take time or are lost.

Candidates are driven through the same functions as ``lease.Elector``; time is the server's, and
each candidate has a clock of its own, with its own zero and rate.
"""

import functools
import heapq
import itertools
import random
from dataclasses import dataclass, field

from webhook.api import lease
from webhook.api.lease import Holder

STAMP = "2026-01-01T00:00:00.000000Z"
"""The same for all and always: no clock of another machine is ever looked at."""


@dataclass
class Candidate:
    identity: str
    zero: float = 0.0
    rate: float = 1.0
    holder: Holder = field(default_factory=Holder)
    lives: bool = True
    is_cut_off: bool = False
    """It lives and sends, and nothing arrives."""

    def clock(self, now):
        return self.zero + now * self.rate

    def leads(self, now):
        return self.lives and self.holder.leads(self.clock(now))


class World:
    """Events in their order; ``run`` stops at an instant, and never lets two lead."""

    def __init__(self, candidates, *, seed, delay=0.2, lost=0.0):
        self.candidates = candidates
        self.random = random.Random(seed)
        self.delay, self.lost = delay, lost
        self.now = 0.0
        self.stored = None
        self.gained = []
        """(when, who)"""
        self._versions = itertools.count(1)
        self._order = itertools.count()
        self._events = []
        for candidate in candidates:
            self._later(self.random.uniform(0, 2), self._ask, candidate)

    def join(self, candidate):
        self.candidates.append(candidate)
        self._later(0, self._ask, candidate)

    def run(self, until):
        while self._events and self._events[0][0] <= until:
            self.now, _, happens, arguments = heapq.heappop(self._events)
            happens(*arguments)
        self.now = until

    def leaders(self):
        return [each for each in self.candidates if each.leads(self.now)]

    def kill(self, candidate):
        candidate.lives = False

    def cut_off(self, candidate):
        candidate.is_cut_off = True

    def resign(self, candidate):
        """End in order: the Lease is read and given back, after the call that is under way."""
        candidate.holder = lease.resigned(candidate.holder)
        candidate.lives = False
        give_back = functools.partial(self._give_back, candidate)
        self._later(3 * self.delay, self._send, self._read, give_back)

    def delete(self):
        self.stored = None

    def _give_back(self, candidate, found):
        if found and found["spec"]["holderIdentity"] == candidate.identity:
            version = found["metadata"]["resourceVersion"]
            spec = {**found["spec"], "holderIdentity": ""}
            self._send(self._write, version, spec, lambda _: None)

    def _later(self, seconds, happens, *arguments):
        event = (self.now + seconds, next(self._order), happens, arguments)
        heapq.heappush(self._events, event)

    def _send(self, happens, *arguments):
        if self.random.random() >= self.lost:
            self._later(self.random.uniform(0, self.delay), happens, *arguments)

    def _ask(self, candidate):
        if not candidate.lives:
            return
        wait = lease.RENEW_SECONDS if candidate.leads(self.now) else lease.STEP_SECONDS
        wait *= self.random.uniform(0.8, 1.0)
        # An answer that does not come is waited for no longer than that.
        self._later(wait / candidate.rate, self._ask, candidate)
        if not candidate.is_cut_off:
            self._send(self._read, lambda found: self._take(candidate, found))

    def _read(self, answer):
        self._send(answer, self.stored)

    def _take(self, candidate, found):
        if not candidate.lives:
            return
        asked, identity = candidate.clock(self.now), candidate.identity
        record = found and lease.read_lease(found)
        candidate.holder = lease.saw(candidate.holder, record, identity=identity, now=asked)
        if not lease.may_claim(candidate.holder, identity=identity, now=asked):
            return
        spec = lease.claim(candidate.holder, identity=identity, stamp=STAMP)
        version = record.version if record else ""
        self._send(self._write, version, spec, lambda answer: self._won(candidate, answer, asked))

    def _write(self, version, spec, answer):
        before = self.stored["metadata"]["resourceVersion"] if self.stored else ""
        if before != version:
            return
        self.stored = {"metadata": {"resourceVersion": str(next(self._versions))}, "spec": spec}
        self._send(answer, self.stored)

    def _won(self, candidate, answer, asked):
        now = candidate.clock(self.now)
        led = candidate.leads(self.now)
        record = lease.read_lease(answer)
        candidate.holder = lease.with_granted_claim(candidate.holder, record, asked=asked, now=now)
        assert len(self.leaders()) <= 1, self.leaders()
        if candidate.leads(self.now) and not led:
            self.gained.append((self.now, candidate.identity))
