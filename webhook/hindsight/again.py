"""The arrivals of a journal once more: as it was, without decisions, and as policies say. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.decide import match
from webhook.hindsight.journal import Entry
from webhook.hindsight.told import Told, World
from webhook.jobs import KINDS
from webhook.learn import job_class
from webhook.learn.estimates import RunTimes
from webhook.learn.run_records import Packed, Record, pack_runs, unpack_runs
from webhook.model.job import QUEUE_LABEL
from webhook.simulate.replay import replay
from webhook.simulate.results import JobResult
from webhook.simulate.scenario import STATIC, Arm, Scenario, Submission, enforced

_KIND: Final = KINDS["batch", "v1", "Job"]
_AS_IT_WAS: Final = "as it was"
_AS_IT_COULD_BE: Final = "as policies say"


def age_of(entry: Entry) -> tuple[float, float, str]:
    """Put those of one second that nobody saw come in the order in which they were admitted."""
    return entry.created, entry.admitted or float("inf"), entry.key


class Replays:
    def __init__(
        self,
        world: World,
        told: Sequence[Told],
        runs: Mapping[str, Mapping[str, float]],
        progress: Callable[[int], None],
    ) -> None:
        self._world, self._told, self._runs = world, told, runs
        self._progress = progress

    def as_it_was(self) -> Mapping[str, JobResult]:
        """Send each Job where it went, when it went there."""
        return self._replayed(Arm(name=_AS_IT_WAS), ran_manifest, _went)

    def without_decisions(self) -> Mapping[str, JobResult]:
        if not any(each.is_enforced for each in self._told):
            return {}
        return self._replayed(Arm(name=STATIC), submitted_manifest, _came)

    def as_policies_say(self) -> Mapping[str, JobResult]:
        if all(each.is_enforced or each.policy is None for each in self._told):
            return {}
        policies = self._world.snapshot.policies
        known = self._known_before()
        arm = enforced(_AS_IT_COULD_BE, policies)
        return self._replayed(arm, submitted_manifest, _came, run_times=known)

    def _replayed(
        self,
        arm: Arm,
        manifest: Callable[[Entry], Mapping[str, Any]],
        at: Callable[[Entry], float],
        run_times: RunTimes | None = None,
    ) -> Mapping[str, JobResult]:
        templates: dict[str, Mapping[str, Any]] = {}
        submissions = []
        for each in sorted(self._told, key=lambda one: (at(one.entry), age_of(one.entry))):
            source = manifest(each.entry)
            template = json.dumps(source, sort_keys=True)
            templates[template] = source
            submissions.append(
                Submission(
                    at=at(each.entry),
                    name=each.entry.key,
                    template=template,
                    run_seconds=self._runs[each.entry.key],
                )
            )
        scenario = Scenario(
            name=arm.name,
            snapshot=replace(self._world.snapshot, policies=()),
            objects=(),
            policies=arm.policies,
            policy_objects=(),
            templates=templates,
            submissions=tuple(submissions),
            workers=self._world.workers,
        )
        found = replay(scenario, arm, progress=self._progress, run_times=run_times)
        return {job.name: job for job in found.jobs}

    def _known_before(self) -> RunTimes:
        """Return what was known of runs when the first of them came, by the classes of a replay.

        A replay's Jobs are cut down, and so their classes have other names.
        """
        first = min((each.entry.created for each in self._told), default=0.0)
        policies = {each.policy.name: each.policy for each in self._told if each.policy}
        found = RunTimes()
        snapshot = self._world.snapshot
        done: set[tuple[str, str]] = set()
        for each in self._told:
            entry = each.entry
            record = self._world.learned.records.get(entry.job_class)
            if record is None or (entry.job_class, entry.submitted) in done:
                continue
            done.add((entry.job_class, entry.submitted))
            job = _KIND.read(submitted_manifest(entry))
            here_too = (match.class_of(job, one, snapshot) for one in policies.values())
            for here in {job_class.of_job(job), *here_too}:
                if (kept := _before(record, first, here.coarse)).last:
                    found.merge(here.key, kept)
        return found


def _before(record: Record, unix: float, coarse: str) -> Record:
    return Record(
        coarse=coarse,
        runs=_over(record.runs, unix),
        starts=_over(record.starts, unix),
        dispatches=_over(record.dispatches, unix),
    )


def _over(found: Mapping[str, Packed], unix: float) -> Mapping[str, Packed]:
    """Leave out what was not over at *unix*, in seconds since 1970."""
    kept = {
        place: pack_runs(run for run in unpack_runs(packed) if run.finished < unix)
        for place, packed in found.items()
    }
    return {place: packed for place, packed in kept.items() if packed}


def _came(entry: Entry) -> float:
    return entry.created


def _went(entry: Entry) -> float:
    return entry.created + (entry.decided_in if entry.moves else 0.0)


def submitted_manifest(entry: Entry) -> dict[str, Any]:
    """Write the Job as it was submitted."""
    return _manifest(entry, entry.submitted, entry.labels)


def ran_manifest(entry: Entry) -> dict[str, Any]:
    """Write the Job as it became, so that without any policy it goes where it went."""
    return _manifest(entry, entry.ran, {**entry.labels, QUEUE_LABEL: entry.queue})


def _manifest(entry: Entry, spec: str, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = {
        "namespace": entry.namespace,
        "labels": dict(labels),
        "annotations": dict(entry.annotations),
    }
    return {"metadata": metadata, "spec": json.loads(spec)}
