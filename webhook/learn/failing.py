"""Options that classes are refused for a day, because Jobs of them keep failing there.

And how often what runs on given flavors is interrupted, as on spot capacity, by evictions seen.
What did not change is the same object afterwards, so that only changes are published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import TypeAlias

from webhook.learn.run_records import (
    FAILURES_THAT_TELL,
    ClassRecord,
    Run,
    unpack_outcomes,
    unpack_runs,
)
from webhook.model.costs.prices import HOUR, SeenInterruptions
from webhook.model.forecasts import AT_LEVEL, IN_CLUSTER
from webhook.model.policy.fallback_policy import Accelerator, FallbackPolicy

REFUSED_SECONDS = 86_400.0
"""Duration of a refusal: from the last failure, and at most from the last success in the first
option."""
_AS_SUBMITTED = ("", "")


def refused(
    record: ClassRecord, policy: FallbackPolicy, unix: float
) -> Iterator[tuple[str, float]]:
    """Yield the options that a class is refused, each with the end of that in seconds since 1970.

    It failed there at least three times and never succeeded under the policy as it is now, while
    Jobs of the class succeed in the first option, or as they were submitted. What replaces devices
    may be too small for all that ever came, so there nothing has to have succeeded elsewhere.
    """
    first, *others = policy.spec.options
    elsewhere = _last_success(record, policy, first.name) + REFUSED_SECONDS
    for option in others:
        ends = inf if option.adaptation.accelerator is Accelerator.REPLACE else elsewhere
        outcomes = [
            outcome
            for outcome in _outcomes(record, (policy.name, option.name))
            if outcome.generation == policy.generation
        ]
        failed = [outcome.finished for outcome in outcomes if not outcome.succeeded]
        if len(failed) < FAILURES_THAT_TELL or len(failed) < len(outcomes):
            continue
        until = min(max(failed) + REFUSED_SECONDS, ends)
        if unix < until:
            yield option.name, until


def _last_success(record: ClassRecord, policy: FallbackPolicy, first: str) -> float:
    places = (_AS_SUBMITTED, (policy.name, first))
    ends = [
        outcome.finished
        for place in places
        for outcome in _outcomes(record, place)
        if outcome.succeeded
    ]
    return max(ends, default=-REFUSED_SECONDS)


def _outcomes(record: ClassRecord, place: tuple[str, str]) -> tuple[Run, ...]:
    return unpack_outcomes(record.outcomes.get(place, b""))


Refusal: TypeAlias = tuple[str, str, str]
"""(class, policy, option)"""


class Failing:
    def __init__(self) -> None:
        self._policies: tuple[FallbackPolicy, ...] = ()
        self._ends: dict[Refusal, float] = {}
        """When each ends, in seconds since 1970."""
        self._published: frozenset[Refusal] = frozenset()

    @property
    def ends(self) -> Mapping[Refusal, float]:
        """Refusal to its end, in seconds since 1970, as of the last ``step``."""
        return self._ends

    def step(
        self,
        records: Mapping[str, ClassRecord],
        changed: Iterable[str],
        policies: tuple[FallbackPolicy, ...],
        unix: float,
    ) -> frozenset[Refusal]:
        """Return what is refused at *unix*; the same object as before if that has not changed.

        *changed* are the classes whose records have changed since the last call.
        """
        if policies is not self._policies:
            self._policies, changed = policies, {*records, *(key for key, _, _ in self._ends)}
        changed = frozenset(changed)
        ends = {
            refusal: end
            for refusal, end in self._ends.items()
            if end > unix and refusal[0] not in changed
        }
        for key in changed & records.keys():
            for policy in self._policies:
                for option, end in refused(records[key], policy, unix):
                    ends[key, policy.name, option] = end
        self._ends = ends
        if ends.keys() != self._published:
            self._published = frozenset(ends)
        return self._published


class Interruptions:
    """Sums over all classes, by flavor; kept up to date record by record.

    Preemption is no interruption: it is between Jobs, and forecast by itself.
    """

    def __init__(self) -> None:
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        """Flavor to interruptions and hours."""
        self._published: Mapping[str, SeenInterruptions] = {}
        self._is_changed = False

    def take(self, before: ClassRecord | None, after: ClassRecord | None) -> None:
        """Count a record instead of what it was before; None: there is none."""
        told = [(each.runs, each.evicted) for each in (before, after) if each is not None]
        if len(told) == 2 and told[0] == told[1]:  # noqa: PLR2004 - both
            return
        for record, sign in ((before, -1), (after, 1)):
            for flavors, count, hours in _seen(record) if record is not None else ():
                for flavor in flavors.split(","):
                    self._sums[flavor][0] += sign * count
                    self._sums[flavor][1] += sign * hours
        self._is_changed = True

    def seen(self) -> Mapping[str, SeenInterruptions]:
        """Return what was seen by flavor; the same mapping as before if nothing has changed."""
        if self._is_changed:
            self._is_changed = False
            self._published = {
                flavor: SeenInterruptions(round(count), round(hours, 1))
                for flavor, (count, hours) in self._sums.items()
                if hours > 0
            }
        return self._published


def _seen(record: ClassRecord) -> Iterable[tuple[str, int, float]]:
    """Yield flavors, with interruptions and hours of the runs that are kept of them."""
    for flavors, packed in record.runs.items():
        # The same runs, told apart by where they were.
        if IN_CLUSTER in flavors or AT_LEVEL in flavors:
            continue
        runs = unpack_runs(packed)
        kept = {(run.finished, run.uid) for run in runs}
        evicted = unpack_runs(record.evicted.get(flavors, b""))
        count = sum(run.seconds for run in evicted if (run.finished, run.uid) in kept)
        yield flavors, count, sum(run.seconds for run in runs) / HOUR
