"""Figures of a report that hardly a scenario brings about."""

import json
from dataclasses import replace

import pytest

from tests.hindsight import journals
from webhook.decide import match
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.gains import NOBODY, day_of, gains
from webhook.hindsight.gains_table import as_json, as_text
from webhook.hindsight.journal import GONE
from webhook.hindsight.look_back import look_back, without_replay
from webhook.model.words import rfc3339
from webhook.state.snapshot import updated

GIVEN = journals.scenario("burst")
DECIDED = journals.happened(GIVEN, "FinishTime")


def told(entries, *, mode="Enforce", **chosen):
    world = journals.world(GIVEN, "FinishTime", mode=mode)
    return gains(look_back(entries, world), since=journals.BEGAN, until=world.now, **chosen)


def enforced():
    return journals.entries(GIVEN, DECIDED, mode="Enforce")


def test_a_job_that_no_policy_matches_shows_what_it_got_of_it():
    def without_class(entry):
        labels = {**entry.labels, "workload-type": "other"}
        if entry.job_class != "heavy":
            return entry
        return replace(entry, labels=labels, decision=None)

    found = told([without_class(entry) for entry in enforced()])

    rows = {row.policy: row for row in found.rows}
    assert (rows[NOBODY].seen, rows[NOBODY].mode, rows[NOBODY].stayed) == (15, "", {})
    assert rows[NOBODY].jobs == 15
    assert found.rows[-1].policy == NOBODY


def test_gains_are_summed_up_by_day():
    since, day = journals.BEGAN, 86_400

    def two_days(entry):
        return replace(entry, created=entry.created - day) if entry.job_class == "light" else entry

    world = journals.world(GIVEN, "FinishTime", mode="Enforce")
    hindsight = look_back([*map(two_days, enforced())], world)
    found = gains(hindsight, since=since - day, until=world.now)

    (whole,) = found.whole
    assert (whole.jobs, whole.is_enforced) == (30, True)
    assert [each.jobs for each in found.days] == [15, 15]
    assert [day_of(each) for each in found.days] == [rfc3339(since - day)[:10], rfc3339(since)[:10]]
    assert sum(each.before_seconds for each in found.days) == pytest.approx(whole.before_seconds)
    lines = as_text(found).splitlines()
    header = ["DAY", "JOBS", "MOVED", "SOONER", "INSTEAD", "OF", "NOW", "GPU", "HOURS"]
    assert header in [line.split() for line in lines]
    assert [each["day"] for each in as_json(found)["days"]] == [day_of(each) for each in found.days]


def test_a_job_that_was_not_reviewed_is_told_so():

    # Those in cpu-lq were decided, so the policies were enforced by then.
    found = told(
        [
            replace(entry, decision=None) if entry.queue == "gpu-lq" else entry
            for entry in enforced()
        ]
    )

    assert "noDecision" in {why for row in found.rows for why in row.stayed}


def test_jobs_from_before_a_policy_was_enforced_count_as_it_observed_them():
    observed = journals.entries(GIVEN, journals.happened(GIVEN, "static"))

    found = told([replace(entry, decision=None) for entry in observed])

    assert {row.mode for row in found.rows} == {"Observe"}
    assert [each.is_enforced for each in found.whole] == [False]
    assert "noDecision" not in {why for row in found.rows for why in row.stayed}
    assert as_text(found).startswith("Jobs would be done ")


@pytest.mark.parametrize(("mode", "made"), [("Enforce", "made"), ("Observe", "would make")])
def test_where_none_was_moved_what_others_gave_is_said_apart(mode, made):
    world = journals.world(GIVEN, "FinishTime", mode=mode)
    entries = enforced() if mode == "Enforce" else journals.entries(GIVEN, DECIDED)

    found = gains(look_back(entries, world), since=journals.BEGAN, until=world.now, policy="heavy")

    (row,) = found.rows
    assert row.moved == 0
    assert row.by_others_seconds == pytest.approx(row.saved_seconds)
    first, second = as_text(found).splitlines()[:2]
    was = "was" if mode == "Enforce" else "would be"
    assert first == f"None of the 15 that have ended {was} moved."
    assert second.startswith((f"Moves of others {made} them ", "Since "))


def test_what_was_deleted_before_it_ran_is_not_replayed():
    *over, last = enforced()

    found = told([*over, replace(last, admitted=0, outcome=GONE)])

    assert sum(row.seen for row in found.rows) == 29


def test_jobs_in_queues_that_are_gone_are_left_out_and_counted():
    *over, last = enforced()

    found = told([*over, replace(last, queue="gone-lq")])

    assert found.left_out == 1


def test_what_came_before_is_in_the_way_and_not_counted():
    entries = enforced()
    world = journals.world(GIVEN, "FinishTime", mode="Enforce")
    since = journals.BEGAN + 0.7

    found = gains(look_back(entries, world), since=since, until=world.now)

    assert {row.policy: row.seen for row in found.rows} == {"heavy": 1, "light": 15}


def moved_later(entry):
    return replace(entry.decision, moves=1, time=rfc3339(entry.created + 1.0))


def test_moves_of_pending_jobs_are_counted_and_replayed_from_when_they_were_made():
    entries = [
        replace(entry, decision=moved_later(entry)) if entry.queue == "cpu-lq" else entry
        for entry in enforced()
    ]

    found = told(entries)

    assert {row.policy: row.reconsidered for row in found.rows} == {"heavy": 0, "light": 6}
    assert abs(found.confidence.turnaround) < 3


def test_forecasts_are_held_against_what_happened():
    def expecting(entry):
        took = 1.1 * (entry.finished - entry.created)
        option = RecordedOption(name=entry.option, finishes_in=took)
        return replace(entry, decision=replace(entry.decision, options=(option,)))

    found = told(map(expecting, enforced()))

    assert found.confidence.forecasts == 30
    assert found.confidence.forecast == pytest.approx(10)


def test_without_queues_the_decisions_forecasts_tell():
    def expecting(entry):
        there = RecordedOption(name="gpu", queue="gpu-lq", finishes_in=500.0)
        return replace(entry, decision=replace(entry.decision, options=(there,)))

    entries = [expecting(entry) for entry in enforced()]
    moved = [entry for entry in entries if entry.queue == "cpu-lq"]

    found = gains(without_replay(entries), since=journals.BEGAN, until=journals.BEGAN + 1000)

    light = next(row for row in found.rows if row.policy == "light")
    assert light.saved_seconds == pytest.approx(sum(500 - e.finished + e.created for e in moved))
    assert (light.moved, light.jobs, found.confidence) == (6, 6, None)


def as_job_set(entry):
    """An entry of the heavy class as if a JobSet of the same pods had been submitted."""
    if entry.job_class != "heavy":
        return entry
    specs = {}
    for name in ("submitted", "ran"):
        spec = json.loads(getattr(entry, name))
        pods = {"name": "main", "count": spec["parallelism"], "template": spec["template"]}
        specs[name] = json.dumps({"podSets": [pods]})
    return replace(entry, kind="JobSet", **specs)


def test_each_kind_has_its_rows_and_the_replays_are_the_same():
    world = journals.world(GIVEN, "FinishTime", mode="Enforce")
    world = replace(world, snapshot=match.queueing_all(unread(world.snapshot)))
    named = [with_kinds(policy, ("Job", "JobSet")) for policy in world.snapshot.fallback.policies]
    world = replace(world, snapshot=updated(world.snapshot, policies=tuple(named)))
    plain = look_back(enforced(), world)
    mixed = look_back([as_job_set(entry) for entry in enforced()], world)

    found = gains(mixed, since=journals.BEGAN, until=world.now)

    assert mixed.left_out == 0
    for arm in ("static", "happened"):
        one, other = (
            [times(getattr(each, arm)) for each in given.jobs] for given in (mixed, plain)
        )
        assert one == other
    assert [(row.policy, row.kind, row.seen) for row in found.rows] == [
        ("heavy", "JobSet", 15),
        ("light", "Job", 15),
    ]
    header = next(line for line in as_text(found).splitlines() if line.startswith("POLICY"))
    assert header.split()[:4] == ["POLICY", "NAMESPACE", "KIND", "SEEN"]
    assert [row["kind"] for row in as_json(found)["rows"]] == ["JobSet", "Job"]


def test_jobs_of_a_kind_that_no_policy_names_count_as_load_alone():
    world = journals.world(GIVEN, "FinishTime", mode="Observe")
    undecided = journals.entries(GIVEN, journals.happened(GIVEN, "static"))

    found = look_back([as_job_set(entry) for entry in undecided], world)

    policies = {each.entry.kind: {each.policy and each.policy.name} for each in found.jobs}
    assert policies == {"JobSet": {None}, "Job": {"light"}}
    assert found.left_out == 0


def times(result):
    return result.queue, result.start, result.finish


def unread(snapshot):
    return updated(snapshot, kueue=replace(snapshot.setup.kueue, is_read=False))


def with_kinds(policy, kinds):
    matched = policy.spec.match.model_copy(update={"kinds": kinds})
    return policy.model_copy(update={"spec": policy.spec.model_copy(update={"match": matched})})
