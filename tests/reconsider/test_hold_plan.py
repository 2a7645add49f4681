"""When held Jobs are released: at their cheapest start with room, and never after the latest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cluster_queue, policy, snapshot
from tests.reconsider.holds import GPU, HOUR, NOW, held, holding, prices, world
from webhook.learn.others_use import OthersUse
from webhook.model.costs.prices import Prices, curve
from webhook.model.queues import Held
from webhook.model.snapshot_parts import OffSwitch
from webhook.reconsider.hold_plan import MOST_PLANNED, Release, due, plan, reason, released


def hours(found):
    return {key: (start.at - NOW) / HOUR for key, start in found.items()}


def starts(jobs, given=None):
    return hours(plan(jobs, given or world(), NOW, {}))


def test_a_job_starts_when_it_costs_least():
    assert starts([held()]) == {"team/a": 2.0}


def test_jobs_that_want_the_same_hour_take_turns_and_the_urgent_first():
    jobs = [held("a", latest=9.0), held("b", latest=4.0), held("c", latest=8.0)]

    assert starts(jobs, world(gpus=1)) == {"team/b": 2.0, "team/c": 3.0, "team/a": 4.0}


def test_however_many_urgent_jobs_a_namespace_holds_those_of_others_are_planned():
    noisy = [held(f"n{n:03}", namespace="noisy", latest=4.0) for n in range(MOST_PLANNED)]

    found = starts([*noisy, held("a", until=7.0)], world(gpus=1000))

    assert found["team/a"] == 2.0
    assert found[f"noisy/n{MOST_PLANNED - 1}"] == 2.0


@pytest.mark.parametrize(("minutes", "next_start"), [(66, 3.0), (70, 3.25), (1, 2.25)])
def test_of_the_last_quarter_of_a_run_half_must_be_used_to_count(minutes, next_start):
    jobs = [held("a", hours=minutes / 60), held("b", latest=9.0)]

    assert starts(jobs, world(gpus=1)) == {"team/a": 2.0, "team/b": next_start}


def test_hours_in_which_others_use_the_quota_have_no_room():
    hour = int(NOW // HOUR) % 24
    busy = [8.0 if (hour + 2) % 24 <= at <= (hour + 3) % 24 else 1.0 for at in range(24)]

    others = OthersUse()
    others.typical["gpu-cq", GPU] = busy

    found = plan([held()], world(gpus=8), NOW, {}, others)

    assert hours(found) == {"team/a": 4.0}


def test_an_hour_at_which_more_runs_than_usual_has_no_room():
    others = OthersUse()
    others.typical["gpu-cq", GPU] = [2.0] * 24
    others.present["gpu-cq", GPU] = 16.0

    found = plan([held()], world(gpus=8), NOW, {}, others)

    # A third of what is unusual is left after two hours.
    assert hours(found) == {"team/a": 2.25}


def test_what_jobs_that_were_held_still_use_has_no_room():
    others = OthersUse()
    job = held("released", hours=4.2)
    others.released.append(released(job, job.hold, world(), NOW))

    found = plan([held()], world(gpus=1), NOW, {}, others)

    assert hours(found) == {"team/a": 4.25}


def test_where_there_is_never_room_it_waits_for_some_from_its_cheapest_hour_on():
    others = OthersUse()
    others.typical["gpu-cq", GPU] = [1.0] * 24
    others.present["gpu-cq", GPU] = 1.0

    found = plan([held("a"), held("b")], world(gpus=1), NOW, {}, others)

    assert hours(found) == {"team/a": 2.0, "team/b": 2.0}


def test_a_job_that_needs_more_than_the_quota_is_planned_all_the_same():
    assert starts([held(gpus=9)], world(gpus=1)) == {"team/a": 2.0}


@pytest.mark.parametrize(("first", "soonest"), [(1.05, 1.0), (1.3, 3.0)])
def test_a_job_waits_on_for_its_hour_only_where_that_saves_something(first, soonest):
    # Of 3 that it would have cost at its decision, a fiftieth is not waited for.
    steps = {NOW - HOUR: 3.0, NOW + HOUR: first, NOW + 3 * HOUR: 1.0}
    given = world(of_prices=Prices(rates={GPU: curve(steps, NOW + 9e5)}))

    (found,) = plan([held()], given, NOW, {}).values()

    assert ((found.soonest - NOW) / HOUR, (found.at - NOW) / HOUR) == (soonest, 3.0)


def test_between_it_and_its_hour_none_may_be_dearer():
    steps = {NOW - HOUR: 1.02, NOW + HOUR: 3.0, NOW + 2.5 * HOUR: 1.0}
    given = world(of_prices=Prices(rates={GPU: curve(steps, NOW + 9e5)}))

    (found,) = plan([held()], given, NOW, {}).values()

    assert ((found.soonest - NOW) / HOUR, (found.at - NOW) / HOUR) == (2.5, 2.5)


def test_when_nothing_is_cheaper_any_more_it_starts_now():
    flat = Prices(rates={GPU: curve({NOW - HOUR: 1.0, NOW + HOUR: 3.0}, NOW + 9e5)})

    assert starts([held()], world(of_prices=flat)) == {"team/a": 0.0}


def test_a_hold_of_less_than_a_slot_lasts_until_the_start_of_its_decision():
    soon = world(of_prices=prices(begin=0.02))

    assert starts([held(until=0.02, latest=0.04)], soon) == {"team/a": 0.02}


def test_without_prices_the_plan_of_its_decision_stands():
    assert starts([held(until=5.0)], world(of_prices=Prices())) == {"team/a": 5.0}
    nothing = snapshot(cluster_queue(), policies=(holding(),))
    assert starts([held(until=5.0)], nothing) == {"team/a": 5.0}


@pytest.mark.parametrize(
    ("job", "given", "hours", "want"),
    [
        (held(), world(), 0.0, None),
        (held(), world(), 2.0, Release.PLANNED),
        (held(until=3.0), world(), 2.0, Release.NO_SAVING),
        (held(until=99.0, latest=1.0), world(), 1.0, Release.LATEST),
        (held(hold=None), world(), 0.0, Release.UNKNOWN),
        (held(refuses=True), world(), 0.0, Release.ASKED),
        (held(), world(off=OffSwitch()), 0.0, Release.OFF),
        (held(), world(off=OffSwitch(namespaces=frozenset({"other"}))), 0.0, None),
        (held(), world(failing=frozenset({("c", "p", "gpu")})), 0.0, Release.FAILING),
        (held(), world(failing=frozenset({("c", "p", "cpu")})), 0.0, None),
        (held(), world(policies=()), 0.0, Release.POLICY),
        (held(), world(policies=(policy(),)), 0.0, Release.POLICY),
    ],
)
def test_each_reason_ends_a_hold(job, given, hours, want):
    start = NOW + 2.0 * HOUR

    assert reason(job, given, start, NOW + hours * HOUR) is want


def test_a_policy_that_only_observes_holds_nobody():
    observing = holding()
    spec = observing.spec.model_copy(update={"mode": "Observe"})
    given = world(policies=(observing.model_copy(update={"spec": spec}),))

    assert reason(held(), given, NOW + HOUR, NOW) is Release.POLICY


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 30.0), st.floats(0.1, 10.0), st.integers(1, 5), st.floats(0.0, 40.0)
        ),
        max_size=12,
    ),
    st.integers(0, 4),
    st.floats(0.0, 20.0),
)
def test_no_plan_is_after_the_latest_start_whatever_is_planned(given, gpus, begin):
    jobs = [
        held(str(number), latest=latest, hours=hours, gpus=wanted, until=until)
        for number, (latest, hours, wanted, until) in enumerate(given)
    ]

    found = plan(jobs, world(gpus=gpus, of_prices=prices(begin, begin + 3)), NOW, {})

    assert all(max(found[job.key]) <= max(job.hold.latest, NOW) for job in jobs)
    assert found.keys() == {job.key for job in jobs}


def released_of(jobs, *, gpus=8, used=0, pending=0, hours=2.0, planned=None):
    at_that_time = world(gpus, held={"gpu-cq": Held(pending=pending, usage={GPU: used})})
    found = due(jobs, at_that_time, planned or {}, NOW + hours * HOUR)
    return [(job.name, why) for job, why in found]


@pytest.mark.parametrize(
    ("gpus", "used", "pending", "is_released"),
    [(8, 6, 0, True), (8, 7, 0, False), (8, 0, 1, False), (1, 0, 0, True), (1, 1, 0, False)],
    ids=["room", "none left for others", "others wait", "idle", "full"],
)
def test_a_job_whose_hour_has_come_waits_for_room(gpus, used, pending, is_released):
    found = released_of([held()], gpus=gpus, used=used, pending=pending)

    assert found == ([("a", Release.PLANNED)] if is_released else [])


def test_at_its_latest_start_a_job_is_released_without_room():
    full = {"gpus": 1, "used": 1, "pending": 9}

    assert released_of([held(latest=2.0)], **full) == [("a", Release.LATEST)]
    assert released_of([held(refuses=True)], **full) == [("a", Release.ASKED)]


def test_of_several_the_most_urgent_take_the_room():
    jobs = [held("a", latest=9.0), held("b", latest=4.0), held("c", latest=5.0)]

    assert [name for name, _ in released_of(jobs, gpus=3, used=0)] == ["b", "c"]


def test_what_needs_more_than_the_quota_is_released_all_the_same():
    assert released_of([held(gpus=9)], gpus=1, used=1, pending=3) == [("a", Release.PLANNED)]
