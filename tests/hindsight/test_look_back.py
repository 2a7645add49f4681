import json
from dataclasses import replace

import pytest

from tests.hindsight import journals
from tests.simulate.shipped import by_steps
from webhook.hindsight.gains import gains
from webhook.hindsight.look_back import look_back


def turnaround(result):
    return sum(job.finish - job.arrival for job in result.jobs)


@pytest.mark.parametrize("name", ["burst", "uniform"])
def test_what_decisions_saved_is_what_a_cluster_without_them_took_longer(name):
    given = journals.scenario(name)
    static, decided = (journals.happened(given, each) for each in ("static", "FinishTime"))
    world = journals.world(given, "FinishTime", mode="Enforce")

    found = gains(
        look_back(journals.entries(given, decided, mode="Enforce"), world),
        since=journals.BEGAN,
        until=world.now,
    )

    saved = sum(row.saved_seconds for row in found.rows)
    assert saved == pytest.approx(turnaround(static) - turnaround(decided), rel=0.05)
    spans = found.confidence
    measured = static.totals.makespan - decided.totals.makespan
    assert spans.static - spans.happened == pytest.approx(measured, abs=5)
    assert abs(found.confidence.turnaround) < 3


@pytest.mark.parametrize("read", [journals.scenario, by_steps])
@pytest.mark.parametrize("name", ["burst", "uniform"])
def test_what_is_promised_after_observing_is_what_enforcing_saves(name, read):
    given = read(name)
    static, decided = (journals.happened(given, each) for each in ("static", "FinishTime"))
    world = journals.world(given, "FinishTime", mode="Observe")

    found = gains(
        look_back(journals.entries(given, static), world), since=journals.BEGAN, until=world.now
    )

    promised = sum(row.saved_seconds for row in found.rows)
    assert promised == pytest.approx(turnaround(static) - turnaround(decided), rel=0.05)
    # Run times are known in whole seconds, so that one Job may go the other way.
    moved = {row.policy: row.moved for row in found.rows}["light"]
    assert moved == pytest.approx(decided.totals.moved, abs=1)


@pytest.mark.parametrize(
    "spec",
    [
        {"template": {"spec": {"containers": []}}},
        {
            "template": {
                "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "x"}}}]}
            }
        },
        {"template": {"spec": {"containers": [{"name": "a"}]}}, "parallelism": "many"},
        [],
    ],
    ids=["no containers", "no quantity", "no number", "no object"],
)
@pytest.mark.parametrize("place", ["submitted", "ran"])
def test_one_entry_that_no_replay_can_submit_leaves_the_others_as_they_are(place, spec):
    given = journals.scenario("burst")
    world = journals.world(given, "FinishTime", mode="Observe")
    good = journals.entries(given, journals.happened(given, "static"))
    bad = replace(good[0], key="bad", uid="bad", namespace="research", **{place: json.dumps(spec)})

    found = look_back([*good, bad], world)

    assert found.left_out == 1
    assert found.jobs == look_back(good, world).jobs
