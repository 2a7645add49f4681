"""The view: what the console shows of one moment, as plain values, for the page and JSON alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from math import isfinite
from typing import Any, Final, NamedTuple

from pydantic.alias_generators import to_camel

from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import (
    FORECASTS,
    Gained,
    SavingsRecord,
    ShownDecision,
    rounded,
)
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.quantity import CPU
from webhook.state.waiting_line import WaitingWorkload

NOTHING: Final = SavingsRecord(as_of=0.0)
"""In place of what was published, as long as no journal was replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One flavor's amounts of one resource in a ClusterQueue, in the units of ``Quantity``."""

    flavor: str
    resource: str
    nominal: int
    reserved: int
    """Usage of Workloads with quota reserved, admitted or not."""
    borrowed: int
    """Amount by which *reserved* exceeds *nominal*."""
    available: int
    """What a new Workload could reserve now, borrowing included; 0 if the queue admits none."""
    used: int = 0
    """The part of *reserved* that admitted Workloads use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A ClusterQueue."""

    name: str
    cohort: str
    trouble: str
    """Why it admits no Workload; empty: it does."""
    pending: int
    reserving: int
    admitted: int
    waits: float | None
    """Seconds until all pending Workloads would have started; None: no forecast."""
    cells: tuple[Cell, ...]
    cluster: str = ""
    """The worker cluster that it is in; empty: this one."""
    local_queues: tuple[str, ...] = ()
    """``namespace/name`` of those that point to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCluster:
    """A watched worker cluster."""

    name: str
    age: float
    """Age of its state, in seconds; infinite before the first one."""
    is_stale: bool


class Judged(NamedTuple):
    """The conditions that the controller wrote on a policy."""

    is_ready: bool
    message: str
    unreviewed: str = ""
    """How many of its Jobs were created without a review of late; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    at: float
    """Seconds since 1970."""
    age: float
    """Age of the state, in seconds; infinite before the first one."""
    is_stale: bool
    off: str
    """What the off switch stops; empty: nothing."""
    leader: str
    """Holder of the controller's Lease; empty: not known, or none."""
    queues: tuple[Queue, ...]
    """Those of this cluster, then those of each worker cluster."""
    policies: tuple[FallbackPolicy, ...]
    decisions: tuple[ShownDecision, ...]
    """The newest first."""
    savings: Gained | None
    """Gain of decisions that were carried out; None: unknown."""
    judged: Mapping[str, Judged] = field(default_factory=dict)
    """By the names of policies; one that is not there no controller has judged yet."""
    off_in: tuple[str, ...] = ()
    """The namespaces that *off* names."""
    clusters: tuple[ShownCluster, ...] = ()
    would_save: Gained | None = None
    """Gain that those of policies that observe or advise would have had; None: unknown."""
    published: SavingsRecord = NOTHING
    """What the leading controller last published of the journal; its decisions are among those
    above."""
    waiting: tuple[WaitingWorkload, ...] | None = None
    """Those that wait in this cluster, by ClusterQueue and position; None: not known."""


def amount(value: int, resource: str) -> float:
    """Return an amount in base units: cpu in cores, everything else in its own unit."""
    if resource != CPU or value % 1000 == 0:
        return value // 1000 if resource == CPU else value
    return value / 1000


_OF_OPTIONS: Final = (
    *("name", "queue", "starts_in", "runs", "finishes_in", "rejected", "passed_over"),
    *("pending", "cluster"),
)
"""What is shown of an option."""


def view_json(view: View) -> dict[str, Any]:
    published = view.published
    return {
        **_of_fields(view, ("at", "age", "is_stale", "off", "leader", "queues")),
        "policies": [_policy_json(policy, view) for policy in view.policies],
        **_of_fields(view, ("decisions",)),
        "savings": _savings_json(view.savings),
        **_of_fields(view, ("off_in", "clusters")),
        "wouldSave": _savings_json(view.would_save),
        "gained": [_of_a_policy(gain) for gain in published.gained],
        "hours": [_of_an_hour(gain) for gain in published.hours],
        "savingsAsOf": published.as_of or None,
        "currency": published.currency,
        **_of_fields(view, ("waiting",)),
    }


_OF_A_SUM = ("since", "jobs", "moved", "saved_seconds", "slower", "late", "deadlines")


def _savings_json(gain: Gained | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    margin = None if gain.rests == FORECASTS else gain.margin_seconds
    return {**_sums(gain), "rests": gain.rests, "marginSeconds": margin}


def _of_a_policy(gain: Gained) -> dict[str, Any]:
    names = {name: getattr(gain, name) for name in ("policy", "namespace", "mode")}
    return {**names, **_sums(gain), "marginSeconds": gain.margin_seconds}


def _sums(gain: Gained) -> dict[str, Any]:
    return {
        **{to_camel(name): getattr(gain, name) for name in _OF_A_SUM},
        "spent": rounded(gain.spent),
        "saved": rounded(gain.saved),
        "deviceHours": gain.device_hours,
    }


def _of_an_hour(gain: Gained) -> dict[str, Any]:
    return {
        "at": gain.since,
        "policy": gain.policy,
        "namespace": gain.namespace,
        "isEnforced": gain.is_enforced,
        "jobs": gain.jobs,
        "gainedSeconds": gain.gained_seconds,
        "lostSeconds": gain.lost_seconds,
    }


def plain(value: Any) -> Any:
    """Convert values to what JSON can hold; infinity becomes null."""
    if type(value) in _WRITTEN_BY:
        return _WRITTEN_BY[type(value)](value)
    if is_dataclass(value):
        return _of_fields(value, [named.name for named in fields(value)])
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def _decision_json(decision: ShownDecision) -> dict[str, Any]:
    recorded = decision.recorded
    return {
        "id": recorded.id,
        "at": decision.at,
        "namespace": decision.namespace,
        "job": decision.job,
        "policy": recorded.policy,
        "mode": str(recorded.mode),
        "option": decision.option,
        "queue": decision.queue,
        "reason": recorded.reason,
        "options": plain(recorded.options),
        "moves": [
            {"at": move.unix, "option": move.option, "reason": move.reason}
            for move in decision.moves
        ],
        "isReplayed": decision.is_replayed,
        "kind": decision.kind,
        "isUnverified": decision.is_unverified,
    }


def _policy_json(policy: FallbackPolicy, view: View) -> dict[str, Any]:
    judged = view.judged.get(policy.name)
    taken = decided(policy, view.decisions)
    return {
        "name": policy.name,
        "mode": str(policy.spec.mode),
        "ready": judged and judged.is_ready,
        "message": judged.message if judged else "",
        "decided": [{"option": option, "count": count} for option, count in taken],
        "queues": list(ways_of(policy)),
        "unreviewed": judged.unreviewed if judged else "",
    }


def decided(
    policy: FallbackPolicy, decisions: Iterable[ShownDecision]
) -> tuple[tuple[str, int], ...]:
    """Return options of a policy in its order, and how many decisions took each; "": left alone."""
    taken = Counter(each.option for each in decisions if each.recorded.policy == policy.name)
    names = (*(option.name for option in policy.spec.options), "")
    return tuple((name, taken[name]) for name in names)


def ways_of(policy: FallbackPolicy) -> tuple[str, ...]:
    """Return the names of the LocalQueues or ClusterQueues of a policy's options."""
    return tuple(option.queue or option.cluster_queue for option in policy.spec.options)


def cell_json(cell: Cell) -> dict[str, Any]:
    amounts = {
        "available": cell.available,
        "quota": cell.nominal,
        "reserved": cell.reserved,
        "used": cell.used,
        "borrowed": cell.borrowed,
    }
    written = {name: amount(value, cell.resource) for name, value in amounts.items()}
    return {"flavor": cell.flavor, "resource": cell.resource, **written}


def _of_fields(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {to_camel(name): plain(getattr(value, name)) for name in names}


_WRITTEN_BY: Final[Mapping[type, Callable[[Any], dict[str, Any]]]] = {
    Cell: cell_json,
    RecordedOption: partial(_of_fields, names=_OF_OPTIONS),
    ShownDecision: _decision_json,
    WaitingWorkload: WaitingWorkload.figures,
}
