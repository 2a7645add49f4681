"""Turns a Job into an Arrival: its place in a queue until its Workload is observed.

Jobs left as submitted take a place as well. Nothing here knows how long a place is kept.
"""

from __future__ import annotations

from webhook.decide import match
from webhook.decide.decision_record import Recorded
from webhook.kueue.priorities import own_priority
from webhook.kueue.requests import needs
from webhook.learn import expected_runs, job_class
from webhook.model.decision import Assessment, Decision
from webhook.model.fields import FieldError
from webhook.model.job import DECISION_ID, Job
from webhook.model.queues import Arrival, PodSetNeeds, Snapshot


def decided(job: Job, taken: Assessment, decision: Decision, snapshot: Snapshot) -> Arrival:
    """Return the place of a Job that was just decided, as adapted; its key is the decision's id."""
    return Arrival(
        # The pod template carries this id into the Workload, by which the place is given up again.
        key=decision.id,
        namespace=job.namespace,
        local_queue=taken.queue,
        needs=taken.needs,
        priority=own_priority(job, snapshot),
        policy=decision.policy,
        option=taken.option,
        run=expected_runs.lasting(taken.forecast),
        cluster=taken.cluster,
    )


def decided_before(job: Job, recorded: Recorded, snapshot: Snapshot) -> Arrival | None:
    """Return the place of a Job that an earlier call of the same admission decided.

    That call may have reached another replica. None: it left the Job as submitted, or what the
    Job asks for cannot be read.
    """
    ids = {pod_set.template.annotations.get(DECISION_ID) for pod_set in job.pod_sets}
    asked = _needs(job, snapshot)
    # Only a decision that was carried out marks the pod templates; without the mark, nothing could
    # tell the Workload from others.
    if ids != {recorded.id} or recorded.option is None or asked is None:
        return None
    return Arrival(
        key=recorded.id,
        namespace=job.namespace,
        local_queue=job.queue,
        needs=asked,
        priority=own_priority(job, snapshot),
        policy=recorded.policy,
        option=recorded.option,
    )


def as_submitted(job: Job, snapshot: Snapshot, *, uid: str) -> Arrival | None:
    """Return the place of a Job without a decision, keyed by its name; None: it takes none.

    *uid* is the review's; it replaces the name that ``generateName`` has yet to make.
    """
    queue, asked = match.submission(job, snapshot).queue, _needs(job, snapshot)
    # Kueue queues no Workload whose LocalQueue does not exist.
    if (job.namespace, queue) not in snapshot.local_queues or asked is None:
        return None
    name = f"job:{job.namespace}/{job.name}"
    generated = f"gen:{job.namespace}/{job.generate_name}/{uid}"
    return Arrival(
        key=name if job.name else generated,
        namespace=job.namespace,
        local_queue=queue,
        needs=asked,
        priority=own_priority(job, snapshot),
        job_class=job_class.of_job(job),
        run=expected_runs.within_limits(job),
    )


def _needs(job: Job, snapshot: Snapshot) -> tuple[PodSetNeeds, ...] | None:
    try:
        return needs(job, snapshot)
    except FieldError:
        return None
