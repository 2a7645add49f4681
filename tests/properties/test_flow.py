"""For every Job and every adaptation: decided twice is decided once, however the Job comes back."""

import json
from copy import deepcopy
from dataclasses import replace

import jsonpatch
from hypothesis import assume, given

from tests import builders
from tests.properties.jobs import adaptations, jobs
from tests.servers import paper_snapshot
from webhook.admission import original as originals
from webhook.admission import patch
from webhook.decide import decision_record
from webhook.flow import create
from webhook.jobs import KINDS, batch
from webhook.kueue import occupancy
from webhook.model.job import DECISION, QUEUE_LABEL
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.queues import Quota
from webhook.model.reasons import Skip

KIND = KINDS["batch", "v1", "Job"]
PLENTY = {
    name: Quota(nominal=1 << 60)
    for name in ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi")
}


def world(adaptation):
    """A policy whose only open option is the CPU queue, with quota for whatever is asked."""
    snapshot = paper_snapshot()
    queue = builders.cluster_queue("cpu-cq", {"default": PLENTY})
    spec = snapshot.policies[0].spec
    option = Option(name="cpu", queue="cpu-lq", adaptation=adaptation)
    policy = FallbackPolicy(
        name="any",
        spec=spec.model_copy(
            update={
                "options": (option,),
                "match": spec.match.model_copy(update={"job_selector": None, "queues": None}),
            }
        ),
    )
    return occupancy.build(
        replace(
            snapshot,
            policies=(policy,),
            cluster_queues={**snapshot.cluster_queues, "cpu-cq": queue},
            kueue=replace(snapshot.kueue, ignore_undeclared=True),
        )
    )


def decided(source, found, *, unix=1e9, uid="a1b2c3d4-0000"):
    """Consider a Job, and admit it with the patch."""
    moment = create.Moment(now=100.0, unix=unix, time=_time(unix), uid=uid)
    outcome = create.consider(source, KIND, found, moment, create.Rules())
    admitted = deepcopy(source)
    patch.operations(outcome.edits, admitted, KIND.allowed)
    return outcome, admitted


def _time(unix):
    return "2001-09-09T01:46:40Z" if unix == 1e9 else "2001-09-09T02:46:40Z"


def submitted(source):
    labels = {**source["metadata"].get("labels", {}), QUEUE_LABEL: "cpu-lq"}
    return {**source, "metadata": {**source["metadata"], "labels": labels}}


@given(jobs(), adaptations())
def test_decided_twice_is_decided_once(source, adaptation):
    found, job = world(adaptation), submitted(source)
    outcome, admitted = decided(job, found)
    assume(outcome.decision is not None and outcome.decision.option is not None)

    again, unchanged = decided({**admitted, "spec": {**admitted["spec"], "suspend": True}}, found)

    assert (again.skip, again.edits) == (Skip.DECIDED_ALREADY, ())
    assert unchanged["metadata"] == admitted["metadata"]


@given(jobs(), adaptations())
def test_a_manifest_that_carries_a_decision_is_decided_as_it_was_submitted(source, adaptation):
    found, job = world(adaptation), submitted(source)
    outcome, admitted = decided(job, found)
    assume(outcome.decision is not None and outcome.decision.option is not None)

    later, decided_anew = decided(admitted, found, unix=1e9 + 3600, uid="ffff0000")

    text = decided_anew["metadata"]["annotations"][DECISION]
    recorded = decision_record.from_json(text)
    undone = originals.undone(decided_anew, originals.from_json(recorded.original), KIND.allowed)
    assert later.decision.option == outcome.decision.option
    assert (
        json.loads(text)["original"]
        == json.loads(admitted["metadata"]["annotations"][DECISION])["original"]
    )
    assert undone == job


@given(jobs(), adaptations())
def test_what_is_remembered_of_a_template_changes_no_answer(source, adaptation):
    found, job = world(adaptation), submitted(source)
    batch.forget()
    first = answered(job, found, "a1b2c3d4-0000")

    remembered = answered(job, found, "b1b2c3d4-0000")

    batch.forget()
    assert remembered == answered(job, found, "b1b2c3d4-0000")
    assert [op["path"] for op in remembered] == [op["path"] for op in first]
    assert jsonpatch.apply_patch(job, remembered) == decided(job, found, uid="b1b2c3d4-0000")[1]


def answered(job, found, uid):
    """Answer as the handler does: with what was worked out before, on an object of its own."""
    outcome = create.consider(
        admitted := deepcopy(job),
        KIND,
        found,
        create.Moment(now=100.0, unix=1e9, time=_time(1e9), uid=uid),
        create.Rules(),
    )
    return patch.operations(outcome.edits, admitted, KIND.allowed, outcome.prepared)
