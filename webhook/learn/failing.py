"""The classes that keep failing in an option, kept up to date class by class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from webhook.learn.keeps_failing import refused
from webhook.learn.run_records import Record
from webhook.model.policy.fallback_policy import FallbackPolicy

Refusal: TypeAlias = tuple[str, str, str]
"""(class, policy, option)"""


class Failing:
    def __init__(self) -> None:
        self._policies: tuple[FallbackPolicy, ...] = ()
        self._ends: dict[Refusal, float] = {}
        """When each ends, in seconds since 1970."""
        self._found: frozenset[Refusal] = frozenset()

    @property
    def ends(self) -> Mapping[Refusal, float]:
        """When each refusal ends, in seconds since 1970, as of the last look."""
        return self._ends

    def look(
        self,
        records: Mapping[str, Record],
        changed: Iterable[str],
        policies: tuple[FallbackPolicy, ...],
        unix: float,
    ) -> frozenset[Refusal]:
        """Say what is refused at *unix*; the same object as before where that has not changed.

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
            ends.update(self._of(key, records[key], unix))
        self._ends = ends
        if ends.keys() != self._found:
            self._found = frozenset(ends)
        return self._found

    def _of(self, key: str, record: Record, unix: float) -> Iterable[tuple[Refusal, float]]:
        for policy in self._policies:
            for option, end in refused(record, policy, unix):
                yield (key, policy.name, option), end
