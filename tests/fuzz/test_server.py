"""No Job that a tenant may create or change is answered wrongly, or costs another an answer."""

import json

import pytest
from hypothesis import strategies as st

from tests.fuzz.drawing import Kept, fuzzed
from tests.fuzz.objects import hostile_jobs
from tests.fuzz.observing import Observed
from tests.fuzz.values import anything, digits, dumped, mutated, quantities
from tests.nasty import all_kinds, asked, of_kind, spec_of
from tests.reviews import admitted, light_job, review
from tests.servers import Server
from webhook.jobs import BY_NAME


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


@st.composite
def of_any_kind(draw):
    """Draw an object of any kind, with one pod set or several, that says something else in it."""
    kind = draw(st.sampled_from(sorted(BY_NAME)))
    pods = light_job()["spec"]["template"]
    spec = spec_of(kind, pods, sets=draw(st.sampled_from([1, 3])), pods=1)
    found = draw(mutated(spec, st.one_of(digits, quantities, anything)))
    # Through JSON, so that no two pod sets are one object.
    return json.loads(dumped(of_kind(kind, found)))


def test_a_hostile_object_of_any_kind_is_admitted_and_none_of_it_is_a_failure_of_ours():
    kept = Kept(lambda: Server(all_kinds()))

    @fuzzed(of_any_kind(), share=4.0)
    def hold(job):
        with kept.world() as server:
            for operation in ("CREATE", "UPDATE"):
                sent = asked(job)
                sent["request"] |= {"operation": operation, "oldObject": job}
                admitted(server.post(json.dumps(sent)).data, job)
            assert server.count("kueue_fallback_failures_total") == 0
            server.show(all_kinds())

    hold()
