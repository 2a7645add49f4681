"""What is remembered of all classes, and what is learned from it, kept up to date run by run.

What did not change is the same object afterwards, so that only what changed is published.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from webhook.learn.begun_delays import Delays, renewed
from webhook.learn.learning import learned, spread_of
from webhook.learn.run_records import (
    Began,
    Ended,
    Packed,
    Record,
    crowded_out,
    merged,
    merged_runs,
    pooled,
    unpack_runs,
)
from webhook.model.forecasts import Estimates, RunTime
from webhook.model.run_keys import JobClass, home_of, of_queue

MOST_CLASSES: Final = 10_000
"""Beyond so many, those of the home that has the most are forgotten, the oldest first."""
AT_ONCE: Final = 500
"""Estimates made in one go, at about a tenth of a millisecond each; the others wait a turn."""
_FORGOTTEN_AT_ONCE: Final = 20
"""One in so many: to find the oldest costs a look at all."""

_Place: TypeAlias = tuple[str, str]
"""(class or coarse class, flavors)"""


class RunTimes:
    def __init__(self, most: int = MOST_CLASSES) -> None:
        self._most = most
        self._records: dict[str, Record] = {}
        self._pools: defaultdict[str, dict[str, Packed]] = defaultdict(dict)
        """Coarse class to flavors to the newest runs of all its classes."""
        self._members: Counter[str] = Counter()
        """Coarse class to how many classes it has."""
        self._published: Estimates = {}
        self._stale: dict[_Place, None] = {}
        self._changed: set[str] = set()
        self.delays = Delays(self._records)
        self._floors: dict[str, int] = {}
        """By home: what ended no later than this was forgotten and is not taken up again."""

    @property
    def records(self) -> Mapping[str, Record]:
        """Class to what is remembered of it."""
        return self._records

    def add(self, ended: Ended) -> None:
        """Take over a run; one that is known already changes nothing."""
        self.merge(ended.key, ended.record())
        if ended.cluster_queue and ended.succeeded:
            self.merge(of_queue(ended.cluster_queue, home_of(ended.key)), pooled(ended))

    def begin(self, job_class: JobClass, began: Began) -> None:
        """Take over how a run began that goes on."""
        self.merge(job_class.key, began.record()._replace(coarse=job_class.coarse))

    def merge(self, key: str, record: Record) -> None:
        """Take over what is known of a class from elsewhere."""
        before = self._records.get(key)
        if before is None and record.last <= self._floors.get(home_of(key), -1):
            return
        after = merged(before or Record(), record)
        if after == before:
            return
        self._records[key] = after
        self._changed.add(key)
        self._pool(before, after)
        self.delays.take(key, before, after)
        if before is None or before.runs != after.runs:
            # Runs on one flavor tell of the spread on all.
            self._stale.update(dict.fromkeys((key, flavors) for flavors in after.runs))
        if len(self._records) > self._most:
            self._forget()

    def take_changed(self) -> frozenset[str]:
        """List the classes of which more, or nothing any more, is known than at the last call."""
        taken = frozenset(self._changed)
        self._changed.clear()
        return taken

    def estimates(self, at_once: int | None = AT_ONCE) -> Estimates:
        """Say what is learned; the same mapping as before where that has not changed."""
        taken = list(self._stale)[:at_once]
        for place in taken:
            del self._stale[place]
        self._published = renewed(self._published, {place: self._learn(place) for place in taken})
        return self._published

    def _learn(self, place: _Place) -> RunTime | None:
        key, flavors = place
        record = self._records.get(key)
        known = record.runs if record else self._pools.get(key, {})
        # In order, so that the same runs always come to the very same estimate.
        elsewhere = (unpack_runs(known[other]) for other in sorted(known) if other != flavors)
        return learned(unpack_runs(known.get(flavors, b"")), prior_sigma=spread_of(elsewhere))

    def _pool(self, before: Record | None, after: Record) -> None:
        if not after.coarse:
            return
        if before is None or before.coarse != after.coarse:
            self._members[after.coarse] += 1
            self._leave(before)
        pool = self._pools[after.coarse]
        for flavors, packed in after.runs.items():
            runs = merged_runs(pool.get(flavors, b""), packed)
            if runs != pool.get(flavors):
                # Most coarse classes have one class, whose bytes serve both.
                pool[flavors] = packed if runs == packed else runs
                self._stale.update(dict.fromkeys((after.coarse, each) for each in pool))

    def _leave(self, record: Record | None) -> None:
        if record is None or not record.coarse:
            return
        self._members[record.coarse] -= 1
        if not self._members[record.coarse]:
            del self._members[record.coarse]
            self._drop_estimates(record.coarse, self._pools.pop(record.coarse, {}))

    def _forget(self) -> None:
        """Forget what ended longest ago of whoever has the most: nobody pushes others out."""
        most = len(self._records) - self._most + self._most // _FORGOTTEN_AT_ONCE
        ones = dict.fromkeys(self._records, 1)
        for key in tuple(islice(crowded_out(ones, self._records), most)):
            home = home_of(key)
            record = self._records.pop(key)
            self._floors[home] = max(self._floors.get(home, -1), record.last)
            self._changed.add(key)
            self._drop_estimates(key, record.runs)
            self.delays.forget(key, record)
            self._leave(record)

    def _drop_estimates(self, key: str, flavors: Iterable[str]) -> None:
        # They are made anew of nothing, and so go.
        self._stale.update(dict.fromkeys((key, each) for each in flavors))
