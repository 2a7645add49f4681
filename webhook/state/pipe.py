"""The updates that the observer sends to its server over their pipe.

They are pickled, because both ends are one program of one version and the pipe is theirs alone: a
snapshot is read in a tenth of a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.server.tls import Certificates
from webhook.state.snapshot import FIELDS, Snapshot, updated, value_of
from webhook.state.workload import SeenWorkload

_CARRIED_APART = "as_of"
_AS_DELTAS = frozenset(
    {
        *("held", "reserving", "consumed", "forecasts"),
        *("run_times", "start_delays", "dispatches", "obstacles", "device_uses"),
        *("interruptions", "served"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What has changed since the last update; the first one of an observer is complete."""

    changed: Mapping[str, Any] = field(default_factory=dict)
    """One of ``snapshot.FIELDS`` to its new value; of what queues hold, only what has changed."""
    seen: tuple[SeenWorkload, ...] = ()
    """Workloads that this update is the first to count."""
    reserved: tuple[SeenWorkload, ...] = ()
    """Workloads with AdmissionChecks that this update is the first to have with quota reserved."""
    profiled: tuple[SeenWorkload, ...] = ()
    """Workloads that the forecasts of this update are the first to contain."""
    as_of: float = 0.0
    """Time of the oldest part, by the monotonic clock (one for all processes of a machine)."""
    forecasts_as_of: float = 0.0
    """The same for what the forecasts contain."""
    synced: bool = False
    waiting: tuple[str, ...] = ()
    """Required kinds that cannot be listed, or have not been yet."""
    ages: Mapping[str, float] = field(default_factory=dict)
    """Kind to seconds since its watch last proved to be alive."""
    relists: Mapping[str, int] = field(default_factory=dict)
    """Kind to the number of times it was listed so far."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """Kind to the number of objects that cannot be read."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Part of the observer's loop to how often it has failed."""
    clock_ahead: float = 0.0
    """Seconds by which this machine's clock is ahead of the API server's; negative: behind."""
    leaderless_seconds: float = 0.0
    """For how long no controller was seen to lead; only where controllers nominate clusters."""
    certificates: Certificates | None = None
    """None: unchanged, or renewed by another program."""
    clusters: Mapping[str, Update] = field(default_factory=dict)
    """Updates of worker clusters; those without news are left out."""
    watched_clusters: tuple[str, ...] | None = None
    """All worker clusters that are watched; None: not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What has changed in a mapping: an event in one queue must not carry all the others."""

    put: Mapping[Any, Any]
    gone: tuple[Any, ...] = ()

    def applied(self, before: Mapping[Any, Any]) -> Mapping[Any, Any]:
        after = {**before, **self.put}
        for name in self.gone:
            after.pop(name, None)
        return after


def changes(before: Snapshot | None, after: Snapshot) -> dict[str, Any]:
    """Return the fields of *after* that are other objects than in *before*; None: all of them."""
    names = (name for name in FIELDS if name != _CARRIED_APART)
    changed = {
        name: value_of(after, name)
        for name in names
        if before is None or value_of(after, name) is not value_of(before, name)
    }
    if before is not None:
        for name in _AS_DELTAS & changed.keys():
            changed[name] = _delta(value_of(before, name), changed[name])
    return changed


def apply_update(snapshot: Snapshot, update: Update) -> Snapshot:
    """Return the snapshot with an update applied.

    ``as_of`` moves only if the observer is synced: one that has just been started makes nothing
    fresher.
    """
    changed: dict[str, Any] = {
        name: value.applied(value_of(snapshot, name)) if isinstance(value, Delta) else value
        for name, value in update.changed.items()
    }
    return updated(snapshot, as_of=update.as_of if update.synced else snapshot.as_of, **changed)


def _delta(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Delta:
    # Identity first: comparing thousands of equal values costs more.
    return Delta(
        put={
            name: value
            for name, value in after.items()
            if (old := before.get(name)) is not value and old != value
        },
        gone=tuple(name for name in before if name not in after),
    )
