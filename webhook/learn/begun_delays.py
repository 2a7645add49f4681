"""How long runs took to begin: pods to be ready on flavors, AdmissionChecks in ClusterQueues.

Kept up to date record by record, like ``run_times``; of each place the newest of all classes are
looked at together, as nodes and images come to all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from webhook.learn.learning import learned
from webhook.learn.run_records import Packed, Record, merged_begun, unpack_runs
from webhook.model.forecasts import Estimates, RunTime

OF_ALL: Final = ""
"""Stands for the class where all classes are meant."""
MOST_PLACES: Final = 2_000
"""Flavors, and ClusterQueues; beyond so many the ones that came first are forgotten."""

_Place: TypeAlias = tuple[str, str]
"""(class or ``OF_ALL``, flavors)"""


class Delays:
    def __init__(self, records: Mapping[str, Record]) -> None:
        """Learn of each class what *records* say of it."""
        self._records = records
        self._starts: dict[str, Packed] = {}
        """Flavors to the newest of all classes."""
        self._dispatches: dict[str, Packed] = {}
        self._published: Estimates = {}
        self._stale: dict[_Place, None] = {}
        self._dispatched: set[str] = set()

    def take(self, key: str, before: Record | None, after: Record) -> None:
        """Take over how the runs of one class began."""
        known = before or Record()
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

    def forget(self, key: str, record: Record) -> None:
        """Forget a class; what it told of the places stays."""
        self._stale.update(dict.fromkeys((key, flavors) for flavors in record.starts))

    def starts(self, at_once: int | None) -> Estimates:
        """Say how long pods take to be ready; the same mapping as before if that is so."""
        taken = list(self._stale)[:at_once]
        for place in taken:
            del self._stale[place]
        self._published = renewed(self._published, {place: self._learn(place) for place in taken})
        return self._published

    @property
    def dispatches(self) -> Mapping[str, Packed]:
        """ClusterQueue to how long its AdmissionChecks took of late."""
        return self._dispatches

    def take_dispatched(self) -> frozenset[str]:
        """Name the ClusterQueues of which more is known than at the last call."""
        taken = frozenset(self._dispatched)
        self._dispatched.clear()
        return taken

    def _learn(self, place: _Place) -> RunTime | None:
        key, flavors = place
        record = self._records.get(key)
        known = self._starts if key == OF_ALL else record.starts if record else {}
        return learned(unpack_runs(known.get(flavors, b"")))


def renewed(before: Estimates, learnt: Mapping[_Place, RunTime | None]) -> Estimates:
    """Take over what is learnt, None: nothing any more; *before* itself where nothing differs."""
    changed = {place: each for place, each in learnt.items() if each != before.get(place)}
    if not changed:
        return before
    # One mapping, and not one to publish beside one to work on: of 10,000 classes that counts.
    found = {**before, **changed}
    return {place: each for place, each in found.items() if each is not None}


def _limit(places: dict[str, Packed]) -> None:
    while len(places) > MOST_PLACES:
        del places[next(iter(places))]
