"""Run times and delays learned from runs, for all classes, updated run by run.

A robust mean of logarithms estimates each place; records are pooled by coarse class and bounded in
number. What did not change is the same object afterwards, so that only changes are published.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias

from webhook.learn.device_runs import use_of
from webhook.learn.failing import Failing, Interruptions, Refusal
from webhook.learn.run_records import (
    ClassRecord,
    Packed,
    Run,
    WorkloadRun,
    crowded_out,
    merged,
    merged_begun,
    merged_runs,
    unpack_runs,
)
from webhook.model.costs.devices import DeviceUse
from webhook.model.forecasts import (
    SIGMAS_OF_A_SIDE,
    Basis,
    Estimates,
    OfSaid,
    RunTime,
    home_of,
    is_of_queue,
    of_queue,
)
from webhook.model.policy.fallback_policy import FallbackPolicy

HALF_LIFE = 9.0
"""Runs after which one weighs half; a change of run times shows after a few more than that."""
PRIOR_SIGMA = 0.6
"""Spread of the logarithms of one class's run times, before any were observed."""
PRIOR_RUNS = 4.0
"""How many runs that prior counts for, as long as there are few."""
FEW_RUNS = 5.0
"""Beside more runs than these, the prior fades with the cube of their number."""

_TUNING = 4.685
"""Sigmas from the middle beyond which a run weighs nothing (Tukey's biweight: 95 % efficient)."""
_MAD_TO_SIGMA = 1.4826
_LEAST_SIGMA = 0.02
_STEPS = 12
_CLOSE = 1e-3
"""In logarithms: a thousandth of the run time."""
_SHORTEST_SECONDS = 0.5
"""What a run counts for that began and ended within one second of the API server's clock."""

_Weighted = Sequence[tuple[float, float]]
"""(value, weight), values ascending."""


def estimate(runs: Iterable[Run], *, prior_sigma: float = PRIOR_SIGMA) -> RunTime | None:
    """Estimate from successful runs, the oldest first; None: there are none.

    *prior_sigma*: the spread of logarithms to expect of such runs until enough were observed.
    """
    known = tuple(runs)
    weighted = _weighted(known)
    if not weighted:
        return None
    middle = _middle(weighted)
    below, above = _sigmas(weighted, middle, prior_sigma)
    # The middle itself has the error of a mean of so many runs.
    error = math.sqrt(1 + 1 / _effective_runs(weighted))
    return RunTime(
        seconds=math.exp(middle),
        low=math.exp(middle - SIGMAS_OF_A_SIDE * below * error),
        high=math.exp(middle + SIGMAS_OF_A_SIDE * above * error),
        basis=Basis.LEARNED,
        runs=len(weighted),
        warm=_warm_part(known),
    )


_SAID_RATIO_SIGMA = 0.5
"""Spread of how runs compare with what was said of them, before any were observed."""


def ratio_to_said(runs: Iterable[Run], said: Iterable[Run]) -> OfSaid | None:
    """Compare runs with what their owners said of the same ones, the oldest first; None: nothing.

    What makes one run of a class longer than another is in both, so a few tell much.
    """
    known = {(one.finished, one.uid): one.seconds for one in said}
    logs = [
        math.log(max(run.seconds, _SHORTEST_SECONDS) / seconds)
        for run in runs
        if (seconds := known.get((run.finished, run.uid)))
    ]
    if not logs:
        return None
    weighted = _by_age(logs)
    middle = _middle(weighted)
    sigma = math.hypot(*_sigmas(weighted, middle, _SAID_RATIO_SIGMA)) / math.sqrt(2)
    return OfSaid(middle, sigma, _effective_runs(weighted))


WARM_SECONDS: Final = 7_200
"""After so long what a run has brought to a node counts as gone."""
_NEWEST: Final = 10
_PARTS: Final = {
    (part, whole): part / whole for whole in range(1, _NEWEST + 1) for part in range(whole + 1)
}
"""Shared by all estimates: a number of its own takes more memory than its place."""


def _warm_part(runs: Sequence[Run]) -> float:
    """Return which part of the newest runs, the oldest first, began soon after another's end."""
    newest = runs[-_NEWEST:]
    warm = sum(
        any(
            other is not run and 0 <= run.finished - run.seconds - other.finished <= WARM_SECONDS
            for other in runs
        )
        for run in newest
    )
    return _PARTS[warm, len(newest)]


def spread_of(elsewhere: Iterable[Iterable[Run]]) -> float:
    """Return the spread of logarithms that a class's runs had in other places.

    What makes one run of a class longer than another, its data and its steps, does so on every
    flavor: so few runs here, beside many there, do not leave their spread unknown. Without runs
    elsewhere it is ``PRIOR_SIGMA``.
    """
    squares, total = 0.0, 0.0
    for runs in elsewhere:
        weighted = _weighted(runs)
        if weighted:
            below, above = _sigmas(weighted, _middle(weighted), PRIOR_SIGMA)
            count = _effective_runs(weighted)
            squares += count * (below * below + above * above) / 2
            total += count
    return math.sqrt(squares / total) if total else PRIOR_SIGMA


def _weighted(runs: Iterable[Run]) -> _Weighted:
    return _by_age([math.log(max(run.seconds, _SHORTEST_SECONDS)) for run in runs])


def _by_age(values: Sequence[float]) -> _Weighted:
    """Weigh values by their age; the oldest is the first."""
    return tuple(sorted(zip(reversed(values), _weights(len(values)), strict=True)))


@lru_cache
def _weights(count: int) -> tuple[float, ...]:
    """Return the weights of so many runs, the newest first."""
    return tuple(0.5 ** (age / HALF_LIFE) for age in range(count))


# A new run changes one place, which is then estimated itself and compared with by all others.
@lru_cache(maxsize=8)
def _middle(weighted: _Weighted) -> float:
    """Return the M-estimate with Tukey's biweight, starting from the weighted median.

    Huber & Ronchetti, Robust Statistics, 2nd edition, 4.8; the scale stays at that of the median.
    """
    middle = _quantile(weighted, 0.5)
    distances = sorted((abs(value - middle), weight) for value, weight in weighted)
    reach = _TUNING * max(_MAD_TO_SIGMA * _quantile(distances, 0.5), _LEAST_SIGMA)
    for _ in range(_STEPS):
        pulls = [
            (value, weight * (1 - part * part) ** 2)
            for value, weight in weighted
            if -1 < (part := (value - middle) / reach) < 1
        ]
        total = sum(pull for _, pull in pulls)
        step = sum(value * pull for value, pull in pulls) / total - middle if total else 0.0
        middle += step
        if abs(step) < _CLOSE:
            break
    return middle


def _sigmas(weighted: _Weighted, middle: float, prior_sigma: float) -> tuple[float, float]:
    """Return the spread below and above the middle; the prior counts as long as runs are few."""
    runs = _effective_runs(weighted)
    telling = runs - 1  # one run alone tells nothing of spread
    guessed = PRIOR_RUNS * min(1.0, (FEW_RUNS / runs) ** 3)

    def sigma(seen: float) -> float:
        known = guessed * prior_sigma**2 + telling * seen**2
        return math.sqrt(known / (guessed + telling))

    below = max(0.0, middle - _quantile(weighted, 0.1)) / SIGMAS_OF_A_SIDE
    above = max(0.0, _quantile(weighted, 0.9) - middle) / SIGMAS_OF_A_SIDE
    return sigma(below), sigma(above)


def _effective_runs(weighted: _Weighted) -> float:
    """Return how many runs of equal weight would carry as much information (Kish)."""
    total = sum(weight for _, weight in weighted)
    return total * total / sum(weight * weight for _, weight in weighted)


def _quantile(weighted: _Weighted, part: float) -> float:
    """Interpolate between the middles of the weights."""
    total = sum(weight for _, weight in weighted)
    wanted, passed, before = part * total, 0.0, weighted[0]
    reached = 0.0
    for value, weight in weighted:
        centre = passed + weight / 2
        if centre >= wanted:
            if passed == 0.0:
                return value
            return before[0] + (value - before[0]) * (wanted - reached) / (centre - reached)
        before, reached, passed = (value, weight), centre, passed + weight
    return before[0]


OF_ALL: Final = ""
"""Stands for the class where all classes are meant."""
MOST_PLACES: Final = 2_000
"""Flavors, and ClusterQueues; beyond so many the first ones are forgotten."""

_Place: TypeAlias = tuple[str, str]
"""(class or ``OF_ALL``, flavors)"""


class Delays:
    def __init__(self, records: Mapping[str, ClassRecord]) -> None:
        """Learn of each class what *records* say of it."""
        self._records = records
        self._starts: dict[str, Packed] = {}
        """Flavors to the newest delays of all classes."""
        self._dispatches: dict[str, Packed] = {}
        self._published: Estimates = {}
        self._stale: dict[_Place, None] = {}
        self._dispatched: set[str] = set()

    def take(self, key: str, before: ClassRecord | None, after: ClassRecord) -> None:
        """Apply how the runs of one class began."""
        known = before or ClassRecord()
        for flavors, packed in after.starts.items():
            if known.starts.get(flavors) != packed:
                self._starts[flavors] = merged_begun(self._starts.get(flavors, b""), packed)
                self._stale.update(dict.fromkeys(((key, flavors), (OF_ALL, flavors))))
                _limit(self._starts)
        for name, packed in after.dispatches.items():
            if known.dispatches.get(name) != packed:
                self._dispatches[name] = merged_begun(self._dispatches.get(name, b""), packed)
                self._dispatched.add(name)
                _limit(self._dispatches)

    def forget(self, key: str, record: ClassRecord) -> None:
        """Forget a class; what was learned of the places from it stays."""
        self._stale.update(dict.fromkeys((key, flavors) for flavors in record.starts))

    def starts(self, at_once: int | None) -> Estimates:
        """Return how long pods take to be ready; the same mapping as before if nothing changed.

        At most *at_once* places are estimated again; None: all.
        """
        taken = list(self._stale)[:at_once]
        for place in taken:
            del self._stale[place]
        self._published = renewed(self._published, {place: self._learn(place) for place in taken})
        return self._published

    @property
    def dispatches(self) -> Mapping[str, Packed]:
        """ClusterQueue to how long its AdmissionChecks took recently."""
        return self._dispatches

    def take_dispatched(self) -> frozenset[str]:
        """Return the ClusterQueues of which more is known than at the last call."""
        taken = frozenset(self._dispatched)
        self._dispatched.clear()
        return taken

    def _learn(self, place: _Place) -> RunTime | None:
        key, flavors = place
        record = self._records.get(key)
        known = self._starts if key == OF_ALL else record.starts if record else {}
        return estimate(unpack_runs(known.get(flavors, b"")))


def renewed(before: Estimates, learnt: Mapping[_Place, RunTime | None]) -> Estimates:
    """Return *before* with new estimates, None removing one; *before* itself if nothing differs."""
    changed = {
        place: run_time for place, run_time in learnt.items() if run_time != before.get(place)
    }
    if not changed:
        return before
    # One mapping serves work and publication: with 10,000 classes a second one would cost much.
    estimates = {**before, **changed}
    return {place: run_time for place, run_time in estimates.items() if run_time is not None}


def _limit(places: dict[str, Packed]) -> None:
    while len(places) > MOST_PLACES:
        del places[next(iter(places))]


MOST_CLASSES: Final = 10_000
"""Beyond so many, those of the home that has the most are forgotten, the oldest first."""
AT_ONCE: Final = 500
"""Estimates made in one go, at about a tenth of a millisecond each; the others come next time."""
_FORGOTTEN_AT_ONCE: Final = 20
"""One in so many is forgotten at once, as finding the oldest reads all of them."""


class RunTimeLearner:
    def __init__(self, most: int = MOST_CLASSES) -> None:
        self._most = most
        self._records: dict[str, ClassRecord] = {}
        self._pools: defaultdict[str, dict[str, Packed]] = defaultdict(dict)
        """Coarse class to flavors to the newest runs of all its classes."""
        self._members: Counter[str] = Counter()
        """Coarse class to how many classes it has."""
        self._published: Estimates = {}
        self._stale: dict[_Place, None] = {}
        self._changed: set[str] = set()
        self.delays = Delays(self._records)
        self.interruptions = Interruptions()
        self._uses: Mapping[str, DeviceUse] = {}
        self._measured: set[str] = set()
        """Classes of whose use of devices more, or nothing any more, is known."""
        self._points: Mapping[tuple[str, str], Packed] = {}
        self._served: set[str] = set()
        """Classes of which other points of services are known, or none any more."""
        self._floors: dict[str, int] = {}
        """Home to a time: records that ended no later were forgotten and are not merged again."""

    @property
    def records(self) -> Mapping[str, ClassRecord]:
        """Class to its record."""
        return self._records

    def add(self, ended: WorkloadRun) -> None:
        """Merge a run; one that is known already changes nothing."""
        key, record = ended.mark.job_class.key, ended.record()
        self.merge(key, record)
        if ended.cluster_queue and ended.run.succeeded:
            # It teaches about others in its ClusterQueue, too.
            queue_key = of_queue(ended.cluster_queue, home_of(key))
            self.merge(queue_key, ClassRecord(runs=record.runs))

    def begin(self, begun: WorkloadRun) -> None:
        """Merge how a run in progress began."""
        self.merge(begun.mark.job_class.key, begun.beginning())

    def merge(self, key: str, record: ClassRecord) -> None:
        """Merge a record of a class."""
        before = self._records.get(key)
        if before is None and record.last <= self._floors.get(home_of(key), -1):
            return
        after = merged(before or ClassRecord(), record)
        if after == before:
            return
        self._records[key] = after
        self._changed.add(key)
        self._pool(before, after)
        self.delays.take(key, before, after)
        if not is_of_queue(key):
            self.interruptions.take(before, after)
        if after.measured != (before or ClassRecord()).measured:
            self._measured.add(key)
        if after.served != (before or ClassRecord()).served:
            self._served.add(key)
        if before is None or (before.runs, before.said) != (after.runs, after.said):
            # Runs on one flavor tell of the spread on all.
            self._stale.update(dict.fromkeys((key, flavors) for flavors in after.runs))
        if len(self._records) > self._most:
            self._forget()

    def take_changed(self) -> frozenset[str]:
        """Return the classes whose records were changed or forgotten since the last call."""
        taken = frozenset(self._changed)
        self._changed.clear()
        return taken

    def estimates(self, at_once: int | None = AT_ONCE) -> Estimates:
        """Return the learned run times; the same mapping as before if nothing changed.

        At most *at_once* places are estimated again; None: all.
        """
        taken = list(self._stale)[:at_once]
        for place in taken:
            del self._stale[place]
        self._published = renewed(self._published, {place: self._learn(place) for place in taken})
        return self._published

    def uses(self) -> Mapping[str, DeviceUse]:
        """Return what classes use of devices; the same mapping as before if nothing changed."""
        if self._measured:
            learnt = {
                key: use_of(self._records[key].measured) if key in self._records else None
                for key in self._measured
            }
            self._measured.clear()
            uses = {**self._uses, **learnt}
            self._uses = {key: use for key, use in uses.items() if use is not None}
        return self._uses

    def points(self) -> Mapping[tuple[str, str], Packed]:
        """Return what services did, by class and place; the same mapping if nothing changed."""
        if self._served:
            kept = {at: packed for at, packed in self._points.items() if at[0] not in self._served}
            known = {key: self._records[key].served for key in self._served & self._records.keys()}
            self._served.clear()
            self._points = kept | {
                (key, place): packed
                for key, served in known.items()
                for place, packed in served.items()
            }
        return self._points

    def _learn(self, place: _Place) -> RunTime | None:
        key, flavors = place
        record = self._records.get(key)
        known = record.runs if record else self._pools.get(key, {})
        # In order, so that the same runs always come to the very same estimate.
        elsewhere = tuple(known[other] for other in sorted(known) if other != flavors)
        runs = known.get(flavors, b"")
        learned = _learned(runs, elsewhere)
        said = record.said.get(flavors) if record else None
        if learned is None or not said:
            return learned
        compared = ratio_to_said(unpack_runs(runs), unpack_runs(said))
        return learned if compared is None else replace(learned, of_said=compared)

    def _pool(self, before: ClassRecord | None, after: ClassRecord) -> None:
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
                self._stale.update(dict.fromkeys((after.coarse, place) for place in pool))

    def _leave(self, record: ClassRecord | None) -> None:
        if record is None or not record.coarse:
            return
        self._members[record.coarse] -= 1
        if not self._members[record.coarse]:
            del self._members[record.coarse]
            self._drop_estimates(record.coarse, self._pools.pop(record.coarse, {}))

    def _forget(self) -> None:
        """Forget the oldest records of the home that has the most: no home crowds out another."""
        most = len(self._records) - self._most + self._most // _FORGOTTEN_AT_ONCE
        ones = dict.fromkeys(self._records, 1)
        for key in tuple(islice(crowded_out(ones, self._records), most)):
            home = home_of(key)
            record = self._records.pop(key)
            self._floors[home] = max(self._floors.get(home, -1), record.last)
            self._changed.add(key)
            self._drop_estimates(key, record.runs)
            if key in self._uses:
                self._measured.add(key)
            if record.served:
                self._served.add(key)
            self.delays.forget(key, record)
            if not is_of_queue(key):
                self.interruptions.take(record, None)
            self._leave(record)

    def _drop_estimates(self, key: str, flavors: Iterable[str]) -> None:
        # Estimated again from nothing, they disappear.
        self._stale.update(dict.fromkeys((key, place) for place in flavors))


@lru_cache
def _learned(runs: Packed, elsewhere: tuple[Packed, ...]) -> RunTime | None:
    """Estimate runs, beside the class's runs in other places.

    Most coarse classes have one class, and are estimated after it from the same runs.
    """
    return estimate(
        unpack_runs(runs), prior_sigma=spread_of(unpack_runs(packed) for packed in elsewhere)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    records: Mapping[str, ClassRecord]
    estimates: Estimates
    refusals: Mapping[Refusal, float]
    """When each ends, in seconds since 1970."""
    starts: Mapping[str, RunTime] = field(default_factory=dict)
    """Flavors to how long pods take to be ready there."""
    dispatches: Mapping[str, RunTime] = field(default_factory=dict)
    """ClusterQueue to how long its AdmissionChecks take."""
    uses: Mapping[str, DeviceUse] = field(default_factory=dict)
    """Class to what its runs use of devices."""
    points: Mapping[tuple[str, str], Packed] = field(default_factory=dict)
    """(class, place) to what services did there."""


NOTHING: Final = Learned(records={}, estimates={}, refusals={})


def remembered(runs: RunTimeLearner, policies: tuple[FallbackPolicy, ...], unix: float) -> Learned:
    """Return all that is known at *unix*, in seconds since 1970."""
    failing = Failing()
    failing.step(runs.records, runs.records, policies, unix)
    starts, dispatches = runs.delays.starts(None), runs.delays.dispatches
    passed = {name: estimate(unpack_runs(packed)) for name, packed in dispatches.items()}
    return Learned(
        records=runs.records,
        estimates=runs.estimates(None),
        refusals=dict(failing.ends),
        starts={flavors: run_time for (key, flavors), run_time in starts.items() if key == OF_ALL},
        dispatches={name: run_time for name, run_time in passed.items() if run_time is not None},
        uses=runs.uses(),
        points=runs.points(),
    )
