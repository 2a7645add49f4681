"""Turns state, forecasts and decisions into the view of one moment, or a user's part of it.

What the controller published of the journal is added: decisions made elsewhere, and gains. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, NamedTuple

from webhook.api import lease
from webhook.api.resources import KUEUE_GROUP, POLICIES
from webhook.console.access import Rights
from webhook.console.decisions import KEPT
from webhook.console.view import (
    NOTHING,
    Cell,
    Judged,
    Queue,
    ShownCluster,
    View,
)
from webhook.hindsight.savings_record import FORECASTS, Gained, SavingsRecord, ShownDecision, added
from webhook.jobs import referred
from webhook.kueue import quota
from webhook.kueue.quota import UsageTree
from webhook.model.policy.fallback_policy import GROUP, Mode
from webhook.model.quantity import FlavorResource
from webhook.model.queues import ClusterQueue, Held, StopPolicy
from webhook.state.snapshot import Snapshot
from webhook.state.waiting_line import WaitingWorkload

SAME_SECONDS: Final = 3.0
"""Longest time between a decision and its Job's creation: two clocks, both in whole seconds."""


def merged(known: Sequence[ShownDecision], record: SavingsRecord) -> tuple[ShownDecision, ...]:
    """Return the *known* decisions and those of other Jobs from the record; the newest first.

    Jobs are compared by how their names begin: a line of the log has only the prefix of a generated
    name.
    """
    waiting: defaultdict[tuple[str, str], list[ShownDecision]] = defaultdict(list)
    for decision in known:
        if decision.recorded.mode != Mode.ENFORCE:
            waiting[decision.namespace, decision.recorded.policy].append(decision)
    added = []
    for past in sorted(record.decisions, key=lambda each: (each.at, each.recorded.id)):
        same = waiting[past.namespace, past.recorded.policy]
        matching = next(
            (
                decision
                for decision in same
                if past.job.startswith(decision.job) and abs(past.at - decision.at) <= SAME_SECONDS
            ),
            None,
        )
        if matching is None:
            added.append(past)
        else:
            same.remove(matching)
    together = sorted((*known, *added), key=lambda shown: (-shown.at, shown.recorded.id))
    return tuple(together[:KEPT])


def with_sums(record: SavingsRecord, decisions: Iterable[ShownDecision]) -> dict[str, Any]:
    """Return what a view says of savings: a record and its sums.

    What decisions that were carried out have gained is told by their forecasts as long as they were
    not replayed.
    """
    enforced = [gain for gain in record.gained if gain.mode == Mode.ENFORCE]
    promised = [gain for gain in record.gained if gain.mode != Mode.ENFORCE]
    return {
        "published": record,
        "savings": _summed(enforced) or savings(decisions),
        "would_save": _summed(promised),
    }


def _summed(gains: Sequence[Gained]) -> Gained | None:
    return added(gains, since=min(gain.since for gain in gains)) if gains else None


_NOTHING = Held()


class Leads(NamedTuple):
    """Who holds the controllers' Lease, and until when, in seconds since 1970, if not renewed."""

    holder: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleInput:
    """Everything that is known at one moment."""

    now: float
    """On the clock of ``Snapshot.as_of``."""
    unix: float
    """The same instant, in seconds since 1970."""
    max_age: float
    counted: Snapshot | None
    """None: nothing is known of the cluster yet."""
    decisions: tuple[ShownDecision, ...] = ()
    published: SavingsRecord | None = None
    """What the leading controller last published of the journal; None: nothing yet."""
    judged: Mapping[str, Judged]
    """Policy to its conditions."""
    leads: Leads | None = None
    workers: Mapping[str, Snapshot | None] = field(default_factory=dict)
    """Each watched worker cluster's state; None: not known yet."""


def collect(known: ConsoleInput) -> View:
    counted = known.counted
    age = _age(counted, known.now)
    workers = sorted(known.workers.items())
    snapshot = Snapshot() if counted is None else counted
    record = known.published or NOTHING
    decisions = merged(known.decisions, record)
    active = tuple(snapshot.fallback.policies)
    names = [policy.name for policy in active]
    return View(
        at=known.unix,
        age=age,
        is_stale=age > known.max_age,
        off=_off(snapshot),
        off_in=()
        if snapshot.fallback.off is None
        else tuple(sorted(snapshot.fallback.off.namespaces)),
        leader=_leader(known),
        queues=tuple(
            queue
            for name, state in (("", counted), *workers)
            if state is not None
            for queue in _queues(state, known, name)
        ),
        policies=active,
        judged={name: known.judged[name] for name in names if name in known.judged},
        decisions=decisions,
        clusters=tuple(_cluster(name, state, known) for name, state in workers),
        **with_sums(replace(record, decisions=()), decisions),
    )


def with_waiting(view: View, waiting: tuple[WaitingWorkload, ...] | None) -> View:
    """Return a view with who waits; a ClusterQueue waits as long as the last one in it.

    Where a policy has its ClusterQueue forecast anyway, that forecast stays.
    """
    if waiting is None:
        return view
    last: defaultdict[str, float] = defaultdict(float)
    for each in waiting:
        last[each.cluster_queue] = max(last[each.cluster_queue], each.start.seconds)
    queues = (
        replace(queue, waits=last[queue.name])
        if queue.waits is None and not queue.cluster and queue.name in last
        else queue
        for queue in view.queues
    )
    return replace(view, waiting=waiting, queues=tuple(queues))


def restricted(view: View, rights: Rights) -> View:
    """Return the part of a view that a user with *rights* may see, with its sums computed again.

    Whoever may get a ClusterQueue here may see those of the same name in all worker clusters.
    """
    queues = rights.may_get(
        (queue.name for queue in view.queues), group=KUEUE_GROUP, resource="clusterqueues"
    )
    named = _seen_policies(view, rights)
    kept = tuple(
        _with_seen_places([queue for queue in view.queues if queue.name in queues], rights)
    )
    # A user who sees figures of a cluster also sees their age.
    clusters = seen_clusters(view, rights) | {queue.cluster for queue in kept}
    gained, hours = view.published.gained, view.published.hours
    named_in = (row.namespace for rows in (gained, hours) for row in rows)
    namespaces = rights.may_list_jobs(named_in)
    may_know_leader = rights.may_get([lease.NAME], group="coordination.k8s.io", resource="leases")
    decisions = seen_decisions(view, rights)
    published = replace(
        view.published,
        gained=tuple(gain for gain in gained if gain.namespace in namespaces),
        hours=tuple(hour for hour in hours if hour.namespace in namespaces),
    )
    return replace(
        view,
        **_seen_off(view, rights),
        leader=view.leader if may_know_leader or not view.leader else "a replica",
        queues=kept,
        policies=tuple(policy for policy in view.policies if policy.name in named),
        judged={name: judged for name, judged in view.judged.items() if name in named},
        decisions=decisions,
        clusters=tuple(cluster for cluster in view.clusters if cluster.name in clusters),
        waiting=seen_waiting(view, rights),
        **with_sums(published, decisions),
    )


def _seen_policies(view: View, rights: Rights) -> frozenset[str]:
    """Return the names of the policies that a user may get, or of a namespace whose Jobs they list.

    What a namespace's own policies say stands on its Jobs, too.
    """
    namespaces = {policy.name: policy.namespace for policy in view.policies}
    for_all = (name for name, namespace in namespaces.items() if not namespace)
    seen = rights.may_list_jobs(filter(None, namespaces.values()))
    own = {name for name, namespace in namespaces.items() if namespace in seen}
    return rights.may_get(for_all, group=GROUP, resource=POLICIES) | own


def _with_seen_places(queues: Sequence[Queue], rights: Rights) -> Iterator[Queue]:
    """Yield ClusterQueues with their LocalQueues in namespaces whose Jobs a user may list."""
    places = {place: place.partition("/")[0] for queue in queues for place in queue.local_queues}
    seen = rights.may_list_jobs(sorted(set(places.values())))
    for queue in queues:
        named = tuple(place for place in queue.local_queues if places[place] in seen)
        yield replace(queue, local_queues=named)


def shortened(view: View) -> View:
    """Return a view with only so many of those who wait as decisions are kept."""
    return view if view.waiting is None else replace(view, waiting=view.waiting[:KEPT])


def seen_waiting(view: View, rights: Rights) -> tuple[WaitingWorkload, ...] | None:
    """Return who waits of the Jobs that a user may list, the first to start first.

    None: it is not known who waits. A Workload that belongs to no Job is shown to nobody.
    """
    if view.waiting is None:
        return None
    named_in: defaultdict[str, list[str]] = defaultdict(list)
    kinds = [_kind_of(each) for each in view.waiting]
    for kind, each in zip(kinds, view.waiting, strict=True):
        named_in[kind].append(each.workload.namespace)
    seen = {kind: rights.may_list_jobs(named, kind) for kind, named in named_in.items() if kind}
    return tuple(
        sorted(
            (
                each
                for kind, each in zip(kinds, view.waiting, strict=True)
                if each.workload.namespace in seen.get(kind, ())
            ),
            key=lambda each: (each.start.seconds, each.cluster_queue, each.position),
        )
    )


def _kind_of(waiting: WaitingWorkload) -> str:
    """Return the kind of its Job; empty: it belongs to none."""
    return referred(waiting.workload.job)[0].kind if waiting.workload.job else ""


def seen_decisions(view: View, rights: Rights) -> tuple[ShownDecision, ...]:
    """Return the decisions on Jobs of kinds that a user may list in their namespaces."""
    named_in: defaultdict[str, list[str]] = defaultdict(list)
    for decision in view.decisions:
        named_in[decision.kind].append(decision.namespace)
    seen = {kind: rights.may_list_jobs(named, kind) for kind, named in named_in.items()}
    return tuple(shown for shown in view.decisions if shown.namespace in seen[shown.kind])


def seen_clusters(view: View, rights: Rights) -> frozenset[str]:
    """Return the worker clusters that a user may know of."""
    names = (cluster.name for cluster in view.clusters)
    return rights.may_get(names, group=KUEUE_GROUP, resource="multikueueclusters")


def savings(decisions: Iterable[ShownDecision]) -> Gained | None:
    """Return the gain of decisions that were carried out, by their forecasts; None: unknown.

    A Job's first option is the one that it would have had without a policy.
    """
    gains: list[tuple[ShownDecision, float]] = []
    for decision in decisions:
        options = {option.name: option.finishes_in for option in decision.recorded.options}
        first = next(iter(options.values()), None)
        done = options.get(decision.option)
        if decision.recorded.mode == Mode.ENFORCE and first is not None and done is not None:
            gains.append((decision, first - done))
    if not gains:
        return None
    return Gained(
        since=min(decision.at for decision, _ in gains),
        jobs=len(gains),
        moved=sum(decision.option != decision.recorded.options[0].name for decision, _ in gains),
        gained_seconds=sum(max(0.0, gain) for _, gain in gains),
        lost_seconds=sum(max(0.0, -gain) for _, gain in gains),
        slower=sum(gain < 0 for _, gain in gains),
        rests=FORECASTS,
    )


def _age(counted: Snapshot | None, now: float) -> float:
    return inf if counted is None else max(0.0, now - counted.as_of)


def _cluster(name: str, counted: Snapshot | None, known: ConsoleInput) -> ShownCluster:
    age = _age(counted, known.now)
    return ShownCluster(name=name, age=age, is_stale=age > known.max_age)


def _leader(known: ConsoleInput) -> str:
    leads = known.leads
    return leads.holder if leads is not None and known.unix < leads.until else ""


def _off(snapshot: Snapshot) -> str:
    if snapshot.fallback.off is None:
        return ""
    names = sorted(snapshot.fallback.off.namespaces)
    return _off_in(names) if names else "all new decisions and moves"


def _off_in(names: Iterable[str]) -> str:
    return f"new decisions and moves in {', '.join(names)}"


def _seen_off(view: View, rights: Rights) -> dict[str, Any]:
    """Return the off switch, with only the namespaces in which the user may list Jobs."""
    if not view.off_in:
        return {}
    seen = rights.may_list_jobs(view.off_in)
    names = tuple(name for name in view.off_in if name in seen)
    return {"off": _off_in(names) if names else "", "off_in": names}


def _queues(snapshot: Snapshot, known: ConsoleInput, cluster: str) -> Iterator[Queue]:
    idle = quota.plant(snapshot.setup.cluster_queues, snapshot.setup.cohorts)
    forest = idle.charged({name: held.usage for name, held in snapshot.workloads.held.items()})
    places: defaultdict[str, list[str]] = defaultdict(list)
    for (namespace, name), local_queue in sorted(snapshot.setup.local_queues.items()):
        places[local_queue.cluster_queue].append(f"{namespace}/{name}")
    for name in sorted(snapshot.setup.cluster_queues):
        queue = _queue(snapshot.setup.cluster_queues[name], snapshot, forest.tree(name), known.now)
        yield replace(
            queue,
            cluster=cluster,
            local_queues=tuple(places[name]),
        )


def _queue(queue: ClusterQueue, snapshot: Snapshot, tree: UsageTree | None, now: float) -> Queue:
    held = snapshot.workloads.held.get(queue.name, _NOTHING)
    admitted = snapshot.workloads.admitted.get(queue.name, _NOTHING)
    competing = snapshot.workloads.competing.get(queue.name, ())
    forecast, trouble = snapshot.forecasts.get(queue.name), _trouble(queue, tree)
    return Queue(
        name=queue.name,
        cohort=queue.cohort,
        trouble=trouble,
        pending=held.pending + sum(arrival.count for arrival in competing),
        reserving=held.reserving,
        admitted=admitted.reserving,
        waits=None if forecast is None else forecast.waits(queue.name, now),
        cells=tuple(
            Cell(
                flavor=flavor,
                resource=resource,
                nominal=cell.nominal,
                reserved=(reserved := held.usage.get((flavor, resource), 0)),
                borrowed=max(0, reserved - cell.nominal),
                available=0 if trouble else _available(tree, queue.name, (flavor, resource)),
                used=admitted.usage.get((flavor, resource), 0),
            )
            for group in queue.groups
            for (flavor, resource), cell in group.quotas.items()
        ),
    )


def _available(tree: UsageTree | None, cluster_queue: str, cell: FlavorResource) -> int:
    if tree is None or cell not in tree.indices:
        return 0
    return max(0, tree.available(tree.leaves[cluster_queue], tree.indices[cell]))


def _trouble(queue: ClusterQueue, tree: UsageTree | None) -> str:
    if queue.stop_policy is not StopPolicy.NONE:
        return f"stopped ({queue.stop_policy})"
    if not queue.active:
        return queue.inactive_because or "inactive"
    return "its cohorts form a cycle" if tree is None else ""
