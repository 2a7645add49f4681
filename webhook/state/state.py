"""Watch events in, snapshots out: the state of the cluster, counted one Workload at a time.

Pure: the time comes in. Values in a snapshot are never changed afterwards; what did not change
between two snapshots is the same object in both, which is how changes are found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from webhook.api import resources as kinds
from webhook.api.resources import Key, ReadObject
from webhook.cost import learned_serving
from webhook.cost.cluster_prices import PriceCompiler, PriceSources, tells_device
from webhook.cost.congestion import by_queue
from webhook.kueue.preemption import candidates_in
from webhook.kueue.topology_placement import level_of
from webhook.learn.dispatches import Dispatches
from webhook.learn.estimates import AT_ONCE, Learned, RunTimeLearner, remembered
from webhook.learn.failing import Failing
from webhook.learn.job_class import NO_MARK
from webhook.learn.run_records import ClassRecord
from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.learned_service import LearnedServing
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices
from webhook.model.costs.service import Autoscaler
from webhook.model.faults import attempted
from webhook.model.fields import EMPTY
from webhook.model.kueue_support import KueueManager, release_of
from webhook.model.pods import Selector
from webhook.model.policy import fallback_policy
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import (
    Arrival,
    Cohort,
    ConsumedResources,
    Held,
    KueueConfig,
    LimitRangeItem,
    LocalQueue,
    QuotaHolder,
    StopPolicy,
)
from webhook.model.reasons import Obstacle
from webhook.model.topologies import Topology
from webhook.state.kueue_config import are_devices_counted, read_kueue_config, under_gates
from webhook.state.queue_counts import Group, PendingArrivals, QueueContents
from webhook.state.readers import read_by_kind
from webhook.state.snapshot import Snapshot, updated, value_of
from webhook.state.workload import SeenWorkload, Workload
from webhook.state.workloads import Workloads

SHAPES_PER_QUEUE = 64
"""Each costs some tens of microseconds whenever its cohort changes; further shapes only wait."""
_Table: TypeAlias = Mapping[Key, Any]
_Tables: TypeAlias = Mapping[str, _Table]
_Builder: TypeAlias = Callable[[_Tables], Any]
_STATED_VERSION = "kueue_version"
"""The setting of that name has a table, too."""
_COMPARED = frozenset({"local_queues", "topologies", "reviewed_namespaces"})
"""Fields built from objects that change again and again in what is not in the snapshot."""


class State:
    def __init__(
        self, at_once: int | None = AT_ONCE, *, stated_version: str = "", currency: str = ""
    ) -> None:
        """Estimate the run times of *at_once* classes a snapshot; None: of all.

        *stated_version* is Kueue's version where the settings state it, *currency* what money is
        in; empty: it is not known.
        """
        self._at_once = at_once
        self._tables: dict[str, dict[Key, Any]] = {kind: {} for kind in _BUILDERS}
        self._tables[_STATED_VERSION] = {("", ""): stated_version}
        self._changed: set[str] = set()
        self._known: set[str] = set()
        """Kinds that have been listed; the others keep the snapshot's defaults."""
        self._workloads = Workloads()
        self._arrivals = PendingArrivals()
        self._run_times = RunTimeLearner()
        self._points: Mapping[tuple[str, str], bytes] = {}
        self._served: Mapping[tuple[str, str], LearnedServing] = {}
        """What replicas do, by these points."""
        self._failing = Failing()
        self._dispatches = Dispatches()
        self._preemptible: frozenset[str] = frozenset()
        """ClusterQueues in which somebody may be preempted."""
        self._recounted: set[str] = set()
        """ClusterQueues whose Workloads have changed since ``take_recounted``."""
        self._currency = currency
        self._prices = PriceCompiler(currency)
        self._snapshot = Snapshot()
        self._problems: dict[tuple[str, Key], str] = {}
        self._new_problems: list[str] = []

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]]) -> None:
        """Apply a whole list; objects that are not in it were deleted."""
        self.replace_read(kind, tuple(read_by_kind(kind, source) for source in objects))

    def apply(self, kind: str, event_type: str, source: Mapping[str, Any]) -> None:
        """Apply one watch event: ADDED, MODIFIED or DELETED."""
        self.apply_read(kind, event_type, read_by_kind(kind, source))

    def replace_read(self, kind: str, entries: Iterable[ReadObject]) -> None:
        entries = tuple(entries)
        readable = {entry.key: entry.value for entry in entries if entry.value is not None}
        self.note_list(kind, entries)
        if kind == kinds.WORKLOADS:
            self._workloads.replace(readable)
            return
        if kind == kinds.RUN_TIMES:
            self._remember(readable)
            return
        for key in [key for key in self._table(kind) if key not in readable]:
            self._put(kind, key, None)
        for key, value in readable.items():
            self._put(kind, key, value)
        if kind not in self._known:
            self._known.add(kind)
            self._changed.add(kind)

    def apply_read(self, kind: str, event_type: str, entry: ReadObject) -> None:
        value = None if event_type == "DELETED" else entry.value
        self.note_event(kind, event_type, entry)
        if kind == kinds.WORKLOADS:
            self._workloads.put(entry.key, value)
        elif kind == kinds.RUN_TIMES:
            self._remember({entry.key: value or {}})
        else:
            self._put(kind, entry.key, value)

    def snapshot(self, now: float, unix: float) -> Snapshot:
        """Return a snapshot in which only what has changed since the last one is built anew.

        *now* is the instant as of which the state is, by the monotonic clock. *unix* is the same
        instant in seconds since 1970, by which refusals end; at 0 none has.
        """
        fresh: dict[str, Any] = {}
        for kind in self._changed:
            for name, build in _BUILDERS.get(kind, ()):
                built = build(self._tables)
                # A LocalQueue's status must not let all queues count as changed, nor a Node's; nor
                # must a condition that is renewed.
                if name not in _COMPARED or built != value_of(self._snapshot, name):
                    fresh[name] = built
        self._changed.clear()
        built = updated(self._snapshot, as_of=now, **fresh)
        recounted = frozenset(self._workloads.dirty)
        built = self._with_workloads(built)
        built = self._with_runs(built, unix)
        built = self._with_delays(built, recounted, now - unix)
        built = self._with_obstacles(built)
        built = self._with_congestion(self._with_prices(built, unix), unix)
        if (
            fresh
            or built.workloads.held is not self._snapshot.workloads.held
            or built.costs.prices is not self._snapshot.costs.prices
        ):
            built = replace(built, generation=built.generation + 1)
        self._snapshot = built
        return built

    def _with_prices(self, snapshot: Snapshot, unix: float) -> Snapshot:
        sources = PriceSources(
            tariffs=dict(self._of_kind(kinds.TARIFFS)),
            profiles=snapshot.costs.accelerator_profiles,
            flavors=snapshot.setup.flavors,
            node_labels=snapshot.setup.node_labels,
            series=dict(
                entry
                for kind in self._tables
                if kind.startswith(kinds.SERIES)
                for entry in self._of_kind(kind)
            ),
        )
        tariffs, prices = self._prices.compile(sources, unix)
        said = next((t.tariff.printed_in for t in tariffs if t.tariff.printed_in), "")
        currency = self._currency or said
        return updated(snapshot, tariffs=tariffs, prices=prices, currency=currency)

    def _with_obstacles(self, built: Snapshot) -> Snapshot:
        obstacles = self._workloads.obstacles()
        held = self._snapshot.workloads.jobs_on_hold
        if obstacles is not self._snapshot.workloads.obstacles:
            counted = Counter(
                namespace
                for (namespace, _), obstacle in obstacles.items()
                if obstacle is Obstacle.HELD
            )
            # What is equal stays the same object, so that it is not published again.
            held = held if counted == held else dict(counted)
        return updated(built, obstacles=obstacles, jobs_on_hold=held)

    def _with_congestion(self, snapshot: Snapshot, unix: float) -> Snapshot:
        """Add what is scarce; published prices count for a while only."""
        current = by_queue(snapshot.costs.scarcity, snapshot.setup, snapshot.fallback.off, unix)
        if current == snapshot.costs.congestion:
            return snapshot
        return updated(snapshot, congestion=current)

    def _of_kind(self, kind: str) -> Iterator[tuple[str, Any]]:
        return ((name, value) for (_, name), value in self._tables[kind].items())

    def build_anew(self) -> None:
        """Let the next snapshot be built from everything that is known."""
        self._changed |= self._known
        self._workloads.dirty.update(self._workloads.counts_of)

    def learned(self, unix: float) -> Learned:
        """Return what the last snapshot knew of runs, with the refusals at *unix*."""
        return remembered(self._run_times, self._snapshot.fallback.policies, unix)

    def take_seen(self) -> tuple[SeenWorkload, ...]:
        """Return the Workloads that appeared since the last call."""
        return self._workloads.take_seen()

    def take_reserved(self) -> tuple[SeenWorkload, ...]:
        """Return the Workloads that got quota since the last call, and wait for AdmissionChecks."""
        return self._workloads.take_reserved()

    def newest(self) -> int:
        """Return the time of the last event on any Workload, in seconds since 1970."""
        return self._workloads.newest

    def take_recounted(self) -> frozenset[str]:
        """Return the ClusterQueues whose Workloads have changed since the last call."""
        taken = frozenset(self._recounted)
        self._recounted.clear()
        return taken

    def workloads(self) -> Iterable[Workload]:
        """Return all Workloads, as of the last event."""
        return self._workloads.all()

    def contents_of(self, cluster_queue: str) -> QueueContents:
        """Return the Workloads of a ClusterQueue, as of the last snapshot."""
        counts = self._workloads.counts_of.get(cluster_queue)
        arrived = self._workloads.arrived(cluster_queue)
        if counts is None:
            return QueueContents(arrived=arrived)
        alone = ((workload, (workload,)) for workload in counts.backing_off.values())
        return QueueContents(
            holding=tuple(counts.holding.values()),
            waiting=(
                *self._groups(counts.groups(), competes=True),
                *self._groups(alone, competes=False),
            ),
            arrived=arrived,
        )

    def _groups(
        self, shapes: Iterable[tuple[Workload, tuple[Workload, ...]]], *, competes: bool
    ) -> Iterator[Group]:
        for first, members in shapes:
            arrival = self._arrivals.of(first, len(members))
            if arrival is not None:
                yield Group(arrival, members, competes)

    def take_problems(self) -> tuple[str, ...]:
        """Return a line for each object that could not be read, once until it changes."""
        taken = tuple(self._new_problems)
        self._new_problems.clear()
        return taken

    def note_list(self, kind: str, entries: Collection[ReadObject]) -> None:
        """Note which objects of a whole list cannot be read."""
        self._forget_problems(kind, {entry.key for entry in entries})
        for entry in entries:
            self._note(kind, entry)

    def note_event(self, kind: str, event_type: str, entry: ReadObject) -> None:
        """Note whether the object of an event can be read."""
        self._note(kind, ReadObject(entry.key, None) if event_type == "DELETED" else entry)

    def problems(self) -> Mapping[str, int]:
        """Count the objects that cannot be read, by kind."""
        return Counter(kind for kind, _ in self._problems)

    def _remember(self, shards: Mapping[Key, Mapping[str, ClassRecord]]) -> None:
        """Merge records; a class missing in them stays known here."""
        for shard in shards.values():
            for key, record in shard.items():
                self._run_times.merge(key, record)

    def _with_runs(self, snapshot: Snapshot, unix: float) -> Snapshot:
        for ended in self._workloads.take_ended():
            level = level_of(ended.placed, ended.flavors.split(","), snapshot.setup)
            self._learn(partial(self._run_times.add, ended._replace(level=level)))
        for begun in self._workloads.take_begun():
            if begun.admitted and begun.mark != NO_MARK:
                self._learn(partial(self._run_times.begin, begun))
        failing = self._failing.step(
            self._run_times.records,
            self._run_times.take_changed(),
            snapshot.fallback.policies,
            unix,
        )
        estimates = self._run_times.estimates(self._at_once)
        uses, points = self._run_times.uses(), self._run_times.points()
        if points is not self._points:
            self._points, self._served = points, learned_serving.fitted_all(points)
        return updated(
            snapshot,
            run_times=estimates,
            failing=failing,
            device_uses=uses,
            served=self._served,
            interruptions=self._run_times.interruptions.seen(),
        )

    def _learn(self, work: Callable[[], None]) -> None:
        """Learn from one run; one that fails must not keep the others from being learned from."""
        _, problem = attempted(work)
        if problem:
            self._new_problems.append(f"{kinds.WORKLOADS}: a run not learned from: {problem}")

    def _with_delays(self, snapshot: Snapshot, recounted: frozenset[str], clock: float) -> Snapshot:
        delays = self._run_times.delays
        dispatches = self._dispatches.step(
            {name: counts.waiting for name, counts in self._workloads.counts_of.items()},
            delays.dispatches,
            recounted=recounted,
            dispatched=delays.take_dispatched(),
            clock=clock,
        )
        starts = delays.starts(self._at_once)
        return updated(snapshot, start_delays=starts, dispatches=dispatches)

    def _table(self, kind: str) -> dict[Key, Any]:
        if kind.startswith(kinds.SERIES):
            # The names of ConfigMaps with series are settings.
            return self._tables.setdefault(kind, {})
        return self._tables[kind]

    def _put(self, kind: str, key: Key, value: Any) -> None:
        table = self._table(kind)
        if table.get(key) == value:
            return
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        self._changed.add(kind)
        if kind == kinds.LOCAL_QUEUES:
            self._workloads.put_local_queue(key, value.queue if value is not None else None)
        elif kind in (kinds.POLICIES, kinds.TEAM_POLICIES):
            options = value.spec.options if value is not None else ()
            self._workloads.put_options(kinds.full_name(key), options)
        elif kind == kinds.CLUSTER_QUEUES:
            self._workloads.dirty.add(key[1])
            # It may name a Cohort that has no object of its own.
            self._changed.add(kinds.COHORTS)

    def _note(self, kind: str, entry: ReadObject) -> None:
        place = kind, entry.key
        if not entry.problem:
            self._problems.pop(place, None)
        elif self._problems.get(place) != entry.problem:
            self._problems[place] = entry.problem
            self._new_problems.append(entry.problem)

    def _forget_problems(self, kind: str, keys: set[Key]) -> None:
        for place in [p for p in self._problems if p[0] == kind and p[1] not in keys]:
            del self._problems[place]

    def _with_workloads(self, snapshot: Snapshot) -> Snapshot:
        self._workloads.order_by_eviction(by_eviction=snapshot.setup.kueue.requeues_by_eviction)
        dirty = self._workloads.dirty
        self._note_changed_rules(snapshot)
        if not dirty:
            return snapshot
        self._arrivals.adopt(
            snapshot.cluster.limit_ranges, snapshot.cluster.overheads, snapshot.setup.kueue
        )
        before = snapshot.workloads
        held, competing = dict(before.held), dict(before.competing)
        reserving, admitted = dict(before.reserving), dict(before.admitted)
        self._recounted |= dirty
        for name in dirty:
            self._rebuild(name, snapshot, held, competing)
            admitted.pop(name, None)
            if (counts := self._workloads.counts_of.get(name)) and counts.admitted.reserving:
                admitted[name] = counts.admitted.held()
            if holders := self._holders(name):
                reserving[name] = holders
            else:
                reserving.pop(name, None)
        dirty.clear()
        return updated(
            snapshot,
            held=held,
            admitted=before.admitted if admitted == before.admitted else admitted,
            competing=before.competing if competing == before.competing else competing,
            reserving=reserving if reserving or before.reserving else before.reserving,
        )

    def _note_changed_rules(self, snapshot: Snapshot) -> None:
        """Note the ClusterQueues whose Workloads count otherwise by what the snapshot says now."""
        counts_of, dirty = self._workloads.counts_of, self._workloads.dirty
        before = self._snapshot
        needs_changed = (
            snapshot.cluster.limit_ranges is not before.cluster.limit_ranges
            or snapshot.cluster.overheads is not before.cluster.overheads
            or snapshot.setup.kueue is not before.setup.kueue
        )
        if needs_changed:
            dirty.update(name for name, counts in counts_of.items() if counts.competing)
        if (
            snapshot.setup.cluster_queues is not before.setup.cluster_queues
            or snapshot.setup.cohorts is not before.setup.cohorts
        ):
            preemptible = candidates_in(snapshot.setup)
            dirty.update(self._preemptible ^ preemptible)
            self._preemptible = preemptible

    def _holders(self, name: str) -> tuple[QuotaHolder, ...]:
        """Return the Workloads of a ClusterQueue that Kueue might preempt."""
        counts = self._workloads.counts_of.get(name)
        return counts.holders() if counts and name in self._preemptible else ()

    def _rebuild(
        self,
        name: str,
        snapshot: Snapshot,
        held: dict[str, Held],
        competing: dict[str, tuple[Arrival, ...]],
    ) -> None:
        counts = self._workloads.counts_of.get(name)
        before = competing.pop(name, ())
        if counts is None or counts.is_empty():
            self._workloads.counts_of.pop(name, None)
            held.pop(name, None)
            return
        queue = snapshot.setup.cluster_queues.get(name)
        takes = queue is not None and queue.active and queue.stop_policy is StopPolicy.NONE
        first = counts.in_order(SHAPES_PER_QUEUE) if takes else ()
        known = tuple(
            (workload, arrival)
            for workload, count in first
            if (arrival := self._arrivals.of(workload, count)) is not None
        )
        trying = {
            policy.name
            for policy in snapshot.fallback.policies
            if policy.spec.strategy.least_cost is not None
        }
        held[name] = counts.held(((workload, arrival.count) for workload, arrival in known), trying)
        if known:
            after = tuple(arrival for _, arrival in known)
            competing[name] = before if after == before else after


def _by_name(kind: str) -> _Builder:
    return lambda tables: {name: value for (_, name), value in tables[kind].items()}


def _local_queues(tables: _Tables) -> Mapping[Key, LocalQueue]:
    return {key: entry.queue for key, entry in tables[kinds.LOCAL_QUEUES].items()}


def _consumed(tables: _Tables) -> Mapping[Key, ConsumedResources]:
    """Return what LocalQueues have used, of those of which Kueue says it."""
    entries = tables[kinds.LOCAL_QUEUES].items()
    return {key: entry.consumed for key, entry in entries if entry.consumed is not None}


def _cohorts(tables: _Tables) -> Mapping[str, Cohort]:
    """Return all Cohorts with those that are only named: Kueue creates them implicitly, too."""
    cohorts: dict[str, Cohort] = {name: c for (_, name), c in tables[kinds.COHORTS].items()}
    named = [queue.cohort for queue in tables[kinds.CLUSTER_QUEUES].values()]
    named += [cohort.parent for cohort in cohorts.values()]
    for name in named:
        if name and name not in cohorts:
            cohorts[name] = Cohort(name=name)
    return cohorts


def _limit_ranges(tables: _Tables) -> Mapping[str, tuple[LimitRangeItem, ...]]:
    limit_ranges: defaultdict[str, tuple[LimitRangeItem, ...]] = defaultdict(tuple)
    for (namespace, _), limits in sorted(tables[kinds.LIMIT_RANGES].items(), key=lambda kv: kv[0]):
        limit_ranges[namespace] += limits
    return dict(limit_ranges)


def _training_runtimes(tables: _Tables) -> Mapping[Key, Mapping[str, Any]]:
    return {key: value for kind in kinds.TRAINING_RUNTIMES for key, value in tables[kind].items()}


def _autoscalers(tables: _Tables) -> Mapping[tuple[str, str], Autoscaler]:
    read = sorted(tables[kinds.AUTOSCALERS].items())
    return {(namespace, found.target): found.bounds for (namespace, _), found in read if found}


def _policies(tables: _Tables) -> tuple[FallbackPolicy, ...]:
    of_all = (tables[kind].values() for kind in (kinds.POLICIES, kinds.TEAM_POLICIES))
    return fallback_policy.in_order(chain.from_iterable(of_all))


def _accelerator_profiles(tables: _Tables) -> tuple[AcceleratorProfile, ...]:
    return tuple(profile for _, profile in sorted(tables[kinds.ACCELERATOR_PROFILES].items()))


def _pod_priorities(tables: _Tables) -> Mapping[str, int]:
    return {name: priority.value for (_, name), priority in tables[kinds.POD_PRIORITIES].items()}


def _default_priority(tables: _Tables) -> int:
    """Return the lowest of several defaults, as Kueue's ``getDefaultPriorityClass`` does."""
    priorities = tables[kinds.POD_PRIORITIES].values()
    return min((priority.value for priority in priorities if priority.is_default), default=0)


def _kueue(tables: _Tables) -> KueueConfig:
    """Merge Kueue's configuration: gates of its command line win over the ConfigMap's."""
    manager = _first(tables, kinds.KUEUE_DEPLOYMENT) or KueueManager()
    config: KueueConfig | None = _first(tables, kinds.KUEUE_CONFIG)
    if not manager.has_configuration:
        config = replace(read_kueue_config(EMPTY), is_read=True)
    config = config or read_kueue_config(EMPTY)
    release = release_of(_first(tables, _STATED_VERSION) or manager.version)
    gates = config.gates if manager.gates is None else manager.gates
    heeded = under_gates(config, gates, release)
    if not are_devices_counted(gates, release):
        return heeded
    return replace(heeded, devices=_devices(tables, heeded.device_mappings))


def _devices(tables: _Tables, mappings: Mapping[str, str]) -> Mapping[str, str]:
    """Map extended resources that DeviceClasses stand for to the names by which Kueue counts."""
    # Of several classes that stand for one resource the newest counts: ``selectedDeviceClass``.
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/extended_resources.go
    classes = sorted(tables[kinds.DEVICE_CLASSES].values(), key=lambda c: (-c.created, c.name))
    newest = {c.extended_resource: c.name for c in reversed(classes) if c.extended_resource}
    named = {resource: mappings.get(name, resource) for resource, name in newest.items()}
    # Kueue never admits a Workload that asks so for what is counted in parts; it is left alone.
    return {resource: name for resource, name in named.items() if name}


def _node_labels(tables: _Tables) -> tuple[Mapping[str, str], ...]:
    """Return what labels of Nodes tell ResourceFlavors and devices apart, each set once."""
    chosen = {key for flavor in tables[kinds.FLAVORS].values() for key in flavor.node_labels}
    different = {
        tuple(sorted((k, v) for k, v in node.labels.items() if k in chosen or tells_device(k)))
        for node in tables[kinds.NODES].values()
    }
    return tuple(dict(labels) for labels in sorted(different) if labels)


def _topologies(tables: _Tables) -> Mapping[str, Topology]:
    """Return each Topology with the Nodes that have all of its levels."""
    nodes = [node.offered for node in tables[kinds.NODES].values() if node.offered is not None]
    return {
        topology.name: replace(
            topology,
            nodes=tuple(node for node in nodes if node.labels.keys() >= set(topology.levels)),
        )
        for topology in tables[kinds.TOPOLOGIES].values()
    }


def _kueue_manager(tables: _Tables) -> KueueManager:
    return _first(tables, kinds.KUEUE_DEPLOYMENT) or KueueManager(unknown_version=_NO_DEPLOYMENT)


_NO_DEPLOYMENT = f"its Deployment {kinds.KUEUE_DEPLOYMENT} is not there, or may not be read"


def _first(tables: _Tables, kind: str) -> Any:
    """Return the only object there can be; None: there is none."""
    return next(iter(tables[kind].values()), None)


def _scarcity(tables: _Tables) -> CongestionPrices:
    return _first(tables, kinds.CONGESTION) or NO_CONGESTION


def _runs_before_kueue(tables: _Tables) -> bool:
    """Return whether our webhooks run before Kueue's.

    Webhooks run in the order of their configurations' names; each of ours must come first.
    """
    configurations = tables[kinds.WEBHOOKS].items()
    ours = [name for (_, name), webhooks in configurations if webhooks.reviewed is not None]
    kueues = [name for (_, name), webhooks in configurations if webhooks.kueues]
    return bool(ours and kueues) and max(ours) < min(kueues)


def _reviewed_namespaces(tables: _Tables) -> tuple[Selector, ...]:
    return tuple(
        configuration.reviewed
        for configuration in tables[kinds.WEBHOOKS].values()
        if configuration.reviewed is not None
    )


_BUILDERS: Mapping[str, tuple[tuple[str, _Builder], ...]] = {
    kinds.CLUSTER_QUEUES: (("cluster_queues", _by_name(kinds.CLUSTER_QUEUES)),),
    kinds.LOCAL_QUEUES: (("local_queues", _local_queues), ("consumed", _consumed)),
    kinds.COHORTS: (("cohorts", _cohorts),),
    kinds.FLAVORS: (("flavors", _by_name(kinds.FLAVORS)), ("node_labels", _node_labels)),
    kinds.NODES: (("node_labels", _node_labels), ("topologies", _topologies)),
    kinds.TOPOLOGIES: (("topologies", _topologies),),
    kinds.CHECKS: (("checks", _by_name(kinds.CHECKS)),),
    kinds.MULTIKUEUE_CONFIGS: (("multikueue_configs", _by_name(kinds.MULTIKUEUE_CONFIGS)),),
    kinds.MULTIKUEUE_CLUSTERS: (("worker_clusters", _by_name(kinds.MULTIKUEUE_CLUSTERS)),),
    kinds.PRIORITY_CLASSES: (("priority_classes", _by_name(kinds.PRIORITY_CLASSES)),),
    kinds.POD_PRIORITIES: (
        ("pod_priorities", _pod_priorities),
        ("default_priority", _default_priority),
    ),
    kinds.NAMESPACES: (("namespaces", _by_name(kinds.NAMESPACES)),),
    kinds.LIMIT_RANGES: (("limit_ranges", _limit_ranges),),
    kinds.RUNTIME_CLASSES: (("overheads", _by_name(kinds.RUNTIME_CLASSES)),),
    kinds.AUTOSCALERS: (("autoscalers", _autoscalers),),
    **dict.fromkeys(kinds.TRAINING_RUNTIMES, (("training_runtimes", _training_runtimes),)),
    kinds.POLICIES: (("policies", _policies),),
    kinds.TEAM_POLICIES: (("policies", _policies),),
    kinds.ACCELERATOR_PROFILES: (("accelerator_profiles", _accelerator_profiles),),
    # From Tariffs prices are compiled, with the time (``cost.cluster_prices``).
    kinds.TARIFFS: (),
    kinds.DEVICE_CLASSES: (("kueue", _kueue),),
    kinds.KUEUE_CONFIG: (("kueue", _kueue),),
    kinds.KUEUE_DEPLOYMENT: (("kueue", _kueue), ("kueue_manager", _kueue_manager)),
    kinds.OFF_SWITCH: (("off", lambda tables: _first(tables, kinds.OFF_SWITCH)),),
    kinds.CONGESTION: (("scarcity", _scarcity),),
    kinds.SIGNING_KEYS: (("signing", lambda tables: _first(tables, kinds.SIGNING_KEYS)),),
    kinds.WEBHOOKS: (
        ("runs_before_kueue", _runs_before_kueue),
        ("reviewed_namespaces", _reviewed_namespaces),
    ),
}
"""Kind to the fields of Snapshot that depend on it."""
