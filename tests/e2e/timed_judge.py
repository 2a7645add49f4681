"""Compares what happened in a played world with what our model says of it.

The model starts from the objects as they were when the newcomer came, through the readers of the
product. What runs ends when it really ended; everything else the model has to know by itself.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, takewhile, zip_longest
from math import inf

from hack.api import Object
from tests import worlds
from tests.e2e.timed_player import Course, SeenCycle
from tests.e2e.timed_quota import (
    HEARD_SECONDS,
    LATE_SECONDS,
    may_have_seen,
    quota_free_at,
    seen_by,
)
from tests.e2e.timed_worlds import PRIORITIES
from webhook.kueue import forecast, quota
from webhook.kueue.fair_sharing import use_of
from webhook.kueue.flavor_plan import Demand, demand
from webhook.kueue.newcomer import Newcomer as Asked
from webhook.kueue.queue_lines import PendingGroup, pending_group
from webhook.kueue.simulation import Running, Simulation
from webhook.kueue.tree_forecast import start_of
from webhook.model.forecasts import Basis, RunTime, Start
from webhook.model.queues import Arrival
from webhook.state import forecast_input
from webhook.state.forecast_input import forecast_givens
from webhook.state.queue_counts import Group
from webhook.state.snapshot import Snapshot, updated
from webhook.state.snapshot_file import kind_of, read_placed, state_of
from webhook.state.state import State
from webhook.state.workload import Workload

MOST_SECONDS = 600.0
AROUND_SECONDS = 1.5
"""So long before and after a first difference it is shown what Kueue tried."""
TOLD_SECONDS = 1.0
"""So soon after a cycle Kueue has said whom it preempts."""
STARTS = "starts"
PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that became of a Workload, in seconds since the question."""

    at: float
    what: str
    """``starts`` or ``preempted``."""
    name: str
    detail: str
    """The flavors, or the Workload that preempts it."""

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.what} {self.name} ({self.detail})"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.what, self.name, self.detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """What was said of a start, and when it was, in seconds from the same moment on."""

    name: str
    forecast: Start
    waited: float
    """inf: it never started."""

    @property
    def error(self) -> float:
        if self.waited == self.forecast.seconds == inf:
            return 0.0
        return abs(self.forecast.seconds - self.waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldNewcomer(Foretold):
    """The same of a newcomer, and whom it preempts."""

    preempts: int
    """How many Workloads Kueue preempted for it before its start."""
    preempted_by: int
    """How often it was preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One world: what happened, what the model says, and whether they agree."""

    course: Course
    happened: tuple[Event, ...]
    modelled: tuple[Event, ...]
    followed: tuple[Event, ...]
    """The same where cycles and batches come when Kueue's came."""
    draws: tuple[str, ...]
    """Where Kueue draws who comes first: who was to, and who did."""
    newcomer: ForetoldNewcomer
    pending: tuple[Foretold, ...]
    """All that waited when the newcomer had come."""

    @property
    def agrees(self) -> bool:
        """Tell whether the same start in the same order, and the same are preempted in theirs."""
        return self._is_course(self.modelled)

    @property
    def agrees_in_kueues_order(self) -> bool:
        """Tell the same where Kueue was late: by the order in which it heard of things."""
        return self._is_course(self.followed)

    def _is_course(self, events: Sequence[Event]) -> bool:
        return parts_at(self.happened, events) == inf

    @property
    def difference(self) -> str:
        """Show both courses from the first difference on."""
        rows = []
        for number in range(max(len(self.happened), len(self.followed))):
            pair = [
                events[number] if number < len(events) else None
                for events in (self.happened, self.followed)
            ]
            same = None not in pair and pair[0].key == pair[1].key
            rows.append(f"{' ' if same else '*'} {pair[0]!s:45} | {pair[1]!s}")
        return "\n".join(rows)


def parts_at(happened: Sequence[Event], told: Sequence[Event]) -> float:
    """Return when two courses part, in seconds since the question; inf: they do not.

    What starts is compared in its order, and who is preempted in theirs.
    """
    return min(
        (
            min(event.at for event in pair if event)
            for what in (STARTS, PREEMPTED)
            for pair in zip_longest(_of(happened, what), _of(told, what))
            if not all(pair) or pair[0].key != pair[1].key
        ),
        default=inf,
    )


def agreed(happened: Sequence[Event], told: Sequence[Event]) -> int:
    """Count the events of two courses that are the same before they part."""
    pairs = (
        zip(_of(happened, what), _of(told, what), strict=False) for what in (STARTS, PREEMPTED)
    )
    return sum(
        1 for each in pairs for _ in takewhile(lambda pair: pair[0].key == pair[1].key, each)
    )


def _of(events: Sequence[Event], what: str) -> list[Event]:
    return [event for event in events if event.what == what]


def around(course: Course, at: float) -> str:
    """Show what Kueue tried, and who stopped, shortly before and after a moment of a course."""
    asked = course.asked
    rows = [
        (cycle.at - asked, f"cycle {cycle.number} tries {' '.join(cycle.tried)}")
        for cycle in course.cycles
    ]
    rows += [
        (run.ended - asked, f"{run.name} {'ends' if run.finished else 'stops'}")
        for run in course.runs
    ]
    rows += [(batch - asked, "batch") for batch in course.batches]
    return "\n".join(
        f"{each:8.3f} {text}" for each, text in sorted(rows) if abs(each - at) < AROUND_SECONDS
    )


def judge(course: Course) -> Judgement:
    state, snapshot = read(course, course.state)
    events, draws = likeliest(course, state, snapshot)
    return Judgement(
        course=course,
        happened=happened(course),
        modelled=modelled(course, state, snapshot),
        followed=events,
        draws=draws,
        newcomer=newcomer(course, state, snapshot),
        pending=pending(course, state, snapshot),
    )


def read(course: Course, sources: Sequence[Object]) -> tuple[State, Snapshot]:
    entries = defaultdict(list)
    for source in sources:
        kind = kind_of(source)
        entries[kind].append(read_placed(kind, source, course.world.namespace))
    state = state_of(entries)
    return state, state.snapshot(course.asked, course.asked)


def happened(course: Course) -> tuple[Event, ...]:
    """Return what happened after the question, in Kueue's order."""
    events = []
    for run in course.runs:
        if run.started >= course.asked:
            at = run.started - course.asked
            events.append(Event(at=at, what=STARTS, name=run.name, detail=run.flavors))
        if run.evicted >= course.asked:
            by, at = course.uids.get(run.by, "?"), run.evicted - course.asked
            events.append(Event(at=at, what=PREEMPTED, name=run.name, detail=by))
    return _in_order(events)


def modelled(course: Course, state: State, snapshot: Snapshot) -> tuple[Event, ...]:
    """Return what the event loop makes of the state at the question and of the ends of runs."""
    play = _Played(course, filled(course, state, snapshot))
    simulation = play.simulation
    while simulation.next_event() < MOST_SECONDS / 2:
        simulation.step()
        play.take_down()
    return play.events


def likeliest(
    course: Course, state: State, snapshot: Snapshot
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Return what is followed, with quota free for the cycles that seem to have seen it so.

    Kueue's log says that a run has ended, and not which cycle was the first to see its quota free.
    Where the courses part, the others that may have been are tried.
    """
    truth, changed = happened(course), []
    events, draws = followed(course, state, snapshot)
    tried: set[tuple[int, int]] = set()
    while (parted := parts_at(truth, events)) < inf:
        since, until = course.asked + parted - LATE_SECONDS, course.asked + parted + HEARD_SECONDS
        choices = [
            (index, cycle.number)
            for index, run in enumerate(course.runs)
            if since < run.ended < until
            for cycle in may_have_seen(course, run)
            if (index, cycle.number) not in tried
        ]
        if not choices:
            break
        index, number = choices[0]
        tried.add((index, number))
        other = seen_by(course, index, number)
        other_events, other_draws = followed(other, state, snapshot)
        if agreed(truth, other_events) > agreed(truth, events):
            course, events, draws = other, other_events, other_draws
            run = course.runs[index]
            changed.append(f"{run.ended - course.asked:.2f}: cycle {number} saw {run.name} gone")
    return events, (*draws, *changed)


def followed(
    course: Course, state: State, snapshot: Snapshot
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Return the same where its cycles and requeue batches come when Kueue's came, and the draws.

    A draw is the head of a ClusterQueue that goes by use, whose heap Kueue leaves out of order, or
    victims that Kueue sorts by what is no order.
    """
    certain, draws = _followed(course, state, snapshot, {})
    events, drawn = _followed(course, state, snapshot, _victims(course))
    if events == certain:
        return events, draws
    first = next(one or other for one, other in zip_longest(events, certain) if one != other)
    return events, (*drawn, f"{first}, as candidates go round")


def _victims(course: Course) -> Mapping[int, frozenset[str]]:
    """Return the UIDs of whom Kueue preempted in each cycle, by its number."""
    uids = {name: uid for uid, name in course.uids.items()}
    return {
        cycle.number: frozenset(
            uids[run.name]
            for run in course.runs
            if cycle.at <= run.evicted < cycle.at + TOLD_SECONDS
            and course.uids.get(run.by) in cycle.tried
        )
        for cycle in course.cycles
    }


def _followed(
    course: Course, state: State, snapshot: Snapshot, victims: Mapping[int, frozenset[str]]
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    # Batches come when they came, so quota lies idle for nobody.
    kueue = replace(snapshot.setup.kueue, requeue_seconds=0.0)
    play = _Played(course, filled(course, state, updated(snapshot, kueue=kueue)))
    batches = deque(sorted(at for at in course.batches if at > course.asked))
    heaps = _Heaps(course, snapshot)
    # Nothing has happened for a while: all rest but those that Kueue tries without a batch.
    first = batches[0] if batches else inf
    early = (cycle.tried for cycle in course.cycles if cycle.at < first)
    awake = frozenset(chain.from_iterable(early))
    play.simulation.rest(awake, preemptors=_preemptors(course))
    draws: dict[tuple[str, str], str] = {}
    queue_of, last = _cluster_queues(course), course.asked
    for cycle in course.cycles:
        wakes = False
        while batches and batches[0] < cycle.at:
            wakes = bool(batches.popleft())
        drawn = heaps.drawn(cycle)
        at = cycle.at - course.asked
        chosen = victims.get(cycle.number, ())
        changed = {
            queue_of[run.name]
            for run in course.runs
            if any(last <= moment < cycle.at for moment in (run.admitted, run.evicted, run.ended))
        }
        last = cycle.at
        for expected, taken in play.simulation.follow(
            at, wakes=wakes, drawn=drawn, victims=chosen, changed=changed
        ):
            text = f"{at:.2f}: {taken} before {expected}, in a heap that is not in order"
            draws.setdefault((taken, expected), text)
        play.take_down()
    return play.events, tuple(draws.values())


class _Heaps:
    """Heads of ClusterQueues that go by use: Kueue's heap of Workloads need not be in order."""

    # Kueue puts such a heap in order by moving one Workload after the other, in the order in which
    # a map of Go lists them, and only while a penalty is pending: ``rebuildAll`` in
    # ``cluster_queue.go``. Who is on top then is drawn, once use has changed.

    def __init__(self, course: Course, snapshot: Snapshot) -> None:
        queue_of = {
            name: snapshot.setup.cluster_queues[queue]
            for name, queue in _cluster_queues(course).items()
        }
        self._queue_of = {name: queue.name for name, queue in queue_of.items() if queue.usage_based}
        self._since: dict[str, float] = {}
        """ClusterQueue to when its use has first changed."""
        for run in reversed(course.runs):
            if run.name in self._queue_of:
                self._since[self._queue_of[run.name]] = run.started

    def drawn(self, cycle: SeenCycle) -> dict[str, str]:
        """Return the heads that Kueue took out of heaps that need not be in order."""
        return {
            self._queue_of[name]: name
            for name in cycle.tried
            if self._since.get(self._queue_of.get(name, ""), inf) < cycle.at
        }


class _Played:
    """An event loop in which runs end, and victims stop, when they really did."""

    def __init__(self, course: Course, simulation: Simulation) -> None:
        self.simulation = simulation
        self._ends, self._stops = _ends(course), _stops(course)
        self._events: list[Event] = []

    @property
    def events(self) -> tuple[Event, ...]:
        return _in_order(self._events)

    def take_down(self) -> None:
        simulation, ends, stops = self.simulation, self._ends, self._stops
        for victims in simulation.preempted:
            event = Event(
                at=victims.preempted_at,
                what=PREEMPTED,
                name=victims.key,
                detail=victims.preempted_by,
            )
            self._events.append(event)
            if stops[victims.key]:
                simulation.stop(victims.key, max(simulation.now, stops[victims.key].popleft()))
        for begun in simulation.begun:
            flavors = ",".join(sorted(set(begun.flavors)))
            event = Event(at=begun.at, what=STARTS, name=begun.key, detail=flavors)
            self._events.append(event)
            if ends[begun.key] and (end := ends[begun.key].popleft()):
                simulation.end(begun.key, max(simulation.now, end))
        simulation.preempted.clear()
        simulation.begun.clear()


def _ends(course: Course) -> Mapping[str, deque[float]]:
    """Return when each run after the question ended, by Workload; 0: it was preempted."""
    found: defaultdict[str, deque[float]] = defaultdict(deque)
    for run in course.runs:
        if run.started >= course.asked:
            found[run.name].append(
                quota_free_at(course, run) - course.asked if run.finished else 0.0
            )
    return found


def _preemptors(course: Course) -> frozenset[str]:
    """Return who had last preempted in its ClusterQueue at the question, and not started since.

    Only Kueue's memory has them, not its objects.
    """
    queue_of = _cluster_queues(course)
    last: dict[str, str] = {}
    events = [(run.started, "", run.name) for run in course.runs]
    events += [(run.evicted, course.uids.get(run.by, ""), "") for run in course.runs if run.evicted]
    for at, preemptor, started in sorted(events):
        if at >= course.asked:
            break
        if preemptor:
            last[queue_of[preemptor]] = preemptor
        elif started in last.values():
            del last[queue_of[started]]
    return frozenset(last.values())


def _cluster_queues(course: Course) -> Mapping[str, str]:
    """Return the ClusterQueue of each Workload, by name."""
    targets = {
        item["metadata"]["name"]: item["spec"]["clusterQueue"]
        for item in course.world.objects
        if item["kind"] == "LocalQueue"
    }
    return {
        item.name: targets[item.source["spec"]["queueName"]] for item in course.world.submissions
    }


def _stops(course: Course) -> Mapping[str, deque[float]]:
    """Return when each Workload gave its quota back that was preempted after the question."""
    # Those that stop between two cycles have all stopped for the next one, as a rule.
    last: dict[int, float] = {}
    for run in course.runs:
        if not run.seen_by:
            last[run.cycle] = max(quota_free_at(course, run), last.get(run.cycle, 0.0))
    found: defaultdict[str, deque[float]] = defaultdict(deque)
    for run in course.runs:
        if run.evicted >= course.asked and run.ended:
            free_at = quota_free_at(course, run) if run.seen_by else last[run.cycle]
            found[run.name].append(free_at - course.asked)
    return found


def filled(course: Course, state: State, snapshot: Snapshot) -> Simulation:
    """Return the event loop with what holds quota at the question, and with all that wait."""
    (tree,) = quota.plant(snapshot.setup.cluster_queues, snapshot.setup.cohorts).trees
    queues = snapshot.setup.cluster_queues.values()
    # Which heads come first is by Kueue's cycles, whose course is known from now on.
    simulation = Simulation(tree, queues, kueue=snapshot.setup.kueue, came_one_by_one=False)
    simulation.eviction_seconds = _eviction_seconds(course)
    simulation.unix = course.asked
    if (use := use_of(snapshot.setup, tree, unix=course.asked)) is not None:
        simulation.order_by_use(use)
    runs = {run.name: run for run in course.runs if run.started < course.asked}
    demands: dict[Demand, Demand] = {}
    arrivals = as_pending(course)
    for name in snapshot.setup.cluster_queues:
        for workload in state.contents_of(name).holding:
            run = runs[workload.name]
            simulation.add_running(
                Running(
                    cluster_queue=name,
                    usage=dict(workload.charge),
                    seconds=quota_free_at(course, run) - course.asked
                    if run.finished
                    else MOST_SECONDS * 2,
                    key=workload.name,
                    priority=workload.priority,
                    order=workload.queued_at,
                    reserved_at=workload.reserved_at - course.asked,
                    uid=workload.uid,
                    demand=demands.setdefault(
                        asked := demand(
                            arrivals[workload.name].needs,
                            snapshot.setup.cluster_queues[name],
                            snapshot.setup,
                        ),
                        asked,
                    ),
                    local_queue=f"{workload.namespace}/{workload.queue}",
                    whole=(MOST_SECONDS * 2, 0.0),
                )
            )
    waiting = [
        (workload.queued_at, group.arrival, workload.name)
        for name in snapshot.setup.cluster_queues
        for group in state.contents_of(name).waiting
        for workload in group.members
    ]
    came = course.came - course.asked
    uids = {name: uid for uid, name in course.uids.items()}
    last = arrivals[course.world.newcomer.name]
    for created, arrival, name in sorted(waiting, key=lambda row: (row[0], row[2])):
        _wait(
            simulation,
            snapshot,
            replace(arrival, key=name),
            created,
            at=0.0,
            uid=uids[name],
            demands=demands,
        )
    _wait(
        simulation, snapshot, last, int(course.asked), at=came, uid=uids[last.key], demands=demands
    )
    return simulation


def _wait(
    simulation: Simulation,
    snapshot: Snapshot,
    arrival: Arrival,
    created: int,
    *,
    at: float,
    uid: str,
    demands: dict[Demand, Demand],
) -> None:
    group = worlds.waiting(arrival, snapshot, seconds=MOST_SECONDS * 2, at=at, count=1)
    # Kueue, too, knows equal Workloads by a hash of what they ask for.
    asked = demands.setdefault(group.demand, group.demand)
    simulation.add_waiting(replace(group, uid=uid, demand=asked), age=created)


def as_pending(course: Course) -> dict[str, Arrival]:
    """Read each Workload of a world as the product reads one that it sees before Kueue does."""
    return {
        workload.name: replace(group.arrival, key=workload.name)
        for group in _unseen_by_kueue(course)
        for workload in group.members
    }


def _unseen_by_kueue(course: Course) -> list[Group]:
    sources = [item for item in course.state if item["kind"] != "Workload"]
    for uid, name in course.uids.items():
        source = next(item.source for item in course.world.submissions if item.name == name)
        metadata = {**source["metadata"], "uid": uid, "creationTimestamp": _text(course.asked)}
        sources.append({**source, "metadata": metadata})
    state, snapshot = read(course, sources)
    return [
        group for name in snapshot.setup.cluster_queues for group in state.contents_of(name).waiting
    ]


def newcomer(course: Course, state: State, snapshot: Snapshot) -> ForetoldNewcomer:
    arrival = as_pending(course)[course.world.newcomer.name]
    place = snapshot.setup.local_queues[arrival.namespace, arrival.local_queue].cluster_queue
    queue = snapshot.setup.cluster_queues[place]
    run_times = known_run_times(course, state.workloads())
    snapshot = with_priorities(snapshot)
    forecasts = forecast.forecast(
        forecast_givens(snapshot, lambda job_class, _: run_times.get(job_class), course.asked),
        _holding(state, snapshot),
        _queued(state, snapshot),
    )
    asked = Asked(
        queue=queue,
        demand=demand(arrival.needs, queue, snapshot.setup),
        setup=snapshot.setup,
        now=course.asked,
        priority=arrival.priority,
        local_queue=arrival.local_queue_key,
        needs=arrival.needs,
    )
    runs = [run for run in course.runs if run.name == course.world.newcomer.name]
    took = [run.ended - run.started for run in runs if run.finished]
    seconds = took[0] if took else course.world.newcomer.run_seconds
    first, last = (
        start_of(forecasts[place], asked, run_seconds=each).start for each in (0.0, seconds)
    )
    uid = next((uid for uid, name in course.uids.items() if name == arrival.key), "")
    return ForetoldNewcomer(
        name=arrival.key,
        forecast=replace(first, preempted_by=last.preempted_by),
        waited=runs[0].started - course.came if runs else inf,
        preempts=sum(run.by == uid for run in course.runs if run.evicted),
        preempted_by=sum(bool(run.evicted) for run in runs),
    )


def pending(course: Course, state: State, snapshot: Snapshot) -> tuple[Foretold, ...]:
    """Return what is said of all that wait, and what became of them."""
    name = course.world.newcomer.name
    group = next(
        group for group in _unseen_by_kueue(course) if name in {each.name for each in group.members}
    )
    last = next(workload for workload in group.members if workload.name == name)
    run_times = known_run_times(course, [*state.workloads(), last])
    coming = pending_group(
        replace(group.arrival, key=name, count=1, created=int(course.came)),
        job_class=forecast_input.class_text(last),
        at=course.came,
    )
    starts = forecast.pending_starts(
        forecast_givens(
            with_priorities(snapshot), lambda job_class, _: run_times.get(job_class), course.asked
        ),
        _holding(state, snapshot),
        [*_queued(state, snapshot), coming],
    )
    first: dict[str, float] = {}
    for run in sorted(course.runs, key=lambda run: run.started):
        if run.started >= course.asked:
            first.setdefault(run.name, run.started - course.asked)
    return tuple(
        Foretold(name=key, forecast=start, waited=first.get(key, inf))
        for key, (start,) in starts.items()
        if key != name
    )


def _holding(state: State, snapshot: Snapshot) -> list[Running]:
    return [
        run
        for name in sorted(snapshot.setup.cluster_queues)
        for run in forecast_input.running_in(name, state.contents_of(name).holding, 0.0)
    ]


def _queued(state: State, snapshot: Snapshot) -> list[PendingGroup]:
    """Return each that waits by itself, under its name."""
    groups = [
        group
        for name in sorted(snapshot.setup.cluster_queues)
        for group in forecast_input.queued(
            state.contents_of(name).waiting, 0.0, key_of=lambda workload: workload.name
        )
    ]
    return sorted(groups, key=lambda group: group.created)


def with_priorities(snapshot: Snapshot) -> Snapshot:
    """Tell of the priorities that a newcomer may have; there are no classes of them here."""
    return updated(snapshot, priority_classes={str(value): value for value in PRIORITIES})


def known_run_times(course: Course, workloads: Iterable[Workload]) -> dict[str, RunTime]:
    """Return the run time of each class, by which each Workload is one: as long as it took."""
    planned = {item.name: item.run_seconds for item in course.world.submissions}
    took = {
        run.name: run.ended - max(run.started, course.asked) for run in course.runs if run.finished
    }
    found = {}
    for workload in workloads:
        elapsed = course.asked - workload.admitted if workload.admitted else 0.0
        whole = (took.get(workload.name) or planned[workload.name]) + elapsed
        found[forecast_input.class_text(workload)] = RunTime(
            seconds=whole, low=whole, high=whole, basis=Basis.LEARNED, runs=100
        )
    return found


def _eviction_seconds(course: Course) -> float:
    """Return how long victims really held their quota."""
    took = [run.ended - run.evicted for run in course.runs if run.evicted and run.ended]
    return sum(took) / len(took) if took else 1.0


def _in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Sort events, first the starts; Kueue writes to all that it preempts for one at a time."""
    found: list[Event] = []
    ordered = sorted(events, key=lambda event: event.at)
    found += [event for event in ordered if event.what == STARTS]
    rounds: list[list[Event]] = []
    for event in ordered:
        if event.what != PREEMPTED:
            continue
        last = rounds[-1] if rounds else []
        # Nobody is preempted twice at once.
        if not last or last[0].detail != event.detail or event.name in {e.name for e in last}:
            rounds.append(last := [])
        last.append(event)
    found += chain.from_iterable(
        sorted(victims, key=lambda event: event.name) for victims in rounds
    )
    return tuple(found)


def _text(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
