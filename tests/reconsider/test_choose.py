"""From Workloads and pending Jobs to the moves that are worth making."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.builders import policy
from tests.reconsider.queued_jobs import (
    ADAPTED,
    NOW,
    OPTIONS,
    RULES,
    lane,
    looked,
    pending,
    quota,
    rule,
    running,
    time,
    waiting,
    why,
)
from tests.state.objects import (
    condition,
    named,
)
from webhook.api import resources as kinds
from webhook.decide import match
from webhook.kueue.requests import MIN_PARALLELISM
from webhook.model.job import JOB_CLASS
from webhook.model.reasons import Obstacle
from webhook.reconsider import offers
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated
from webhook.state.state import State


def eight(jobs=None, lines=None, **given):
    """Look at eight Jobs that wait behind one that runs."""
    lines = [running("first"), *map(waiting, range(8))] if lines is None else lines
    return looked(lines, [pending(n) for n in range(8)] if jobs is None else jobs, **given)


def test_jobs_of_a_long_queue_go_where_there_is_room():
    # One runs at a time on GPUs, three on CPUs at half the speed; eight wait behind one that runs.
    found = eight()

    assert {move.way.option for move in found.moves} == {"cpu"}
    assert len(found.moves) in (4, 5)
    assert all(move.gain >= 5 for move in found.moves)
    assert not found.obstacles


def of_owner(line, *, namespace="team"):
    """Let a Workload's owner have said that it runs for 20 seconds."""
    (pod_set,) = line["spec"]["podSets"]
    pod_set["template"]["metadata"]["annotations"][JOB_CLASS] = "c0ffee ~c0ffee 1 r20"
    line["metadata"]["namespace"] = namespace
    return line


@pytest.mark.parametrize(
    ("ahead", "moved", "obstacles"),
    [("team", {"cpu"}, set()), ("others", set(), {Obstacle.START_UNKNOWN})],
)
def test_jobs_are_moved_by_what_owners_said_in_their_own_namespace(ahead, moved, obstacles):
    said = {"kueue-fallback.dev/run-time": "20s"}
    jobs = [pending(number) for number in range(8)]
    jobs = [replace(each, job=replace(each.job, annotations=said)) for each in jobs]
    lines = [of_owner(waiting(number)) for number in range(8)]
    silent = policy(*OPTIONS, strategy={"type": "FinishTime"}, reconsider=RULES)

    found = looked([of_owner(running("first"), namespace=ahead), *lines], jobs, policies=(silent,))

    assert {move.way.option for move in found.moves} == moved
    assert why(found) == obstacles


def test_what_jobs_that_are_alike_have_in_common_is_looked_at_once(monkeypatch):
    seen = Counter()
    skip, class_of = match.skip, match.class_of

    def counted(function):
        def call(*given):
            seen[function.__name__] += 1
            return function(*given)

        return call

    monkeypatch.setattr(match, "skip", counted(skip))
    monkeypatch.setattr(match, "class_of", counted(class_of))

    def looks_at(count):
        seen.clear()
        jobs = [pending(number) for number in range(count)]
        looked([running("first"), *map(waiting, range(count))], jobs)
        return dict(seen)

    assert looks_at(4) == looks_at(8)
    assert seen["skip"] == 1


def test_they_come_back_when_the_first_option_has_become_free():
    jobs = [pending(number, option="cpu", moves=1) for number in range(6)]
    lines = [waiting(number, queue="cpu-lq") for number in range(6)]

    found = looked([*(running(n, "cpu", "3") for n in "abc"), *lines], jobs, gpu="16")

    assert {move.way.option for move in found.moves} == {"gpu"}
    assert len(found.moves) >= 4


def test_whoever_is_in_an_option_that_is_kept_for_some_may_leave_it():
    options = ({**OPTIONS[0], "only": {"groups": ["ml"]}}, OPTIONS[1])

    found = eight(policies=(rule(options=options),))

    assert {move.way.option for move in found.moves} == {"cpu"}


OTHER_IMAGE = {"adaptation": {**ADAPTED, "image": "cpu-image"}}
AT_LEAST = {"minimumGain": {"time": "1000s", "percent": 0}}


def with_option(**changes):
    return {"policies": (rule(options=(OPTIONS[0], {**OPTIONS[1], **changes})),)}


@pytest.mark.parametrize(
    ("given", "obstacle"),
    [
        (with_option(only={"groups": ["ml"]}), Obstacle.OPTION_REFUSED),
        (with_option(only={"users": ["ann"]}), Obstacle.OPTION_REFUSED),
        ({"policies": (rule(reconsider={**RULES, **AT_LEAST}),)}, None),
        (with_option(startDelay="1h"), None),
        ({"changes_resources": False}, Obstacle.OLDER_KUBERNETES),
        (with_option(**OTHER_IMAGE), Obstacle.IMMUTABLE_IMAGE),
        ({"policies": (rule(mode="Observe"),)}, None),
    ],
    ids=["groups", "users", "least gain", "late nodes", "older Kubernetes", "image", "Observe"],
)
def test_nobody_is_moved(given, obstacle):
    found = eight(**given)

    assert (found.moves, why(found)) == ((), {obstacle} if obstacle else set())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"changed": NOW - 5}, Obstacle.TOO_SOON),
        ({"moves": 2}, Obstacle.MAX_MOVES),
        ({"obstacle": Obstacle.NOT_SUSPENDED}, Obstacle.NOT_SUSPENDED),
    ],
)
def test_what_of_the_job_keeps_it(given, expected):
    found = looked([running("first"), waiting(0)], [pending(0, **given)])

    assert found.obstacles == Counter({("light-gpu", expected): 1})
    assert not found.moves


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"annotations": {"kueue.x-k8s.io/admission-gated-by": "x.dev/y"}}, Obstacle.GATED),
        ({"active": False}, Obstacle.DEACTIVATED),
        ({"queue": "cpu-lq"}, Obstacle.MISMATCH),
    ],
)
def test_what_of_its_workload_keeps_it(changed, expected):
    found = looked([running("first"), waiting(0, **changed)], [pending(0)])

    assert why(found) == {expected}


def backing_off(requeued, *, seconds):
    """Whose backoff ends in so many seconds."""
    evicted = waiting(0, also=(condition("Evicted"), condition("Requeued", requeued)))
    evicted["status"]["requeueState"] = {"count": 1, "requeueAt": time(-seconds)}
    return evicted


# Kueue holds it back until then whatever the condition says.
@pytest.mark.parametrize("requeued", ["False", "True"])
def test_who_backs_off_stays_and_is_asked_again_when_that_ends(requeued):
    found = looked([running("first"), backing_off(requeued, seconds=40)], [pending(0)])

    assert found.obstacles == Counter({("light-gpu", Obstacle.BACKOFF): 1})
    assert (found.moves, found.quiet_seconds) == ((), 40.0)


def test_whose_backoff_is_over_may_be_moved():
    found = looked([running("first"), backing_off("True", seconds=-1)], [pending(0)])

    assert (found.obstacles, found.quiet_seconds < 60) == (Counter(), True)


def test_evicted_jobs_are_moved_where_their_template_changes_and_by_no_queue_alone():
    evicted = {"also": (condition("Evicted"),)}
    lines = [running("first"), *(waiting(number, **evicted) for number in range(8))]

    moved = eight(lines=lines)
    left = eight(lines=lines, **with_option(adaptation={}))

    assert {move.way.option for move in moved.moves} == {"cpu"}
    assert (left.moves, why(left)) == ((), {Obstacle.EVICTED})


def test_those_who_will_be_preempted_do_not_keep_others_from_being_moved():
    urgent = waiting(99, priority=1000)
    within = {"withinClusterQueue": "LowerPriority"}

    found = eight(lines=[running("first"), urgent, *map(waiting, range(8))], preemption=within)

    assert {move.way.option for move in found.moves} == {"cpu"}


def test_a_job_without_a_workload_stays():
    assert why(looked([running("first")], [pending(0)])) == {Obstacle.NO_WORKLOAD}


@pytest.mark.parametrize(
    "what", [{"pod_sets": (), "unmodelled": "its runtime"}, {"annotations": {MIN_PARALLELISM: "1"}}]
)
def test_what_is_not_modelled_is_not_moved(what):
    found = eight([replace(each, job=replace(each.job, **what)) for each in map(pending, range(8))])

    assert (found.moves, why(found)) == ((), {Obstacle.UNMODELLED})


def test_undecided_jobs_are_looked_at_where_the_policy_adopts_them():
    jobs = [pending(number, policy="", option="", changed=0.0) for number in range(8)]
    jobs = [replace(each, queue="gpu-lq") for each in jobs]

    left = eight(jobs)
    adopted = eight(jobs, policies=(rule(reconsider={**RULES, "adopt": True}),))

    assert (left.moves, left.obstacles) == ((), {})
    assert adopted.moves


def test_an_undecided_jobs_variables_cannot_change():
    adapted = {**ADAPTED, "env": {"RUN_ENV": "cpu"}}
    options = (
        {**OPTIONS[0], "adaptation": {"env": {"RUN_ENV": "gpu"}}},
        {**OPTIONS[1], "adaptation": adapted},
    )
    rules = (rule(options=options, reconsider={**RULES, "adopt": True}),)
    plain = [pending(number) for number in range(8)]
    undecided = [replace(each, policy="", option="", changed=0.0) for each in plain]

    assert eight(plain, policies=rules).moves
    assert not eight(undecided, policies=rules).moves


def test_undone_jobs_are_adopted_by_nobody():
    jobs = [pending(number, policy="", option="", changed=0.0) for number in range(8)]
    pinned = {"kueue-fallback.dev/policy": "none"}
    jobs = [replace(each, job=replace(each.job, annotations=pinned)) for each in jobs]

    found = eight(jobs, policies=(rule(reconsider={**RULES, "adopt": True}),))

    assert (found.moves, found.obstacles) == ((), {})


def test_who_waits_for_others_of_whom_nothing_is_known_is_not_moved():
    others = [waiting(number, guest=("", "")) for number in range(10)]
    lines = [running("first"), *others, waiting(10, age=20)]

    found = looked(lines, [pending(10, age=110)])

    assert (why(found), found.moves) == ({Obstacle.START_UNKNOWN}, ())


@pytest.mark.parametrize(
    ("policy", "priority", "moved"),
    [("light-gpu", 1000, 1), ("light-gpu", 0, 0)],
    ids=["its equals", "a lower priority"],
)
def test_a_job_is_made_later_only_for_its_equals(policy, priority, moved):
    # It would be done in 40 s where it is, next, and in 60 s elsewhere; ten others gain 20 s each.
    ahead = waiting(10, age=300, priority=1000)
    others = [waiting(n, guest=(policy, "gpu"), priority=priority) for n in range(10)]
    slow = rule(options=(OPTIONS[0], {**OPTIONS[1], "slowdown": 3}))

    found = looked([running("first"), ahead, *others], [pending(10, age=310)], policies=(slow,))

    assert (len(found.moves), found.obstacles) == (moved, {})


@pytest.mark.parametrize(("longest", "is_refused"), [("2m", False), ("10s", True)])
def test_nobody_may_be_moved_to_where_the_start_is_later_than_allowed(longest, is_refused):
    lines = [running("first"), running("second", queue="cpu"), *map(waiting, range(8))]
    options = (OPTIONS[0], {**OPTIONS[1], "maxWait": longest})

    found = looked(lines, [pending(7, age=107)], cpu="4", policies=(rule(options=options),))

    assert why(found) == ({Obstacle.OPTION_REFUSED} if is_refused else set())


def arrivals(found):
    return [move.way.arrival for move in found.moves]


def test_a_guest_is_foreseen_with_the_priority_that_it_will_have():
    guests = {"maxJobs": 9, "priorityClass": "guests"}

    plain = eight()
    found = eight(**with_option(guests=guests))

    assert {each.priority for each in arrivals(plain)} == {0}
    assert {each.priority for each in arrivals(found)} == {-10}


def test_equal_jobs_share_a_kind_that_no_other_gets():
    state = State()
    state.replace(kinds.CLUSTER_QUEUES, [quota("gpu", "4"), quota("cpu", "9")])
    state.replace(kinds.LOCAL_QUEUES, [lane("gpu"), lane("cpu")])
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    snapshot = updated(state.snapshot(0.0, NOW), policies=(rule(),), generation=1)
    world = offers.ReconsiderInput(snapshot=snapshot, contents={}, workloads={}, now=0.0, unix=NOW)
    catalog, numbers = (
        offers.MoveOptions(world, occupancy_of(snapshot)),
        offers.AlikeNumbers(),
    )
    others = replace(pending(1), job=replace(pending(1).job, labels={"team": "b"}))

    def number(each):
        workload = next(iter(state_of(waiting(0)).workloads()))
        policy = snapshot.fallback.policies[0]
        asked = offers.MoveQuestion(
            pending=each,
            policy=policy,
            option="gpu",
            workload=workload,
            alike=numbers.of(each.job),
        )
        return catalog.of(asked).kind

    assert [number(each) for each in (pending(0), others, pending(2), others)] == [
        "0",
        "1",
        "0",
        "1",
    ]


def state_of(*workloads):
    state = State()
    state.replace(kinds.WORKLOADS, workloads)
    return state


def by_cost(**reconsider):
    """Return the policy by cost; a core of the GPU queue's flavor costs money."""
    saving = {"minimumSaving": {"amount": "0", "percent": 5}, **reconsider}
    strategy = {"type": "Cost", "cost": {"runTime": "20s", "timeValue": "36"}}
    return policy(*OPTIONS, strategy=strategy, reconsider={"after": "30s", "maxMoves": 2, **saving})


def test_by_cost_jobs_of_a_long_queue_go_where_there_is_room():
    found = eight(policies=(by_cost(),))

    assert {move.way.option for move in found.moves} == {"cpu"}
    assert all(move.saved > 0 for move in found.moves)


def test_by_cost_nobody_moves_for_less_than_the_minimum_saving():
    dear = by_cost(minimumSaving={"amount": "1000", "percent": 0})

    assert eight(policies=(dear,)).moves == ()
