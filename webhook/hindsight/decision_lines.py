"""Turns the decision log into a scenario: its Jobs as they came, to be decided anew. Pure.

Run times come from the journal, records, the log's own expectations or an argument, in this order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.decide import match
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import LookBackInput, run_times
from webhook.jobs import reduced
from webhook.kueue.durations import learned_on
from webhook.learn.expected_runs import slowdown_of
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.forecasts import JobClass
from webhook.model.job import PLAIN, Job, reference_of
from webhook.model.policy.fallback_policy import FallbackPolicy, seconds
from webhook.simulate.scenario import Scenario, Submission, emptied, templates_of
from webhook.state.snapshot import Snapshot

NAME: Final = "decisions"
NEAR_SECONDS: Final = 60.0
"""Longest time between a review and its Job's creation, by two clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    at: float
    number: int
    """Line number in the file, from 1."""
    source: Mapping[str, Any]
    """The Job's manifest, reduced."""
    job: Job
    name: str
    expected: Mapping[str, float]
    """LocalQueue to the seconds that the Job was expected to run there."""


def read_decision_lines(
    lines: Iterable[str],
    world: LookBackInput,
    *,
    entries: Iterable[JournalEntry] = (),
    run_seconds: float | None = None,
    file: str = NAME,
) -> Scenario:
    """Read the Jobs that reviews have admitted; other lines are skipped.

    A Job that is among *entries* and has ended runs as long as it did; one of which nothing else
    is known runs for *run_seconds*.

    Raises:
        FieldError: there is no Job, or one whose run time is not known.

    """
    in_order = sorted(_lines(lines, file), key=lambda each: each.at)
    world = replace(world, snapshot=emptied(world.snapshot))
    over = {
        (entry.namespace, entry.reference): entry
        for entry in entries
        if 0 < entry.admitted <= entry.finished
    }
    queued = [line for line in in_order if _is_queued(line.job, world.snapshot)]
    if not queued:
        raise FieldError(file, "expected lines with a `job` that names a queue of the snapshot")
    names, templates = templates_of(line.source for line in queued)
    submissions = []
    taken: Counter[str] = Counter()
    for line, template in zip(queued, names, strict=True):
        taken[line.name] += 1
        runs = _runs_as_ended(line, world, over) or _runs_as_expected(line, world, run_seconds)
        if not runs:
            message = "nothing tells how long this Job runs: give --run-time"
            raise FieldError(f"{file}:{line.number}", message)
        submissions.append(
            Submission(
                at=line.at - queued[0].at,
                name=f"{line.name}-{taken[line.name]}" if taken[line.name] > 1 else line.name,
                template=template,
                run_seconds=runs,
            )
        )
    return Scenario(
        name=NAME,
        snapshot=world.snapshot.with_policies(()),
        policies=world.snapshot.fallback.policies,
        templates=templates,
        submissions=tuple(submissions),
        workers=world.workers,
    )


def _lines(lines: Iterable[str], file: str) -> Iterator[_Line]:
    for number, text in enumerate(lines, 1):
        if '"job":' not in text:
            continue
        try:
            source = fields.as_mapping(json.loads(text), "")
            if source.get("operation") != "CREATE" or source.get("dry_run"):
                continue
            yield _line(source, number)
        except FieldError as error:
            raise FieldError(f"{file}:{number}", str(error)) from error
        except (ValueError, TypeError):
            # A truncated line, or one of another program that writes to the same stream.
            continue


def _line(source: Mapping[str, Any], number: int) -> _Line:
    logged = fields.mapping(source, "job", "")
    metadata = {**fields.mapping(logged, "metadata", "job")}
    name = metadata.pop("name", "") or str(metadata.pop("generateName", "")) + f"{number}"
    metadata.pop("generateName", None)
    kind = fields.text(logged, "kind", "job") or PLAIN
    job = {"kind": kind, "metadata": metadata, "spec": fields.mapping(logged, "spec", "job")}
    decision = fields.mapping(source, "decision", "")
    options = fields.objects(decision, "options", "decision")
    return _Line(
        at=_at(source),
        number=number,
        source=job,
        job=_job(job),
        name=name,
        expected={
            str(option.get("queue")): float(option["runs"])
            for option, _ in options
            if option.get("runs")
        },
    )


def _at(source: Mapping[str, Any]) -> float:
    unix = source.get("ts")
    if isinstance(unix, bool) or not isinstance(unix, int | float):
        raise FieldError("ts", f"expected seconds since 1970, got {fields.kind_of(unix)}")
    return float(unix)


def _job(source: Mapping[str, Any]) -> Job:
    job = reduced.kind_of(source).read(source)
    if job.pod_sets and not job.pod_sets[0].template.containers:
        where = ".".join(("job", *(job.pod_sets[0].path or ()), "spec", "containers"))
        raise FieldError(where, "expected at least one, whose image names the Job's class")
    return job


def _is_queued(job: Job, snapshot: Snapshot) -> bool:
    if not job.pod_sets:
        return False
    place = snapshot.setup.local_queues.get((job.namespace, match.submission(job, snapshot)))
    return place is not None and place.cluster_queue in snapshot.setup.cluster_queues


def _runs_as_ended(
    line: _Line, world: LookBackInput, over: Mapping[tuple[str, str], JournalEntry]
) -> Mapping[str, float]:
    """Return a Job's run time on each flavor by how long it ran; empty: that is not known."""
    entry = over.get((line.job.namespace, reference_of(line.job.kind, line.name)))
    if entry is None or abs(entry.created - line.at) >= NEAR_SECONDS:
        return {}
    snapshot, took = world.snapshot, float(entry.finished - entry.admitted)
    policy, learned = _policy(line.job, snapshot), world.learned.estimates
    return run_times(entry, took, policy=policy, snapshot=snapshot, learned=learned)[0]


def _runs_as_expected(
    line: _Line, world: LookBackInput, run_seconds: float | None
) -> Mapping[str, float]:
    """Return the same as learned, expected or stated; empty: nothing is known."""
    snapshot, policy = world.snapshot, _policy(line.job, world.snapshot)
    known = dict(_expected(line, world))
    first = next(iter(known.values()), None) or _said(policy) or run_seconds
    if first is None:
        return {}
    slowed = _slowed(line.job, policy, first, snapshot)
    return {**dict.fromkeys(snapshot.setup.flavors, first), **slowed, **known}


def _expected(line: _Line, world: LookBackInput) -> Iterator[tuple[str, float]]:
    snapshot = world.snapshot
    for queue, expected in line.expected.items():
        for flavor in _flavors(line.job.namespace, queue, snapshot):
            yield flavor, expected
    (container, *_) = line.job.pod_sets[0].template.containers
    job_class = JobClass(container.image, "")
    for flavor in snapshot.setup.flavors:
        known = learned_on(world.learned.estimates, job_class, flavor)
        if known is not None:
            yield flavor, known.seconds


def _slowed(
    job: Job, policy: FallbackPolicy | None, first: float, snapshot: Snapshot
) -> Mapping[str, float]:
    run_seconds: dict[str, float] = {}
    for option in reversed(policy.spec.options if policy else ()):
        slowdown = slowdown_of(policy, option) if policy else None
        for flavor in _flavors(job.namespace, option.queue or "", snapshot):
            run_seconds[flavor] = first * (slowdown or 1.0)
    return run_seconds


def _policy(job: Job, snapshot: Snapshot) -> FallbackPolicy | None:
    try:
        return match.policy_for(job, snapshot)
    except FieldError:
        return None


def _said(policy: FallbackPolicy | None) -> float | None:
    run_time = policy.spec.strategy.run_time if policy else None
    return seconds(run_time) if run_time else None


def _flavors(namespace: str, queue: str, snapshot: Snapshot) -> Sequence[str]:
    place = snapshot.setup.local_queues.get((namespace, queue))
    cluster_queue = snapshot.setup.cluster_queues.get(place.cluster_queue) if place else None
    return (
        [flavor for group in cluster_queue.groups for flavor in group.flavors]
        if cluster_queue
        else []
    )
