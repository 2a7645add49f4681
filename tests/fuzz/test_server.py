"""No Job that a tenant may create or change is answered wrongly, or costs another an answer."""

import json

import pytest
from hypothesis import strategies as st

from tests.fuzz.drawing import Kept, fuzzed
from tests.fuzz.objects import hostile_jobs
from tests.fuzz.observing import Observed
from tests.reviews import admitted, review


@pytest.fixture(scope="module")
def before():
    return Observed().decide()


@st.composite
def reviews(draw):
    """Draw a review of a hostile Job: a create, or a change of what another one left."""
    job = draw(hostile_jobs())
    operation = draw(st.sampled_from(["CREATE", "CREATE", "UPDATE"]))
    old = draw(hostile_jobs()) if operation == "UPDATE" else None
    dry_run = draw(st.booleans())
    return review(job, operation=operation, old=old, dry_run=dry_run, namespace="tenant")


def test_a_hostile_job_is_admitted_and_no_other_is_decided_otherwise():
    kept = Kept(lambda: (Observed(), Observed()))

    @fuzzed(reviews(), share=4.0)
    def hold(drawn):
        with kept.world() as (observed, other):
            response = observed.answer(drawn)
            admitted(json.dumps({"response": response}), drawn["request"]["object"])
            assert observed.decide() == other.decide()
            for each in (observed, other):
                each.pass_time(1.0)
                each.publish()

    hold()
    with kept.world() as (observed, _):
        lines = observed.server.logged()
    assert [line for line in lines if line["msg"] == "line not written"] == []
    assert lines[-1]["name"] == "probe"


def test_what_is_admitted_may_come_again(before):
    kept = Kept(Observed)

    @fuzzed(hostile_jobs(is_whole=True), share=2.0)
    def hold(drawn):
        job = drawn
        with kept.world() as observed:
            for _ in range(3):
                sent = review(job, namespace="tenant")
                job = admitted(json.dumps({"response": observed.answer(sent)}), job)
            assert observed.decide() == before
            assert not observed.server.count("kueue_fallback_patch_verification_failures_total")

    hold()
