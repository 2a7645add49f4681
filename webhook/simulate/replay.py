"""A replay of a scenario under one strategy: the event loop on true run times, admission on it.

Each Job is decided by ``flow`` on what admission would know at that moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from webhook import flow
from webhook.cluster.run_times import RunTimes
from webhook.decide import quota
from webhook.decide.arrivals import as_submitted
from webhook.decide.demand import NOWHERE, Demand, demand
from webhook.decide.lines import Waiting
from webhook.decide.occupancy import namespace_labels
from webhook.decide.schedule import Begun, Schedule
from webhook.decide.tree import Tree
from webhook.jobs import KINDS
from webhook.model import job_class
from webhook.model.decision import Decision
from webhook.model.fields import FieldError
from webhook.model.job import Job
from webhook.model.queues import Amounts, Arrival, ClusterQueue, Snapshot, StopPolicy
from webhook.model.why import why_stayed
from webhook.simulate.forecasts import Forecasts, Joining
from webhook.simulate.known import Known
from webhook.simulate.moving import Moving
from webhook.simulate.results import JobResult, Result
from webhook.simulate.scenario import Arm, Scenario, Submission

_KIND = KINDS["batch", "v1", "Job"]
_RULES = flow.Rules()


def replay(
    scenario: Scenario,
    arm: Arm,
    *,
    progress: Callable[[int], None] = lambda _: None,
    run_times: RunTimes | None = None,
) -> Result:
    """Run all Jobs through the queues; *progress* is told how many have arrived.

    *run_times* is what is learned before, None: nothing; what is learned here is added to it.

    Raises:
        FieldError: a Job cannot be queued, or is given flavors on which its run time is not said.

    """
    return _Replay(scenario, arm, run_times or RunTimes()).run(progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    """A Job that was let in, and where its Workload is."""

    submission: Submission
    arrival: Arrival
    cluster_queue: str
    job: Job


class _Replay:
    def __init__(self, scenario: Scenario, arm: Arm, run_times: RunTimes) -> None:
        self._scenario, self._arm = scenario, arm
        self._snapshot = replace(scenario.snapshot, policies=arm.policies)
        self._known = Known(self._snapshot)
        self._forecasts = Forecasts(self._snapshot, run_times)
        self._moving = Moving(self._snapshot, self._forecasts)
        self._policies = {policy.name: policy for policy in arm.policies}
        self._schedules = tuple(_schedules(self._snapshot))
        self._places = {
            name: index
            for index, schedule in enumerate(self._schedules)
            for name in schedule.tree.leaves
        }
        self._agenda: list[tuple[float, int]] = []
        """A heap of moments at which something may happen in a tree."""
        self._queued: dict[str, _Queued] = {}
        self._number = 0
        self._results: dict[str, JobResult] = {}
        self._demands: dict[Demand, Demand] = {}
        """Equal ones are one, so that those who ask the same stand in one line."""

    def run(self, progress: Callable[[int], None]) -> Result:
        for number, submission in enumerate(self._scenario.submissions, 1):
            self._go_to(submission.at)
            self._submit(submission)
            self._go_to(submission.at)
            progress(number)
        self._go_to(inf)
        jobs = (self._results[each.name] for each in self._scenario.submissions)
        return Result(strategy=self._arm.name, jobs=tuple(jobs))

    def _go_to(self, now: float) -> None:
        agenda = self._agenda
        while agenda and min(agenda[0][0], self._moving.next_look) <= now:
            if self._moving.next_look <= agenda[0][0]:
                self._reconsider(self._moving.next_look)
                continue
            at, index = heapq.heappop(agenda)
            schedule = self._schedules[index]
            # Else what was to happen at this moment has happened, or was taken back.
            if schedule.next_event() <= at:
                schedule.step()
                self._note(schedule)
                self._expect(index)

    def _reconsider(self, now: float) -> None:
        """Move whom the controller would move at this moment."""
        view = self._known.at(self._forecasts.snapshot(now), self._heads())
        for key, arrival in self._moving.look(view.snapshot, now):
            one = self._queued.pop(key)
            self._schedules[self._places[one.cluster_queue]].withdraw(key)
            self._known.leave(one.cluster_queue, one.arrival)
            age = self._forecasts.leave(key)
            self._results[key] = replace(
                self._results[key], queue=arrival.local_queue, option=arrival.option
            )
            self._wait(one.submission, arrival, one.job, now=now, age=age)

    def _expect(self, index: int) -> None:
        if (at := self._schedules[index].next_event()) < inf:
            heapq.heappush(self._agenda, (at, index))

    def _submit(self, submission: Submission) -> None:
        source = self._scenario.manifest(submission)
        job = _KIND.read(source)
        moment = flow.Moment(
            now=submission.at, unix=submission.at, time="1970-01-01T00:00:00Z", uid=submission.name
        )
        view = self._known.at(self._forecasts.seen(job, submission.at), self._heads())
        view = self._forecasts.foreseen(view)
        outcome = flow.consider(source, _KIND, view, moment, _RULES)
        arrival = outcome.arrival or as_submitted(job, view.snapshot, uid=submission.name)
        if arrival is None:
            raise FieldError(f"jobs.{submission.template}", "expected a Job that can be queued")
        self._results[submission.name] = JobResult(
            name=submission.name,
            template=submission.template,
            arrival=submission.at,
            submitted=job.queue,
            queue=arrival.local_queue,
            option=(outcome.decision.option or "") if outcome.decision else "",
            policy=outcome.decision.policy if outcome.decision else "",
            why="" if arrival.local_queue != job.queue else _why(outcome.decision),
        )
        self._number += 1
        self._wait(submission, arrival, job, now=submission.at, age=self._number)
        if submission.name in self._queued:
            self._moving.join(submission.name, job, arrival, submission.at)

    def _wait(
        self, submission: Submission, arrival: Arrival, job: Job, *, now: float, age: int
    ) -> None:
        place = self._snapshot.local_queues[arrival.namespace, arrival.local_queue]
        queue = self._snapshot.cluster_queues.get(place.cluster_queue)
        if queue is None or place.stop_policy is not StopPolicy.NONE:
            return
        self._known.join(queue.name, arrival)
        index = self._places.get(queue.name)
        if index is None or not self._is_selected(arrival, queue):
            return
        key = submission.name
        self._queued[key] = _Queued(
            submission=submission, arrival=arrival, cluster_queue=queue.name, job=job
        )
        asked = self._demand(arrival, queue)
        policy = self._policies.get(arrival.policy)
        joining = Joining(
            key=key,
            cluster_queue=queue.name,
            arrival=arrival,
            demand=asked,
            job_class=job_class.of_job(job, policy.spec.job_class_label if policy else None),
            generation=policy.generation if policy else 0,
        )
        self._forecasts.join(joining, now, age=age)
        waiting = Waiting(
            cluster_queue=queue.name,
            demand=asked,
            seconds=inf,
            by_flavors=_TrueRunTimes(submission, arrival.option),
            priority=arrival.priority,
            at=now,
            key=key,
        )
        self._schedules[index].add_waiting(waiting, age=age)
        heapq.heappush(self._agenda, (now, index))

    def _is_selected(self, arrival: Arrival, queue: ClusterQueue) -> bool:
        return queue.namespaces.matches(namespace_labels(self._snapshot, arrival.namespace))

    def _demand(self, arrival: Arrival, queue: ClusterQueue) -> Demand:
        try:
            found = demand(arrival.needs, queue, self._snapshot)
        except FieldError:
            # Kueue cannot judge it either: it stays pending.
            found = NOWHERE
        return self._demands.setdefault(found, found)

    def _note(self, schedule: Schedule) -> None:
        """Take down who ended and who started in the last step."""
        for ended in schedule.ended:
            one = self._queued.pop(ended.key)
            self._known.end(one.cluster_queue, one.arrival, _amounts(schedule.tree, ended))
            flavors = ",".join(sorted(set(ended.flavors)))
            self._forecasts.end(ended.key, ended.at, ended.finish, flavors)
        for begun in schedule.begun:
            one, usage = self._queued[begun.key], _amounts(schedule.tree, begun)
            self._known.start(one.cluster_queue, one.arrival, usage)
            self._forecasts.start(begun.key, begun.at, usage)
            self._moving.start(begun.key)
            self._results[begun.key] = replace(
                self._results[begun.key], start=begun.at, finish=begun.finish, held=usage
            )
        schedule.ended.clear()
        schedule.begun.clear()

    def _heads(self) -> Mapping[str, Arrival]:
        """Name who waits first in StrictFIFO queues."""
        if not self._known.sets_aside:
            return {}
        return {
            line.queue.name: self._queued[line.entries[0][2].waiting.key].arrival
            for schedule in self._schedules
            for line in schedule.waiting()
            if line.is_strict
        }


class _TrueRunTimes(Mapping[str, tuple[float, float]]):
    """Flavors to how long one Job really runs there: what is never needed need not be said."""

    def __init__(self, submission: Submission, option: str) -> None:
        self._submission, self._option = submission, option

    def __getitem__(self, flavors: str) -> tuple[float, float]:
        return self._submission.seconds_on(flavors, self._option), 0.0

    def __iter__(self) -> Iterator[str]:
        return iter(self._submission.run_seconds)

    def __len__(self) -> int:
        return len(self._submission.run_seconds)


def _why(decision: Decision | None) -> str:
    if decision is None:
        return ""
    refused = (
        (each.option, str(each.rejection.reason) if each.rejection else "")
        for each in decision.options
    )
    return why_stayed(decision.option or "", str(decision.left_alone or ""), refused)


def _schedules(snapshot: Snapshot) -> Iterator[Schedule]:
    """Begin with empty queues; nobody waits at the first look."""
    forest = quota.plant(snapshot.cluster_queues, snapshot.cohorts).forest
    for root in sorted({forest.nodes[index].root for index in forest.places.values()}):
        fair_sharing = snapshot.kueue.fair_sharing
        queues = snapshot.cluster_queues.values()
        schedule = Schedule(Tree(forest, root), queues, fair_sharing=fair_sharing, keep=True)
        schedule.look()
        yield schedule


def _amounts(tree: Tree, begun: Begun) -> Amounts:
    return {tree.cells[cell]: amount for cell, amount in begun.usage}
