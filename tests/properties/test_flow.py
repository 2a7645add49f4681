"""For every Job and every adaptation: decided twice is decided once, however the Job comes back."""

import json
from copy import deepcopy

import jsonpatch
from hypothesis import assume, given

from tests.properties.decisions import KIND, _time, decided, submitted, world
from tests.properties.jobs import adaptations, jobs
from webhook.admission import patch
from webhook.admission.patch import original_from_json, undone
from webhook.decide import decision_record
from webhook.decide.applicant import Moment
from webhook.flow import create
from webhook.jobs import served_job
from webhook.model.decision import Decided
from webhook.model.job import DECISION
from webhook.model.reasons import Skip


@given(jobs(), adaptations())
def test_decided_twice_is_decided_once(source, adaptation):
    found, job = world(adaptation), submitted(source)
    outcome, admitted = decided(job, found)
    assume(isinstance(outcome, Decided) and outcome.decision.option is not None)

    again, unchanged = decided({**admitted, "spec": {**admitted["spec"], "suspend": True}}, found)

    assert (again.skip, again.edits) == (Skip.DECIDED_ALREADY, ())
    assert unchanged["metadata"] == admitted["metadata"]


@given(jobs(), adaptations())
def test_a_manifest_that_carries_a_decision_is_decided_as_it_was_submitted(source, adaptation):
    found, job = world(adaptation), submitted(source)
    outcome, admitted = decided(job, found)
    assume(isinstance(outcome, Decided) and outcome.decision.option is not None)

    later, decided_anew = decided(admitted, found, unix=1e9 + 3600, uid="ffff0000")

    text = decided_anew["metadata"]["annotations"][DECISION]
    recorded = decision_record.from_annotations(decided_anew["metadata"]["annotations"])
    restored = undone(decided_anew, original_from_json(recorded.original), KIND.allowed)
    assert later.decision.option == outcome.decision.option
    assert (
        json.loads(text)["original"]
        == json.loads(admitted["metadata"]["annotations"][DECISION])["original"]
    )
    assert restored == job


@given(jobs(), adaptations())
def test_what_is_remembered_of_a_template_changes_no_answer(source, adaptation):
    found, job = world(adaptation), submitted(source)
    served_job.forget()
    first = answered(job, found, "a1b2c3d4-0000")

    remembered = answered(job, found, "b1b2c3d4-0000")

    served_job.forget()
    assert remembered == answered(job, found, "b1b2c3d4-0000")
    assert [op["path"] for op in remembered] == [op["path"] for op in first]
    assert jsonpatch.apply_patch(job, remembered) == decided(job, found, uid="b1b2c3d4-0000")[1]


def answered(job, found, uid):
    """Answer as the handler does: with what was worked out before, on an object of its own."""
    outcome = create.consider(
        admitted := deepcopy(job),
        KIND,
        found,
        Moment(now=100.0, unix=1e9, time=_time(1e9), uid=uid),
        create.Rules(),
    )
    return patch.operations(outcome.edits, admitted, KIND.allowed)
