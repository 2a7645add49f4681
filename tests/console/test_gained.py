"""What the controller published, beside what one replica knows of itself."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.console import worlds
from tests.console.viewers import Only
from tests.console.worlds import PUBLISHED, UNIX, gains, known, past
from webhook.console import quota_api
from webhook.console.access import Everybody
from webhook.console.collect import collect, merged, restricted
from webhook.console.decisions import DecisionStore
from webhook.console.view import view_json
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import FORECASTS, JOURNAL, SavingsRecord

PAST = tuple(past(f"job-{number}", job=f"light-{number}", at=UNIX - number) for number in range(9))
RECORD = SavingsRecord(as_of=UNIX, decisions=PAST)


def line(job):
    """Write what a server logs of a Job."""
    time = datetime.fromtimestamp(int(job.at), UTC).isoformat()
    written = {"version": 1, "id": f"d-{job.job}", "time": time, "policy": job.recorded.policy}
    written |= {"mode": "Observe", "option": "gpu", "reason": "stays"}
    return json.dumps({"namespace": job.namespace, "name": job.job, "decision": written})


def replica(*own):
    """Return the view of a replica that has decided some of the Jobs itself."""
    book = DecisionStore()
    for each in own:
        book.put_line(line(each))
    return collect(known(decisions=book.newest(), published=RECORD))


def test_each_of_two_replicas_shows_the_decisions_that_the_other_has_made():
    for own in (PAST[0::2], PAST[1::2]):
        view = replica(*own)

        made = [each for each in view.decisions if not each.is_replayed]
        replayed = {each.job for each in view.decisions if each.is_replayed}
        assert {each.recorded.id for each in made} == {f"d-{each.job}" for each in own}
        assert len(view.decisions) == len(PAST)
        assert replayed == {each.job for each in PAST} - {each.job for each in own}


def test_the_quota_api_tells_a_replay_from_a_decision():
    answer = quota_api.decisions(replica(*PAST[0::2]), {"limit": "500"}, Everybody())

    told = {each["isReplayed"]: each for each in answer["decisions"]}
    assert (told[False]["reason"], told[False]["mode"]) == ("stays", "Observe")
    assert (told[True]["reason"], told[True]["mode"]) == (PAST[0].recorded.reason, "Observe")


def test_advice_is_no_replay_and_has_the_options_that_were_weighed():
    weighed = RecordedOption(name="cpu", queue="cpu-lq", starts_in=0.0, runs=70.0)
    advised = replace(
        RECORD, decisions=(past(mode="Advise", options=(weighed,), is_replayed=False),)
    )

    (found,) = merged((), advised)

    assert not found.is_replayed
    assert found.recorded.options == (worlds.option("cpu", pending=None, starts_in=0.0, runs=70.0),)


def test_gains_are_summed_apart_for_those_who_enforce_and_those_who_do_not():
    rows = (gains(), gains("other", "Enforce", jobs=5), gains("watched", "Advise", moved=0))

    view = collect(known(published=replace(PUBLISHED, gained=rows)))

    assert (view.savings.rests, view.savings.jobs, view.savings.moved) == (JOURNAL, 35, 20)
    assert (view.savings.saved_seconds, view.savings.margin_seconds) == (1481.0, 140.0)
    assert (view.would_save.jobs, view.would_save.moved) == (30, 0)
    assert (view.published.gained, view.published.as_of) == (rows, PUBLISHED.as_of)


def test_before_anything_is_published_forecasts_remain():
    view = collect(known(published=None))

    assert (view.savings.rests, view.would_save, view.published.gained) == (FORECASTS, None, ())
    assert view_json(view)["savingsAsOf"] is None


@pytest.mark.parametrize(("seen", "jobs"), [("elsewhere", None), ("team", 30)])
def test_gains_in_namespaces_that_may_not_be_seen_are_left_out(seen, jobs):
    view = collect(known(published=PUBLISHED, decisions=()))

    found = restricted(view, Only(seen))

    assert (found.savings and found.savings.jobs) == jobs
    assert len(found.published.gained) == (0 if jobs is None else 2)
