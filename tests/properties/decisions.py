"""Worlds in which drawn Jobs are decided."""

from copy import deepcopy
from dataclasses import replace

from tests import builders
from tests.servers import paper_snapshot
from webhook.admission import patch
from webhook.decide.applicant import Moment
from webhook.flow import create
from webhook.jobs import KINDS
from webhook.model.job import QUEUE_LABEL
from webhook.model.policy.fallback_policy import (
    FallbackPolicy,
    Option,
    Strategy,
    StrategyType,
    ThresholdRule,
)
from webhook.model.policy.spec import Slices
from webhook.model.queues import Quota
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

KIND = KINDS["batch", "v1", "Job"]


PLENTY = {
    name: Quota(nominal=1 << 60)
    for name in ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi")
}

THRESHOLD = Strategy(
    type=StrategyType.THRESHOLD,
    threshold=(ThresholdRule(option="cpu", or_pending_below=10),),
)


ANY_SLICES = Slices.model_validate({"pods": True, "unknown": "Allow", "isolation": "None"})


def world(adaptation):
    """A policy whose only open option is the CPU queue, with quota for whatever is asked."""
    snapshot = paper_snapshot()
    queue = builders.cluster_queue("cpu-cq", {"default": PLENTY})
    spec = snapshot.fallback.policies[0].spec
    option = Option(name="cpu", queue="cpu-lq", adaptation=adaptation)
    policy = FallbackPolicy(
        name="any",
        spec=spec.model_copy(
            update={
                "options": (option,),
                "strategy": THRESHOLD,
                "slices": ANY_SLICES,
                "match": spec.match.model_copy(update={"job_selector": None, "queues": None}),
            }
        ),
    )
    return occupancy_of(
        updated(
            snapshot,
            policies=(policy,),
            cluster_queues={**snapshot.setup.cluster_queues, "cpu-cq": queue},
            kueue=replace(snapshot.setup.kueue, ignore_undeclared=True),
        )
    )


def decided(source, found, *, unix=1e9, uid="a1b2c3d4-0000", kind=KIND):
    """Consider a Job, and admit it with the patch."""
    moment = Moment(now=100.0, unix=unix, time=_time(unix), uid=uid)
    outcome = create.consider(source, kind, found, moment, create.Rules())
    admitted = deepcopy(source)
    patch.operations(outcome.edits, admitted, kind.allowed)
    return outcome, admitted


def _time(unix):
    return "2001-09-09T01:46:40Z" if unix == 1e9 else "2001-09-09T02:46:40Z"


def submitted(source):
    labels = {**source["metadata"].get("labels", {}), QUEUE_LABEL: "cpu-lq"}
    return {**source, "metadata": {**source["metadata"], "labels": labels}}
