"""Plays worlds on a real Kueue, many at once: Workloads come, run for their time and end.

It does what the controller of a kind of Job does: it ends runs, and lets Workloads that are
preempted give their quota back. It knows nothing of whom Kueue serves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from hack import kueue
from hack.api import ApiClient, ApiError, Object
from hack.waiting import wait_for
from tests.e2e.plane import has_condition
from tests.e2e.timed_worlds import KUEUE, LABEL, Submission, TimedWorld

EVICTION_SECONDS: Final = 1.0
"""For how long a preempted Workload holds its quota; the event loop's own."""
BATCH_SECONDS: Final = 1.0
"""After so long Kueue tries those again that did not fit (``requeueBatchPeriod``)."""
APART_SECONDS: Final = 0.4
"""Nothing of a world ends sooner after anything else: Kueue is to be done with one before it hears
of the other, on a busy machine, too."""
CALM_SECONDS: Final = 2.5
"""Without an event for so long, nothing but the end of a run can change anything."""
AGITATED_SECONDS: Final = 90.0
"""A world that does not become calm within so long has been disturbed."""
MOST_EVICTIONS: Final = 20
"""Kueue may let Workloads preempt each other in turn for ever; then nothing more comes of it."""
OVER_SECONDS: Final = 4.0
"""Where nothing runs, so long after the last event the rest never starts."""
PLAYED_SECONDS: Final = 600.0
IDLE_SECONDS: Final = 1.0
"""A scheduler that waits for heads for so long has none."""
TICK_SECONDS: Final = 0.02
CALLS_AT_ONCE: Final = 8


class What(StrEnum):
    """What Kueue says in its log of a Workload, or of a cohort tree."""

    CAME = "came"
    STARTS = "starts"
    PREEMPTED = "preempted"
    ADMITTED = "admitted"
    """Its admission has been written."""
    FINISHED = "finished"
    STOPPED = "stopped"
    """It has given its quota back, and waits again."""
    REFUSED = "refused"
    """It does not fit, and is not tried again before the next batch."""
    BATCH = "batch"
    """What did not fit is tried again."""
    USED = "used"
    """What a LocalQueue has used; its status says so later."""
    CYCLE = "cycle"
    """A scheduling cycle is about to wait for heads."""
    HEADS = "heads"
    """It has some."""
    SNAPSHOT = "snapshot"
    """It has read who holds quota."""
    TRIED = "tried"
    """A cycle has it among its heads."""
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    at: float
    """In seconds since 1970."""
    what: What
    namespace: str
    """For a batch, the root of the tree."""
    name: str = ""
    by: str = ""
    """The UID of the Workload that preempts it."""
    used: Object = field(default_factory=dict)


class KueueLog:
    """Reads what Kueue writes to its log while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = ""

    def __enter__(self) -> Self:
        self._file = self._path.open(encoding="utf-8", errors="replace")
        self._file.seek(0, 2)
        return self

    def __exit__(self, *_failure: object) -> None:
        self._file.close()

    def news(self) -> Iterator[LogEvent]:
        """Yield what has been written since the last call."""
        text = self._rest + self._file.read()
        *lines, self._rest = text.split("\n")
        for line in lines:
            if any(message in line for message in _MESSAGES) and (event := _read(line)):
                yield event


_MEANINGS: Final = {
    "Scheduling cycle starts": What.CYCLE,
    "Obtained heads": What.HEADS,
    "Snapshot taken": What.SNAPSHOT,
    "Scheduling cycle complete": What.DONE,
    "Attempting to schedule workload": What.TRIED,
    "Attempting to move workloads": What.BATCH,
    "Workload assumed in the cache": What.STARTS,
    "Workload create event": What.CAME,
    "Updated AFS consumed usage": What.USED,
    "Workload couldn't be admitted. Moving the head of this ClusterQueue to the consecutive "
    "Workload.": What.REFUSED,
}
_MESSAGES: Final = (
    *(f'"msg":"{message}"' for message in _MEANINGS),
    '"msg":"Workload update event"',
    '"reason":"Preempted"',
)


def _read(line: str) -> LogEvent | None:
    entry = json.loads(line)
    what = _meaning(entry)
    if what is None:
        return None
    at = datetime.fromisoformat(entry["ts"]).timestamp()
    if what is What.USED:
        place, used = entry["localQueue"], entry["consumed"]
        namespace, name = place["namespace"], place["name"]
        return LogEvent(at=at, what=what, namespace=namespace, name=name, used=used)
    if what is What.BATCH:
        return LogEvent(at=at, what=what, namespace=entry.get("rootCohort", ""))
    workload = entry.get("workload", entry.get("object"))
    if workload is None:
        return LogEvent(at=at, what=what, namespace="")
    if isinstance(workload, str):
        namespace, _, name = workload.partition("/")
        workload = {"namespace": namespace, "name": name}
    by = entry["note"].split("UID: ")[1].split(",")[0] if what is What.PREEMPTED else ""
    return LogEvent(at=at, what=what, namespace=workload["namespace"], name=workload["name"], by=by)


def _meaning(entry: Object) -> What | None:
    if entry.get("reason") == "Preempted":
        return What.PREEMPTED
    if entry["msg"] in _MEANINGS:
        return _MEANINGS[entry["msg"]]
    change = entry.get("prevStatus"), entry.get("status")
    if change[1] == "finished" and change[0] not in (None, "finished"):
        return What.FINISHED
    if change[0] in ("admitted", "quotaReserved") and change[1] == "pending":
        return What.STOPPED
    if change[0] == "pending" and change[1] in ("admitted", "quotaReserved"):
        return What.ADMITTED
    return None


@dataclass(slots=True)
class Cycles:
    """How far Kueue's scheduler is."""

    begun: int = 0
    begun_at: float = 0.0
    """When the last one had its heads."""
    done: int = 0
    waits_since: float = 0.0
    """When it began to wait for heads; 0: it does not."""
    is_reading: bool = False
    """The last one has its heads, and reads who holds quota."""

    def see(self, event: LogEvent) -> None:
        if event.what is What.CYCLE:
            self.waits_since = event.at
        elif event.what is What.HEADS:
            self.begun, self.waits_since = self.begun + 1, 0.0
            self.begun_at, self.is_reading = event.at, True
        elif event.what is What.SNAPSHOT:
            self.is_reading = False
        elif event.what is What.DONE:
            self.done = self.begun

    def is_past(self, begun: int, now: float) -> bool:
        """Tell whether all was tried after so many cycles had begun."""
        # The cycle that had begun may have taken its heads before, and the next one may still find
        # its quota taken by others of the cycle.
        return self.done >= begun + 2 or 0.0 < self.waits_since < now - IDLE_SECONDS


@dataclass(slots=True, kw_only=True)
class Run:
    """From quota to its end, by Kueue's log, in seconds since 1970."""

    name: str
    started: float
    due: float
    """When it is to end; before the question, how long it is to run after it."""
    flavors: str = ""
    admitted: float = 0.0
    """When Kueue saw its admission written."""
    evicted: float = 0.0
    by: str = ""
    """The UID of the Workload that preempts it."""
    is_ending: bool = False
    ended: float = 0.0
    """When its quota was free again."""
    finished: bool = False
    cycle: int = 0
    """How many cycles had begun by then."""
    is_in_between: bool = False
    """It ended when that cycle had its heads and read who holds quota: it may have seen it free."""
    seen_by: int = 0
    """The number of the cycle that is taken to have been the first to see its quota free, where
    Kueue's log leaves that open; 0: the likeliest."""


@dataclass(slots=True, kw_only=True)
class SeenCycle:
    """A scheduling cycle in which Workloads of a world were tried."""

    number: int
    at: float
    """When it had its heads, in seconds since 1970."""
    tried: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Course:
    """What happened in a world."""

    world: TimedWorld
    runs: list[Run] = field(default_factory=list)
    """In Kueue's order."""
    uids: dict[str, str] = field(default_factory=dict)
    """UID to name."""
    asked: float = 0.0
    """When the newcomer's start was asked for, in seconds since 1970; it came right after that."""
    state: list[Object] = field(default_factory=list)
    """All objects as they were then."""
    came: float = 0.0
    """When Kueue heard of the newcomer."""
    batches: list[float] = field(default_factory=list)
    cycles: list[SeenCycle] = field(default_factory=list)
    """Those after the question."""
    used: list[LogEvent] = field(default_factory=list)
    """What Kueue said of the use of LocalQueues."""
    is_over: bool = False
    is_endless: bool = False
    """It ended because Kueue lets Workloads preempt each other in turn."""
    failure: str = ""

    def running(self, name: str) -> Run | None:
        return next(
            (run for run in reversed(self.runs) if run.name == name and not run.ended), None
        )


def play(client: ApiClient, log: Path, worlds: Sequence[TimedWorld]) -> list[Course]:
    """Play worlds at once until each is over; *log* is Kueue's."""
    with ThreadPoolExecutor(max_workers=CALLS_AT_ONCE) as pool, KueueLog(log) as kueue_log:
        tuple(pool.map(lambda world: _set_up(client, world), worlds))
        for world in worlds:
            wait_for(lambda world=world: _are_active(client, world), f"{world.namespace} is active")
        try:
            return _Player(client, pool, kueue_log, worlds).play()
        finally:
            tuple(pool.map(lambda world: _clean_up(client, world), worlds))


def _set_up(client: ApiClient, world: TimedWorld) -> None:
    for item in world.objects:
        metadata = item["metadata"]
        place = item["apiVersion"], item["kind"], metadata["name"]
        # A world that is played again may still be on its way out.
        wait_for(
            lambda place=place, metadata=metadata: (
                client.find(*place, namespace=metadata.get("namespace", "")) is None
            ),
            f"{place[-1]} is gone",
        )
        client.create(item)


class _Player:
    def __init__(
        self,
        client: ApiClient,
        pool: ThreadPoolExecutor,
        log: KueueLog,
        worlds: Sequence[TimedWorld],
    ) -> None:
        self._log, self._cycles = log, Cycles()
        begin = time.time() + 1.0
        self._playing = {
            world.namespace: _World(
                client,
                pool,
                Course(world=world),
                self._cycles,
                begins=begin + 1.0 * number / len(worlds),
            )
            for number, world in enumerate(worlds)
        }

    def play(self) -> list[Course]:
        deadline = time.monotonic() + PLAYED_SECONDS
        playing = self._playing.values()
        while any(not world.course.is_over for world in playing) and time.monotonic() < deadline:
            for event in self._log.news():
                self._cycles.see(event)
                world = self._playing.get(event.namespace.removesuffix("-all"))
                if world is not None:
                    world.see(event)
            now = time.time()
            for world in playing:
                if not world.course.is_over:
                    world.act(now)
            time.sleep(TICK_SECONDS)
        for world in playing:
            if not world.course.is_over:
                world.course.failure = world.course.failure or "was not over in time"
        return [world.course for world in playing]


class _World:
    """One world as it is played."""

    def __init__(
        self,
        client: ApiClient,
        pool: ThreadPoolExecutor,
        course: Course,
        cycles: Cycles,
        *,
        begins: float,
    ) -> None:
        self.course, self._cycles, self._begun = course, cycles, 0
        self._client, self._pool = client, pool
        self._coming = list(course.world.submissions[:-1])
        self._seconds = {item.name: item.run_seconds for item in course.world.submissions}
        self._next_at = begins
        self._calls: list[Future[Any]] = []
        self._last_at = begins
        self._asks_since = 0.0
        self._batch_at = 0.0
        """When Kueue's next requeue batch is to come at the latest; 0: none is."""
        self._has_batch = False
        """One has come since quota was last released."""

    def see(self, event: LogEvent) -> None:
        """Take down what Kueue says."""
        course, at = self.course, event.at
        if event.what is What.TRIED:
            self._note_tried(event.name)
            return
        if self._asks_since <= at < course.asked:
            course.failure, course.is_over = "something happened as it was asked", True
        self._last_at = max(self._last_at, at)
        self._begun = self._cycles.begun
        run = course.running(event.name)
        if event.what is What.BATCH:
            self._has_batch = True
            course.batches.append(at)
        elif event.what is What.USED:
            course.used.append(event)
        elif event.what is What.CAME and event.name == course.world.newcomer.name:
            course.came = at
        elif event.what is What.STARTS:
            due = self._seconds[event.name] + (at if course.asked else 0.0)
            course.runs.append(Run(name=event.name, started=at, due=due))
        elif event.what is What.ADMITTED:
            self._note_admitted(event, run)
        elif run is not None and event.what is What.PREEMPTED:
            run.evicted, run.by = run.evicted or at, event.by
            evictions = sum(bool(each.evicted) for each in course.runs if each.name == run.name)
            course.is_endless |= evictions > MOST_EVICTIONS
            course.is_over = course.is_over or course.is_endless
        elif run is not None and event.what in (What.FINISHED, What.STOPPED):
            run.ended, run.finished = at, event.what is What.FINISHED
            run.cycle, run.is_in_between = self._cycles.begun, self._cycles.is_reading
            self._batch_at, self._has_batch = self._batch_at or at + BATCH_SECONDS, False

    def _note_admitted(self, event: LogEvent, run: Run | None) -> None:
        if run is not None:
            run.admitted = event.at
        else:
            # On a busy machine Kueue writes an admission when its quota was given back already.
            self.course.failure, self.course.is_over = f"{event.name} was admitted late", True

    def _note_tried(self, name: str) -> None:
        course, cycles = self.course, self._cycles
        if not course.asked:
            return
        if not course.cycles or course.cycles[-1].number != cycles.begun:
            course.cycles.append(SeenCycle(number=cycles.begun, at=cycles.begun_at))
        course.cycles[-1].tried.append(name)

    def act(self, now: float) -> None:
        """Do what is due."""
        course = self.course
        # Reconcilers of Kueue let a batch come early at times: nothing happens in between.
        if self._has_batch and now > self._batch_at + APART_SECONDS:
            self._batch_at = 0.0
        try:
            for call in self._calls:
                if call.done():
                    call.result()
        except (ApiError, OSError, AssertionError) as error:
            course.failure, course.is_over = f"a call failed: {error!r}", True
            return
        self._calls = [call for call in self._calls if not call.done()]
        self._give_back(now)
        if self._calls:
            return
        if self._coming:
            self._submit_next(now)
        elif not course.asked:
            if self._is_calm(now):
                self._call(self._ask)
        elif course.came:
            self._end_next(now)

    def _submit_next(self, now: float) -> None:
        if now >= self._next_at:
            self._call(self._submit, self._coming.pop(0))

    def _submit(self, submission: Submission) -> None:
        created = self._client.create(submission.source)
        self.course.uids[created["metadata"]["uid"]] = submission.name
        now = time.time()
        self._last_at = max(self._last_at, now)
        # Times of creation are whole seconds, and Kueue goes by them. On a busy machine it is
        # created long after it was to be.
        self._next_at = now + 1.05

    def _is_calm(self, now: float) -> bool:
        if now - self._next_at > AGITATED_SECONDS:
            self.course.failure, self.course.is_over = "was never calm", True
        evicted = any(run.evicted and not run.ended for run in self.course.runs)
        is_quiet = self._is_quiet(now) and now - self._last_at > CALM_SECONDS
        return not evicted and not self._batch_at and is_quiet

    def _is_quiet(self, now: float) -> bool:
        """Tell whether Kueue is done with all that it has heard of."""
        is_past = self._cycles.is_past(self._begun, now)
        return is_past and now - self._last_at > APART_SECONDS

    def _ask(self) -> None:
        """Take down the state, then let the newcomer come."""
        course, namespace = self.course, self.course.world.namespace
        self._asks_since = time.time()
        for version, kind, place in _WATCHED:
            selector = "" if place else f"{LABEL}={namespace}"
            found = self._client.list(
                version, kind, namespace=place and namespace, selector=selector
            )
            course.state += [{**item, "apiVersion": version, "kind": kind} for item in found]
        for version, kind in _OF_KUEUE:
            found = self._client.list(version, kind, namespace=kueue.NAMESPACE)
            course.state += [{**item, "apiVersion": version, "kind": kind} for item in found]
        last = {event.name: event for event in course.used}
        for item in course.state:
            if item["kind"] == "LocalQueue" and (used := last.get(item["metadata"]["name"])):
                # On a busy machine no status may be there yet.
                status = item.setdefault("status", {}).setdefault("fairSharing", {})
                status["admissionFairSharingStatus"] = {
                    "consumedResources": used.used,
                    "lastUpdate": _text(used.at),
                }
        course.asked = now = time.time()
        for run in course.runs:
            if not run.ended:
                run.due += now
        self._submit(course.world.newcomer)

    def _end_next(self, now: float) -> None:
        if not any(not run.ended for run in self.course.runs):
            if not self._batch_at and self._is_quiet(now) and now - self._last_at > OVER_SECONDS:
                self.course.is_over = True
            return
        runs = [run for run in self.course.runs if not (run.ended or run.evicted or run.is_ending)]
        if not runs or not self._is_free(now):
            return
        first = min(runs, key=lambda run: run.due)
        if first.due <= now:
            first.is_ending = True
            self._call(self._finish, first)

    def _is_free(self, now: float) -> bool:
        """Tell whether Kueue is done, and does nothing soon: so nobody's latency decides."""
        stops = any(run.evicted and not run.ended for run in self.course.runs)
        is_ending = any(run.is_ending and not run.ended for run in self.course.runs)
        return self._is_quiet(now) and not (self._batch_at or stops or is_ending)

    def _give_back(self, now: float) -> None:
        for run in self.course.runs:
            is_due = run.evicted and not run.ended and now - run.evicted >= EVICTION_SECONDS
            if is_due and not run.is_ending:
                run.is_ending = True
                self._call(self._stop, run)

    def _finish(self, run: Run) -> None:
        self._set_conditions(run, _condition("Finished", "True", "Succeeded", "its run is over"))

    def _stop(self, run: Run) -> None:
        """Do what Kueue does once the pods of an evicted Job are gone."""
        reason, message = "Preempted", "Preempted"
        self._set_conditions(
            run,
            _condition("Requeued", "True", reason, message),
            _condition("QuotaReserved", "False", "Pending", message),
            _condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
            admission=None,
        )

    def _set_conditions(self, run: Run, *conditions: Object, **status: Any) -> None:
        namespace = self.course.world.namespace
        workload = wait_for(lambda: self._admitted(run.name), f"{namespace}/{run.name} is admitted")
        assigned = workload["status"]["admission"]["podSetAssignments"]
        run.flavors = ",".join(sorted({f for item in assigned for f in item["flavors"].values()}))
        changed = {condition["type"]: condition for condition in conditions}
        kept = [c for c in workload["status"]["conditions"] if c["type"] not in changed]
        self._client.patch(
            KUEUE,
            "Workload",
            run.name,
            {"status": {"conditions": [*kept, *conditions], **status}},
            namespace=namespace,
            subresource="status",
        )

    def _admitted(self, name: str) -> Object | None:
        """Return a Workload once its quota is on it, too, and not only in Kueue's memory."""
        workload = self._client.get(KUEUE, "Workload", name, namespace=self.course.world.namespace)
        return workload if has_condition(workload, "QuotaReserved") else None

    def _call(self, function: Any, *arguments: Any) -> None:
        self._calls.append(self._pool.submit(function, *arguments))


_WATCHED: Final = (
    (KUEUE, "ClusterQueue", False),
    (KUEUE, "LocalQueue", True),
    (KUEUE, "Cohort", False),
    (KUEUE, "ResourceFlavor", False),
    ("v1", "Namespace", False),
    (KUEUE, "Workload", True),
)
_OF_KUEUE: Final = (("v1", "ConfigMap"), ("apps/v1", "Deployment"))


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _text(time.time()),
    }


def _text(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _are_active(client: ApiClient, world: TimedWorld) -> bool:
    queues = client.list(KUEUE, "ClusterQueue", selector=f"{LABEL}={world.namespace}")
    queues += client.list(KUEUE, "LocalQueue", namespace=world.namespace)
    return all(has_condition(item, "Active") for item in queues)


def _clean_up(client: ApiClient, world: TimedWorld) -> None:
    for item in world.submissions:
        client.delete(KUEUE, "Workload", item.name, namespace=world.namespace)
    for item in reversed(world.objects):
        namespace = item["metadata"].get("namespace", "")
        client.delete(
            item["apiVersion"], item["kind"], item["metadata"]["name"], namespace=namespace
        )
