"""Turns the Workloads of ClusterQueues into the forecast's input, and gets their forecasts from it.

It chooses which queues to forecast, groups equal Workloads, and finds their run times. It must not
know how Kueue would admit them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nlargest
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from statistics import median_low
from typing import Final, NamedTuple, TypeAlias

from webhook.cost.cluster_prices import in_worker
from webhook.cost.congestion import CellRequest, Market
from webhook.kueue.durations import RunTimeOf, learned_on, of_any_class
from webhook.kueue.flavor_plan import demand_of
from webhook.kueue.forecast import forecast
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.quota import tree_names
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import TreeForecast
from webhook.kueue.tree_workloads import ExpectedArrivals, ForecastGivens
from webhook.learn.expected_runs import Expecting, time_in_quota
from webhook.learn.job_class import shares_with, sharing_policy
from webhook.model.costs.prices import NO_PRICES
from webhook.model.forecasts import (
    JobClass,
    RunTime,
    home_of,
    is_of_queue,
)
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.queues import ClusterQueue
from webhook.model.topologies import PlacedPods
from webhook.state.queue_counts import Group, QueueContents
from webhook.state.snapshot import Snapshot
from webhook.state.state import State
from webhook.state.workload import SeenWorkload, Workload
from webhook.state.workload_pods import Charge
from webhook.state.workloads import MOST_ARRIVED

_BETWEEN = "\n"
_created = attrgetter("created")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastInput:
    """What a new forecast starts from."""

    snapshot: Snapshot
    counted: Mapping[str, QueueContents]
    """The ClusterQueues that have changed."""
    due: frozenset[str] = frozenset()
    """ClusterQueues that have not changed, but are to be forecast again."""
    seen: tuple[SeenWorkload, ...] = ()
    """The Workloads that these contents are the first to contain."""
    now: float
    """On the clock of ``Snapshot.as_of``."""
    unix: float
    """The same instant, in seconds since 1970."""

    @property
    def asked(self) -> frozenset[str]:
        """Return the ClusterQueues to forecast; others of the same tree are forecast with them."""
        return self.due.union(self.counted)

    def only(self, names: frozenset[str]) -> ForecastInput:
        counted = {name: contents for name, contents in self.counted.items() if name in names}
        return replace(self, counted=counted, due=self.due & names)


class Trees:
    """Which ClusterQueues share quota, of those that are forecast."""

    def __init__(self, snapshot: Snapshot | None = None, names: Iterable[str] = ()) -> None:
        self._roots = {} if snapshot is None else _trees(snapshot)
        members: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            members[self.root(name)].append(name)
        self._members = dict(members)

    def root(self, name: str) -> str:
        """Return the name of a ClusterQueue's tree."""
        return self._roots.get(name, name)

    def members(self, root: str) -> Sequence[str]:
        return self._members.get(root, ())


class ForecastInputs:
    """Keeps the contents of each ClusterQueue, so that a forecast costs only what has changed."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Running, ...]] = {}
        self._waiting: dict[str, tuple[PendingGroup, ...]] = {}
        self._came: dict[str, Mapping[int, tuple[_Came, ...]]] = {}

    def forecasts(self, forecast_input: ForecastInput) -> Mapping[str, TreeForecast]:
        """Forecast the trees of all ClusterQueues in the input.

        Return by ClusterQueue the forecast of its tree.
        """
        clock = forecast_input.now - forecast_input.unix
        self._forget_all_but(forecast_input.snapshot.setup.cluster_queues.keys())
        for name, contents in forecast_input.counted.items():
            self._running[name] = tuple(running_in(name, contents.holding, clock))
            self._waiting[name] = tuple(queued(contents.waiting, clock))
            self._came[name] = came(contents)
        asked = forecast_input.asked
        trees = Trees(forecast_input.snapshot, self._running)
        names = sorted({member for name in asked for member in trees.members(trees.root(name))})
        # ClusterQueues that share quota are served by the age of what waits in them.
        pending_groups = [group for name in names for group in self._waiting[name]]
        pending_groups.sort(key=lambda group: group.created)
        return forecast(
            forecast_givens(
                forecast_input.snapshot, LentRunTimes(forecast_input.snapshot), forecast_input.now
            ),
            [run for name in names for run in self._running[name]],
            pending_groups,
            only=asked,
            expected=[
                arrivals
                for name in names
                for arrivals in expected(name, self._came[name], forecast_input.unix)
            ],
        )

    def _forget_all_but(self, names: Collection[str]) -> None:
        for kept in (self._running, self._waiting, self._came):
            for name in kept.keys() - names:
                del kept[name]


def forecast_givens(snapshot: Snapshot, run_time_of: RunTimeOf, now: float) -> ForecastGivens:
    """Return what forecasts take of a snapshot; *now* is on the clock of ``Snapshot.as_of``."""
    return ForecastGivens(
        setup=snapshot.setup,
        cluster=snapshot.cluster,
        held=snapshot.workloads.held,
        run_time_of=run_time_of,
        now=now,
    )


def with_forecasts(state: State, snapshot: Snapshot, unix: float) -> Snapshot:
    """Return a snapshot of *state* with its forecasts.

    *unix* is its instant in seconds since 1970.
    """
    forecast_input = ForecastInput(
        snapshot=snapshot,
        counted={name: state.contents_of(name) for name in watched(snapshot)},
        now=snapshot.as_of,
        unix=unix,
    )
    return replace(snapshot, forecasts=ForecastInputs().forecasts(forecast_input))


def watched(snapshot: Snapshot) -> frozenset[str]:
    """Return the ClusterQueues that must be counted: the trees that decisions need forecasts of."""
    policies = (policy for policy in snapshot.fallback.policies if policy.spec.strategy.forecasts)
    return trees_of(policies, snapshot)


def trees_of(policies: Iterable[FallbackPolicy], snapshot: Snapshot) -> frozenset[str]:
    """Return the ClusterQueues that share quota with an option of one of *policies*."""
    wanted: set[str] = set()
    for policy in policies:
        wanted |= cluster_queues_of(policy, policy.spec.options, snapshot)
    roots = _trees(snapshot)
    trees = {roots[name] for name in wanted if name in roots}
    return frozenset(
        name for name in snapshot.setup.cluster_queues if name in wanted or roots.get(name) in trees
    )


def _trees(snapshot: Snapshot) -> Mapping[str, str]:
    return tree_names(snapshot.setup.cluster_queues, snapshot.setup.cohorts)


def queues_of(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """Return the LocalQueues of all ClusterQueues that share quota with an option of a policy."""
    wanted = trees_of(snapshot.fallback.policies, snapshot)
    return frozenset(
        key for key, queue in snapshot.setup.local_queues.items() if queue.cluster_queue in wanted
    )


def cluster_queues_of(
    policy: FallbackPolicy, options: Iterable[Option], snapshot: Snapshot
) -> set[str]:
    """Return the ClusterQueues to which *options* of a policy lead; a team's, in its namespace."""
    options = tuple(options)
    named = {option.queue for option in options if option.queue}
    if policy.namespace:
        own = (snapshot.setup.local_queues.get((policy.namespace, name)) for name in named)
        return {queue.cluster_queue for queue in own if queue is not None}
    cluster_queues = {option.cluster_queue for option in options if option.cluster_queue}
    return cluster_queues | {
        queue.cluster_queue for queue in snapshot.setup.local_queues.values() if queue.name in named
    }


_Alike: TypeAlias = tuple[Charge, str, int, int, int, str, tuple[PlacedPods, ...]]


def running_in(name: str, holding: Iterable[Workload], clock: float) -> Iterator[Running]:
    """Yield the Workloads that hold quota in a ClusterQueue, equal ones together.

    *clock* is added to seconds since 1970 to get times on the clock of ``Snapshot.as_of``.
    """
    alike: defaultdict[_Alike, list[int]] = defaultdict(list)
    for workload in holding:
        kind = (
            workload.charge,
            class_text(workload),
            workload.admitted,
            workload.limit_seconds,
            workload.priority,
            f"{workload.namespace}/{workload.queue}",
            workload.placed,
        )
        alike[kind].append(workload.queued_at)
    for kind, created in alike.items():
        charge, job_class, admitted, limit, priority, local_queue, placed = kind
        count = len(created)
        yield Running(
            cluster_queue=name,
            usage={cell: amount * count for cell, amount in charge},
            job_class=job_class,
            started_at=admitted + clock if admitted else None,
            limit_seconds=limit,
            count=count,
            priority=priority,
            created=min(created),
            local_queue=local_queue,
            placed=placed * count,
        )


class _Came(NamedTuple):
    """A Workload that has come, and as which others may come."""

    created: int
    """Seconds since 1970."""
    kind: PendingGroup


def came(contents: QueueContents) -> Mapping[int, tuple[_Came, ...]]:
    """Return by priority what has come to a ClusterQueue, the newest first."""
    by_priority: defaultdict[int, list[_Came]] = defaultdict(list)
    kinds: dict[tuple[Charge, str, int], PendingGroup] = {}
    for gone in contents.arrived:
        # Equal ones are one object, so that what is expected of them is worked out once.
        alike = gone.charge, class_text(gone), gone.limit_seconds
        if alike not in kinds:
            charge, job_class, limit = alike
            kinds[alike] = PendingGroup(
                demand=demand_of(dict(charge)), job_class=job_class, limit_seconds=limit
            )
        by_priority[gone.priority].append(_Came(gone.created, kinds[alike]))
    for group in contents.waiting:
        of_group: dict[tuple[str, int], PendingGroup] = {}
        for workload in _newest(group.members):
            known_by = class_text(workload), workload.limit_seconds
            if known_by not in of_group:
                job_class, limit = known_by
                of_group[known_by] = PendingGroup(
                    local_queue=group.arrival.local_queue_key,
                    needs=group.arrival.needs,
                    job_class=job_class,
                    limit_seconds=limit,
                )
            by_priority[workload.priority].append(_Came(workload.created, of_group[known_by]))
    return {
        priority: tuple(sorted(all_came, key=_created, reverse=True)[:MOST_ARRIVED])
        for priority, all_came in by_priority.items()
    }


def market_of(
    snapshot: Snapshot,
    counted: Mapping[str, QueueContents],
    *,
    now: float,
    unix: float,
    manager: Snapshot,
    cluster: str = "",
) -> Market:
    """Return what congestion prices are made from, by the contents of the queues that they are of.

    *snapshot* has their forecasts; it is that of a worker *cluster*, or *manager* itself. *now* is
    on the clock of ``Snapshot.as_of``.
    """
    queues, costs = snapshot.setup.cluster_queues, manager.costs
    requests = tuple(
        request
        for name, contents in counted.items()
        for request in _requests_in(name, contents, queues[name])
    )
    prices = costs.prices.get(cluster, NO_PRICES)
    if cluster:
        cells = dict(ChainMap(*(dict(request.usage) for request in requests)))
        prices = in_worker(prices, cells, snapshot.setup.flavors, costs.accelerator_profiles)
    return Market(
        setup=snapshot.setup,
        manager=manager.setup,
        cluster=cluster,
        fallback=manager.fallback,
        prices=prices,
        forecasts=snapshot.forecasts,
        requests=requests,
        now=now,
        unix=unix,
    )


def _requests_in(name: str, contents: QueueContents, queue: ClusterQueue) -> Iterator[CellRequest]:
    """Yield what the newest Workloads of a ClusterQueue got, or ask for in each of its flavors."""
    for gone in contents.arrived:
        yield CellRequest(gone.created, name, dict(gone.charge))
    for group in contents.waiting:
        asked: Counter[str] = Counter()
        for need in group.arrival.needs:
            asked.update(need.total)
        usage = {
            cell: asked[cell[1]]
            for resources in queue.groups
            for cell in resources.quotas
            if cell[1] in asked
        }
        for workload in _newest(group.members):
            yield CellRequest(workload.created, name, usage)


def _newest(members: Iterable[Workload]) -> Sequence[Workload]:
    """Return the newest of those that wait for the first time: others have come before."""
    first = (workload for workload in members if not workload.is_evicted)
    return nlargest(MOST_ARRIVED, first, key=_created)


def expected(
    name: str, by_priority: Mapping[int, Sequence[_Came]], unix: float
) -> Iterator[ExpectedArrivals]:
    """Yield who is expected to come to a ClusterQueue after *unix*, in seconds since 1970."""
    for priority, all_came in by_priority.items():
        created = [workload.created for workload in all_came]
        rate = steady_rate(created, unix)
        if rate is not None:
            yield ExpectedArrivals(
                cluster_queue=name,
                priority=priority,
                per_second=rate,
                seconds=unix - min(created),
                kinds=tuple(workload.kind for workload in all_came),
            )


FEWEST: Final = 6
"""Arrivals that it takes to tell a rate."""
_PARTS: Final = 4


def steady_rate(created: Iterable[float], now: float) -> float | None:
    """Return how many Workloads come per second, by the times at which they were created.

    They tell it themselves, the finished ones too as long as they are there, so nothing is kept
    for it: a restart reads them again. None: they are too few, or they came all at once, and nobody
    knows whether any more will.
    """
    times = sorted(time for time in created if time <= now)
    if len(times) < FEWEST or now <= times[0]:
        return None
    seen = now - times[0]
    # The time is counted from the first one on, so that one itself tells nothing of the rate. A
    # burst lies in one part of the time, and the middle of the parts knows nothing of it.
    counts = _in_parts(times[1:], times[0], seen)
    middle = median_low(counts)
    if not middle:
        return None
    return middle * _PARTS / seen


def _in_parts(times: Sequence[float], since: float, seconds: float) -> list[int]:
    """Count the times in each of some equal parts of a span."""
    ends = [since + seconds * part / _PARTS for part in range(1, _PARTS)]
    places = [0, *(bisect_left(times, end) for end in ends), len(times)]
    return [after - before for before, after in pairwise(places)]


def queued(
    waiting: Sequence[Group],
    clock: float,
    key_of: Callable[[Workload], str] = lambda _: "",
) -> Iterator[PendingGroup]:
    """Yield Workloads in Kueue's order (priority, then age), equal neighbours grouped.

    *clock* is as for ``running_in``. Those that *key_of* gives a key stay ungrouped, under that
    key.
    """
    for (number, job_class, until, key, limit, is_variant), alike in groupby(
        _ranked(waiting, key_of), key=itemgetter(2, 3, 4, 5, 6, 7)
    ):
        group, (first, *others) = waiting[number], alike
        arrival = group.arrival
        # There is one for each Job that may be moved, and ``replace`` takes twice as long.
        yield PendingGroup(
            key=key or arrival.key,
            local_queue=arrival.local_queue_key,
            policy=arrival.policy,
            needs=arrival.needs,
            priority=arrival.priority,
            count=1 + len(others),
            created=first[1],
            job_class=job_class,
            at=0.0 if group.competes else until + clock,
            limit_seconds=limit,
            is_variant=is_variant,
        )


def in_order(waiting: Sequence[Group]) -> Sequence[Workload]:
    """Return the Workloads of the groups that ``queued`` yields, in the same order."""
    return [
        waiting[number].members[member]
        for _, _, number, *_, member in _ranked(waiting, lambda _: "")
    ]


_Row: TypeAlias = tuple[int, int, int, str, int, str, int, bool, int]
"""Priority, negated, and age; then all by which neighbours are equal, the group's number first;
then which of the group's members it is."""


def _ranked(waiting: Sequence[Group], key_of: Callable[[Workload], str]) -> Sequence[_Row]:
    """Return a row for each Workload, in Kueue's order."""
    return sorted(
        (
            -workload.priority,
            workload.queued_at,
            number,
            class_text(workload),
            workload.requeue_at,
            key_of(workload),
            workload.limit_seconds,
            workload.is_variant,
            member,
        )
        for number, group in enumerate(waiting)
        for member, workload in enumerate(group.members)
    )


def class_text(workload: Workload) -> str:
    """Return the key to look a run time up by: class, decision, and what its owner said of it."""
    job_class = workload.job_class or JobClass("", "")
    return class_name(job_class, workload.policy, workload.option, workload.said)


def class_name(job_class: JobClass, policy: str, option: str, said: int = 0) -> str:
    return _BETWEEN.join((job_class.key, job_class.coarse, policy, option, str(said)))


class LentRunTimes:
    """Expected run times of Workloads, by the class, policy, option and word that their marks name.

    They count from the admission on, so the time until pods are ready is included. What an owner
    says, or a team's policy (run time, slowdown, start delay), is believed in the Workload's home
    alone: what was learned counts for all. But where nobody else can wait for the home's Workloads,
    what is said goes before it, as it does in decisions of these Jobs.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._policies = {policy.name: policy for policy in snapshot.fallback.policies}
        self._first: dict[str, tuple[str, ...]] = {}
        self._known: dict[tuple[str, str], RunTime | None] = {}
        self._believing: dict[str, frozenset[str] | None] = {}
        """By home."""

    def __call__(self, job_class: str, flavors: str) -> RunTime | None:
        key = job_class, flavors
        if key not in self._known:
            self._known[key] = self._look_up(job_class, flavors)
        return self._known[key]

    def _look_up(self, job_class: str, flavors: str) -> RunTime | None:
        run_times = self._snapshot.learned.run_times
        if is_of_queue(job_class):
            return of_any_class(run_times, job_class, flavors)
        key, coarse, policy_name, option_name, said = job_class.split(_BETWEEN)
        of_class = JobClass(key=key, coarse=coarse)
        policy = self._policies.get(policy_name)
        options = policy.spec.options if policy is not None else ()
        option = next((candidate for candidate in options if candidate.name == option_name), None)
        if policy is None or option is None:
            return learned_on(run_times, of_class, flavors)
        expecting = Expecting(
            run_times=run_times,
            job_class=of_class,
            policy=policy,
            first_flavors=self._first_flavors(policy, of_class),
            start_delays=self._snapshot.learned.start_delays,
        )
        own_word = float(said) or None
        of_all = (
            learned_on(run_times, of_class, flavors)
            if policy.namespace
            else time_in_quota(expecting, option, flavors)
        )
        if own_word is None and not policy.namespace:
            return of_all
        of_home = time_in_quota(replace(expecting, said=own_word), option, flavors)
        return of_all if of_home is None else self._believed(of_home, of_all, home_of(key))

    def _believed(self, of_home: RunTime, of_all: RunTime | None, home: str) -> RunTime:
        """Return what a home expects of its Workloads, or what all do who may wait for these."""
        if home not in self._believing:
            self._believing[home] = self._believers(home)
        believers = self._believing[home]
        if believers is None:
            return of_home
        return of_all or RunTime(
            seconds=of_home.seconds,
            low=of_home.low,
            high=of_home.high,
            basis=of_home.basis,
            known_in=believers,
        )

    def _believers(self, home: str) -> frozenset[str] | None:
        """Return the namespaces whose Jobs count on what is said of a home's runs.

        None: no other namespace's Jobs can wait where theirs do.
        """
        local_queues, policy = (
            self._snapshot.setup.local_queues,
            self._policies.get(sharing_policy(home)),
        )
        namespaces = (
            frozenset({home})
            if policy is None
            else frozenset(
                namespace
                for namespace in {namespace for namespace, _ in local_queues}
                if shares_with(policy, namespace, self._snapshot.cluster)
            )
        )
        theirs = [others for others in self._may_wait if not namespaces.isdisjoint(others)]
        are_alone = bool(theirs) and all(others <= namespaces for others in theirs)
        return None if are_alone else namespaces

    @cached_property
    def _may_wait(self) -> Sequence[set[str]]:
        """Return for each tree the namespaces with LocalQueues that lead there."""
        roots, of_trees = _trees(self._snapshot), defaultdict[str, set[str]](set)
        for (namespace, _), queue in self._snapshot.setup.local_queues.items():
            of_trees[roots.get(queue.cluster_queue, queue.cluster_queue)].add(namespace)
        return tuple(of_trees.values())

    def _first_flavors(self, policy: FallbackPolicy, job_class: JobClass) -> str:
        """Return flavors of the first option on which the class has run; empty: it has on none."""
        if policy.name not in self._first:
            self._first[policy.name] = tuple(self._flavors_of(policy))
        candidates: Collection[str] = self._first[policy.name]
        run_times = self._snapshot.learned.run_times
        known = (flavors for flavors in candidates if learned_on(run_times, job_class, flavors))
        return next(known, "")

    def _flavors_of(self, policy: FallbackPolicy) -> Iterator[str]:
        names = cluster_queues_of(policy, policy.spec.options[:1], self._snapshot)
        for name in sorted(names & self._snapshot.setup.cluster_queues.keys()):
            groups = self._snapshot.setup.cluster_queues[name].groups
            yield ",".join(sorted({flavor for group in groups for flavor in group.flavors[:1]}))
            for group in groups:
                yield from group.flavors
