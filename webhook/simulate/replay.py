"""A replay of a scenario under one strategy: the event loop over arrivals, starts, ends and moves.

Each Job is decided by ``flow.create`` on what admission would know at that moment, and runs for its
true run time, which decisions do not know.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from webhook.adapt.accelerators import is_accelerator
from webhook.cost.device_shares import fraction
from webhook.cost.service_level import MOST_REPLICAS
from webhook.decide import match
from webhook.decide.applicant import Moment
from webhook.decide.wishes import NONE as NO_WISHES
from webhook.decide.wishes import Wishes, read_wishes, remaining
from webhook.flow import create
from webhook.flow.carry_out import as_submitted
from webhook.jobs import reduced
from webhook.kueue import quota, requests
from webhook.kueue.capacity import most_workloads
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.learn import job_class
from webhook.learn.estimates import RunTimeLearner
from webhook.model.costs.devices import Device
from webhook.model.costs.prices import NO_PRICES
from webhook.model.decision import Decided, Decision
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.job import Job, Requester
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import Arrival
from webhook.model.reasons import why_stayed
from webhook.model.words import rfc3339
from webhook.simulate.dispatching import Dispatching
from webhook.simulate.leader import Holds, Moving
from webhook.simulate.played_services import PlacedService, PlayedService, Scale, Services
from webhook.simulate.replayed_forecasts import Forecasts, QueuedJob
from webhook.simulate.results import JobResult, LostRun, Result, costed
from webhook.simulate.scenario import Arm, Scenario, ServiceRun, Submission
from webhook.simulate.site import UNTIL_ENDED, Site, TrueRunTimes, Workers, amounts
from webhook.state.occupancy import Occupancy
from webhook.state.snapshot import Snapshot, updated

_RULES = create.Rules()


def replay(
    scenario: Scenario,
    arm: Arm,
    *,
    progress: Callable[[int], None] = lambda _: None,
    run_times: RunTimeLearner | None = None,
) -> Result:
    """Run all Jobs through the queues; *progress* gets the number that have arrived.

    *run_times* is what was learned before, None: nothing; what is learned here is added to it.

    Raises:
        FieldError: a Job cannot be queued, gets flavors for which it has no run time, or is
            preempted again and again.

    """
    return _Replay(scenario, arm, run_times or RunTimeLearner()).run(progress)


MOST_PREEMPTED = 1000
"""How often a Job may be preempted: some Jobs take quota from each other for ever."""


class _Considered(NamedTuple):
    """What is created in a replay, and what admission made of it."""

    job: Job
    arrival: Arrival
    decision: Decision | None
    """None: no policy decided."""


class _Replay:
    def __init__(self, scenario: Scenario, arm: Arm, run_times: RunTimeLearner) -> None:
        self._scenario, self._arm = scenario, arm
        snapshot = scenario.snapshot.with_policies(arm.policies)
        self._forecasts = Forecasts(snapshot, run_times, prices=scenario.prices)
        self._holds = Holds(arm.policies, scenario.holding, self._forecasts.unix)
        # What becomes of a Workload that is preempted while it runs in a worker is not modelled.
        self._here = Site(snapshot, self._forecasts, preempts=not scenario.workers)
        self._workers = Workers(scenario.workers, self._here, scenario.policies, scenario.prices)
        self._dispatching = Dispatching(self._here, self._workers, self._wishes_of)
        # While Workloads are dispatched to workers, forecasts change by the clock alone.
        self._moving = Moving(snapshot, self._forecasts, is_quiet=not scenario.workers)
        self._services = Services(scenario.services)
        self._policies = {policy.name: policy for policy in arm.policies}
        self._devices = snapshot.costs.prices.get("", NO_PRICES).devices
        self._own = len(self._here.simulations)
        self._simulations = self._here.simulations + self._workers.simulations
        """First the own cluster's, then the workers'."""
        self._agenda: list[tuple[float, int]] = []
        """A heap of (time, simulation) at which something may happen in a tree."""
        self._number = 0
        self._results: dict[str, JobResult] = {}
        self._wishes: dict[str, Wishes] = {}
        """What Jobs ask for, by name; those that ask for nothing are not there."""

    def run(self, progress: Callable[[int], None]) -> Result:
        for number, submission in enumerate(self._scenario.submissions, 1):
            self._go_to(submission.at)
            self._submit(submission)
            self._go_to(submission.at)
            progress(number)
        self._go_to(inf)
        jobs = tuple(self._results[arrived.name] for arrived in self._scenario.submissions)
        billed, policies = self._scenario.billed or self._scenario.prices, self._scenario.policies
        if billed is not None:
            jobs = costed(jobs, billed, policies, self._wishes)
        services = self._services.results(billed, policies)
        return Result(strategy=self._arm.name, jobs=jobs, services=services)

    def _go_to(self, now: float) -> None:
        agenda = self._agenda
        if not agenda:
            self._holds.skip(now)
        while agenda or self._holds.count or self._waits_for_a_step():
            first = agenda[0][0] if agenda else inf
            led = min(self._holds.next_step, self._moving.next_step, self._dispatching.next_step)
            if min(first, led, self._services.next_step) > now:
                break
            # As for Jobs, what ends at the moment of a decision has ended.
            if self._services.next_step < min(first, led):
                self._serve(self._services.next_step)
            elif led <= first:
                self._lead(led)
            else:
                self._advance(*heapq.heappop(agenda))

    def _waits_for_a_step(self) -> bool:
        return min(self._services.next_step, self._dispatching.next_step) < inf

    def _advance(self, at: float, index: int) -> None:
        """Let happen what happens in a tree at this moment."""
        if index >= self._own:
            for number in self._workers.arrive(index, at):
                heapq.heappush(self._agenda, (at, number))
        simulation = self._simulations[index]
        # Otherwise the event has happened already, or was withdrawn.
        if simulation.next_event() <= at:
            simulation.step()
            self._note(index, at)
            self._expect(index)

    def _serve(self, now: float) -> None:
        """Let services and their replicas come and go."""
        # One at a time: the next one is decided when the queues have taken this one.
        if (run := self._services.created(now)) is not None:
            self._services.add(run, self._placed(run, now))
        for played in self._services.due(now):
            for key, has_quota in played.going(now):
                self._remove(key, now, has_quota=has_quota)
            for replica in played.coming(now):
                placed = played.placed
                self._wait(self._queued(replica, placed.job, placed.arrival), now)

    def _placed(self, run: ServiceRun, now: float) -> PlacedService:
        found = self._consider(run.manifest, run.name, now, f"services.{run.name}")
        arrival = found.arrival
        return PlacedService(
            job=found.job,
            arrival=replace(arrival, count=1),
            replicas=arrival.count,
            scale=self._scale(run, arrival),
        )

    def _scale(self, run: ServiceRun, arrival: Arrival) -> Scale | None:
        """Return the bounds of the autoscaler that the policy wants; None: it wants none."""
        policy = self._policies.get(arrival.policy)
        queue = self._here.cluster_queue(arrival)
        if policy is None or policy.spec.autoscale is None or queue is None:
            return None
        setup = self._here.snapshot.setup
        forest = quota.plant(setup.cluster_queues, setup.cohorts)
        most = most_workloads(arrival.needs, queue, forest, setup)
        bounds = [bound for bound in (most, run.most) if bound is not None]
        fewest = policy.spec.autoscale.min_replicas
        return Scale(fewest, min(bounds, default=MOST_REPLICAS))

    def _remove(self, key: str, now: float, *, has_quota: bool) -> None:
        if has_quota:
            index = self._here.places[self._here.queued[key].cluster_queue]
            self._simulations[index].end(key, now)
            self._expect(index)
        elif key in self._here.queued:
            self._here.leave(key)

    def _lead(self, now: float) -> None:
        """Do what is due of what the leading controller does."""
        if self._holds.next_step <= now:
            self._release(now)
        elif self._moving.next_step <= now:
            self._reconsider(now)
        else:
            for event in self._dispatching.step(now):
                heapq.heappush(self._agenda, event)

    def _reconsider(self, now: float) -> None:
        """Move the Jobs that the controller would move at this moment."""
        snapshot = self._forecasts.snapshot(now)
        view = self._here.known.at(snapshot, self._here.heads())
        for key, arrival in self._moving.step(view.snapshot, now):
            queued = self._here.queued[key]
            self._here.leave(key)
            self._results[key] = replace(
                self._results[key],
                queue=arrival.local_queue,
                option=arrival.option,
                priority_class=self._priority_class(queued.job, arrival),
            )
            self._wait(replace(queued, arrival=arrival), now)

    def _release(self, now: float) -> None:
        """Queue the held Jobs that the controller would release at this moment."""
        view = self._here.known.at(self._forecasts.snapshot(now), self._here.heads())
        for queued in self._holds.step(view.snapshot, now):
            self._wait(queued, now)
            self._reconsidered(queued, now)

    def _expect(self, index: int) -> None:
        if (at := self._simulations[index].next_event()) < inf:
            heapq.heappush(self._agenda, (at, index))

    def _submit(self, submission: Submission) -> None:
        source = self._scenario.manifest(submission)
        requester = self._scenario.requesters.get(submission.template)
        found = self._consider(
            source, submission.name, submission.at, f"jobs.{submission.template}", requester
        )
        job, arrival, decision = found
        self._results[submission.name] = JobResult(
            name=submission.name,
            template=submission.template,
            arrival=submission.at,
            submitted=job.queue,
            priority_class=self._priority_class(job, arrival),
            accelerators=accelerators_of(job, self._here.snapshot),
            queue=arrival.local_queue,
            option=(decision.option or "") if decision else "",
            policy=decision.policy if decision else "",
            why="" if arrival.local_queue != job.queue else _why(decision),
        )
        # An annotation that cannot be read says nothing of the Job.
        unix = self._forecasts.unix(submission.at)
        wishes, _ = attempted(lambda: read_wishes(job.annotations, unix), FieldError)
        if wishes not in (None, NO_WISHES):
            self._wishes[submission.name] = wishes
        queued = self._queued(submission, job, arrival)
        if decision is not None and decision.hold is not None:
            self._holds.add(queued, decision)
            return
        self._wait(queued, submission.at)
        self._reconsidered(queued, submission.at)

    def _consider(
        self,
        source: Mapping[str, Any],
        name: str,
        now: float,
        path: str,
        requester: Requester | None = None,
    ) -> _Considered:
        """Decide what is created now; *path* is its place in the scenario."""
        kind = reduced.kind_of(source)
        job = kind.read(source)
        unix = self._forecasts.unix(now)
        moment = Moment(now=now, unix=unix, time=rfc3339(unix), uid=name, requester=requester)
        view = self._view(job, now, requester)
        outcome = create.consider(source, kind, view, moment, _RULES)
        arrival = outcome.arrival or as_submitted(job, view.snapshot, uid=name)
        if arrival is None:
            raise FieldError(path, "expected a Job that can be queued")
        arrival = self._workers.expected(arrival, view)
        decision = outcome.decision if isinstance(outcome, Decided) else None
        return _Considered(job, arrival, decision)

    def _priority_class(self, job: Job, arrival: Arrival) -> str:
        """Return the class that its option gives a Job, or the one that it names itself."""
        policy = self._policies.get(arrival.policy)
        options = policy.spec.options if policy is not None else ()
        given = {option.name: option.given_priority for option in options}
        return given.get(arrival.option) or job.named_priority

    def _reconsidered(self, queued: QueuedJob, now: float) -> None:
        if queued.key in self._here.queued:
            self._moving.join(queued, now)

    def _view(self, job: Job, now: float, requester: Requester | None) -> Occupancy:
        here = self._here.view(job, now, requester)
        view = self._workers.around(here, job, now, requester)
        if not self._holds.count:
            return view
        return replace(view, snapshot=updated(view.snapshot, jobs_on_hold=self._holds.counts))

    def _queued(self, submission: Submission, job: Job, arrival: Arrival) -> QueuedJob:
        policy = self._policies.get(arrival.policy)
        snapshot = self._here.snapshot
        self._number += 1
        return QueuedJob(
            submission=submission,
            job=job,
            arrival=arrival,
            age=self._number,
            job_class=match.class_of(job, policy, snapshot) if policy else job_class.of_job(job),
            generation=policy.generation if policy else 0,
        )

    def _wait(self, queued: QueuedJob, now: float) -> None:
        queue = self._here.cluster_queue(queued.arrival)
        is_sent = queue is not None and self._workers.leads_away(queue.name)
        serves = queued.submission.template in self._services.by_name
        runs = UNTIL_ENDED if is_sent or serves else TrueRunTimes(queued)
        index = self._here.join(queued, runs, now)
        if index is not None:
            self._moving.change(now)
            heapq.heappush(self._agenda, (now, index))

    def _note(self, index: int, at: float) -> None:
        """Record which Workloads ended and started in the last step."""
        if index >= self._own:
            for begun in self._workers.note(index):
                self._begin_there(begun, index)
            self._dispatching.change(at)
            return
        simulation = self._simulations[index]
        if simulation.ended or simulation.preempted or simulation.begun:
            self._moving.change(at)
        for ended in simulation.ended:
            self._end(ended, at)
        self._here.release(index)
        for begun in simulation.begun:
            self._begin(begun, amounts(simulation, begun))
        # A step may run several cycles, and a later one preempts what an earlier one started.
        for preempted in simulation.preempted:
            self._preempt(preempted.key, amounts(simulation, preempted), at)
            self._moving.preempt(preempted.key, at)
        simulation.ended.clear()
        simulation.preempted.clear()
        simulation.begun.clear()

    def _dispatch(self, queued: QueuedJob, begun: StartedWorkloads) -> None:
        """Send a Workload that has the manager's quota to worker clusters."""
        coming = self._workers.sent(queued, begun)
        if self._dispatching.is_on:
            self._dispatching.add(coming, begun.at)
            return
        for event in self._workers.send_to_all(coming):
            heapq.heappush(self._agenda, event)

    def _wishes_of(self, key: str, now: float) -> Wishes:
        """Return what a Job asks for now."""
        asked = self._wishes.get(key, NO_WISHES)
        return remaining(asked, now - self._results[key].arrival)

    def _end(self, ended: StartedWorkloads, at: float) -> None:
        if (service := self._service_of(ended.key)) is not None:
            service.end(ended.key, at)
            self._forecasts.drop(ended.key)
            return
        ran_from = self._workers.began(ended)
        self._here.end(ended, ran_from=ran_from)
        self._note_late(ended, at)
        self._moving.end(ended.key)

    def _begin(self, begun: StartedWorkloads, usage: Amounts) -> None:
        queued = self._here.begin(begun, usage)
        self._moving.start(begun.key)
        if self._workers.leads_away(queued.cluster_queue):
            self._forecasts.reserve(begun, usage)
            self._dispatch(queued, begun)
            return
        self._forecasts.start(begun.key, begun.at, usage)
        parts = parts_of(usage, self._devices)
        if (service := self._service_of(begun.key)) is not None:
            service.begin(begun, usage, parts)
            return
        self._results[begun.key] = replace(
            self._results[begun.key],
            start=begun.at,
            finish=begun.finish,
            held=usage,
            parts=parts,
            interrupted=_interrupted(queued, begun),
        )

    def _service_of(self, key: str) -> PlayedService | None:
        """Return the service of a replica; None: it is a Job."""
        return self._services.by_name.get(self._here.queued[key].submission.template)

    def _note_late(self, ended: StartedWorkloads, at: float) -> None:
        """Let the weight of lateness follow what became of a Job with a deadline."""
        result, wishes = self._results[ended.key], self._wishes.get(ended.key, NO_WISHES)
        if result.policy and wishes.deadline is not None:
            late = ended.finish > result.arrival + wishes.deadline
            self._forecasts.note_ended(result.policy, at, late=late)

    def _preempt(self, key: str, usage: Amounts, at: float) -> None:
        """Let a Workload that held quota wait again; its simulation has queued it already."""
        self._here.preempt(key, usage)
        if (service := self._service_of(key)) is not None:
            service.preempt(key, at)
            return
        result = self._results[key]
        if result.preempted == MOST_PREEMPTED:
            raise FieldError(
                f"jobs.{result.template}",
                f"expected Jobs that end; this one was preempted {MOST_PREEMPTED} times, as some"
                " take quota from each other for ever, in Kueue, too",
            )
        start = at if result.start is None else result.start
        self._results[key] = replace(
            result,
            start=None,
            finish=None,
            held={},
            preempted=result.preempted + 1,
            lost=(*result.lost, LostRun(result.queue, start, at)),
        )

    def _begin_there(self, begun: StartedWorkloads, number: int) -> None:
        """Start a Workload in a simulation of a worker, and hold the manager's quota as long."""
        cluster, queued = self._workers.cluster_of(number), self._here.queued[begun.key]
        self._results[begun.key] = replace(
            self._results[begun.key],
            cluster=cluster,
            start=begun.at,
            finish=begun.finish,
            held=amounts(self._simulations[number], begun),
            interrupted=_interrupted(queued, begun),
        )
        self._forecasts.admit(begun.key, begun.at, cluster)
        self._dispatching.drop(begun.key)
        index = self._here.places[queued.cluster_queue]
        self._simulations[index].end(begun.key, begun.finish)
        self._expect(index)


def _interrupted(queued: QueuedJob, begun: StartedWorkloads) -> int:
    """Return how often a run is interrupted."""
    flavors = ",".join(sorted(set(begun.flavors)))
    return queued.submission.interrupted_on(flavors, queued.arrival.option)


def parts_of(usage: Amounts, devices: Mapping[str, Device]) -> Mapping[FlavorResource, float]:
    """Return the cells of which a unit is a part of a device, as far as that is known."""
    parts = {
        (flavor, resource): fraction(resource, devices[flavor])
        for flavor, resource in usage
        if flavor in devices and is_accelerator(resource)
    }
    return {cell: part for cell, part in parts.items() if part is not None and part != 1}


def accelerators_of(job: Job, snapshot: Snapshot) -> int:
    """Return how many accelerators a Job needs, all its pods together."""
    return sum(
        amount
        for need in requests.needs(job, snapshot.cluster, snapshot.setup.kueue)
        for resource, amount in need.asked.items()
        if is_accelerator(resource)
    )


def _why(decision: Decision | None) -> str:
    if decision is None:
        return ""
    options = (
        (
            option.option,
            str(option.rejection.reason) if option.rejection else "",
            str(option.passed_over.reason) if option.passed_over else "",
        )
        for option in decision.options
    )
    return why_stayed(decision.option or "", str(decision.left_alone or ""), options)
