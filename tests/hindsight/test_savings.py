"""What a look back publishes: decisions of others that left nothing, and gains."""

from dataclasses import replace

import pytest

from tests.hindsight import journals
from webhook.hindsight.gains import summed_up
from webhook.hindsight.look_back import look_back
from webhook.model.policy.fallback_policy import Mode

GIVEN = journals.scenario("burst")
STATIC = journals.entries(GIVEN, journals.happened(GIVEN, "static"))
DECIDED = journals.entries(GIVEN, journals.happened(GIVEN, "FinishTime"), mode="Enforce")
UNIX = journals.BEGAN + 3000.0
CLUSTERS = journals.scenario("clusters", managerGpus=40)
"""The manager lets through ten times what its worker has."""


def published(entries, mode, given=GIVEN, **known):
    world = journals.world(given, "FinishTime", mode=mode)
    found = look_back(entries, replace(world, now=UNIX, **known))
    return summed_up(found, now=UNIX)


def test_a_policy_that_observes_tells_what_it_would_have_decided_and_saved():
    record = published(STATIC, Mode.OBSERVE)

    moved = sum(each.moved for each in record.gained)
    assert record.as_of == UNIX
    assert [(each.policy, each.mode, each.jobs, each.since) for each in record.gained] == [
        ("heavy", "Observe", 15, journals.BEGAN),
        ("light", "Observe", 15, journals.BEGAN),
    ]
    assert sum(each.saved_seconds - each.margin_seconds for each in record.gained) > 0
    assert {each.job for each in record.decisions} == {each.name for each in STATIC}
    assert sum(each.option == "cpu" for each in record.decisions) == moved > 0
    assert {each.recorded.reason for each in record.decisions} == {
        "a replay of the journal would send it to cpu-lq (cpu)",
        "a replay of the journal would leave it where it is (best)",
        "a replay of the journal would leave it where it is (unsureGain)",
        "a replay of the journal would leave it where it is (onlyOption)",
    }


def test_what_was_carried_out_stands_on_jobs_and_only_its_gains_are_told():
    record = published(DECIDED, Mode.ENFORCE)

    assert {each.mode for each in record.gained} == {"Enforce"}
    assert (sum(e.jobs for e in record.gained), sum(e.moved for e in record.gained)) == (30, 6)
    assert sum(each.saved_seconds for each in record.gained) > 0
    assert record.decisions == ()


def test_gains_and_losses_are_told_by_the_hour_the_newest_first():
    early = [
        replace(each, created=each.created - 7200) if each.job_class == "light" else each
        for each in DECIDED
    ]

    record = published(early, Mode.ENFORCE)

    began = journals.BEGAN // 3600 * 3600
    assert [(each.since, each.policy, each.jobs) for each in record.hours] == [
        (began, "heavy", 15),
        (began - 7200, "light", 15),
    ]
    assert {each.is_enforced for each in record.hours} == {True}
    saved = sum(each.gained_seconds - each.lost_seconds for each in record.hours)
    assert saved == pytest.approx(sum(each.saved_seconds for each in record.gained))
    assert all(min(each.gained_seconds, each.lost_seconds) >= 0 for each in record.hours)


def test_hours_of_devices_that_were_given_back_are_told():
    record = published(DECIDED, Mode.ENFORCE)

    assert {each.policy: each.device_hours > 0 for each in record.gained} == {
        "heavy": False,
        "light": True,
    }


def advice(entry):
    return replace(entry.decision, mode=Mode.ADVISE)


def test_advice_is_told_as_it_was_given():
    advised = [replace(each, decision=advice(each), queue="gpu-lq") for each in DECIDED]

    record = published(advised, Mode.ADVISE)

    newest = next(each for each in record.decisions if each.option == "cpu")
    assert {each.recorded.mode for each in record.decisions} == {"Advise"}
    assert len(record.decisions) == 30
    assert (
        newest.recorded.reason
        == f"advised sending it to {newest.queue} (cpu), as the journal tells"
    )


@pytest.mark.parametrize(
    ("workers", "policies"), [(CLUSTERS.workers, ["heavy", "light"]), ({}, [])]
)
def test_jobs_of_a_worker_cluster_gain_only_where_its_queues_are_known(workers, policies):
    decided = journals.happened(CLUSTERS, "FinishTime")
    entries = journals.entries(CLUSTERS, decided, mode="Enforce")

    record = published(entries, Mode.ENFORCE, CLUSTERS, workers=workers)

    assert [each.policy for each in record.gained] == policies
    assert all(each.saved_seconds > 0 for each in record.gained)
