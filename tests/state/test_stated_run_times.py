"""Whose word of run times counts for whose Jobs, from Workloads to the starts of newcomers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import needs, policy, team_policy
from tests.state.objects import PENDING, condition, local_queue, named, reserving, state_with
from tests.state.objects import workload as workload_object
from webhook.api import resources as kinds
from webhook.kueue.flavor_plan import demand
from webhook.kueue.tree_forecast import StartTimes
from webhook.learn.job_class import Mark, mark_text, shared_home
from webhook.model.forecasts import Basis, JobClass, RunTime, of_queue
from webhook.model.job import DECIDED_BY, JOB_CLASS, OPTION_LABEL
from webhook.state import forecast_input, waiting_line
from webhook.state.occupancy import beside
from webhook.state.snapshot import updated

NOW = 1795240800.0
"""2026-11-21T06:00:00Z"""
TIME = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
ADMITTED = {**condition("Admitted"), "lastTransitionTime": TIME}
SHARING = {"sharedNamespaces": {"matchLabels": {"trust": "yes"}}}
"""Those of ``team`` and ``friends``."""
EVERYBODY = ("team", "friends", "others")
ALONE = ("team",)
KEY, COARSE = "c0ffee", "~c0ffee"


def marked(job, *, said=0, by="light-gpu", namespace="team", home=""):
    """Put a Job into a namespace, with the marks of a decision and what its owner said."""
    mark = Mark(JobClass(KEY, COARSE).at(home or namespace), 1, said)
    (pod_set,) = job["spec"]["podSets"]
    pod_set["template"]["metadata"] = {
        "annotations": {DECIDED_BY: by, JOB_CLASS: mark_text(mark)},
        "labels": {OPTION_LABEL: "gpu"},
    }
    job["metadata"]["namespace"] = namespace
    return job


def running(name="a", *, limit=0, created=TIME, **said):
    spec = {"maximumExecutionTimeSeconds": limit} if limit else {}
    return marked(reserving(name, also=(ADMITTED,), created=created, **spec), **said)


def pending(name="b", *, limit=0, created=TIME, **said):
    spec = {"maximumExecutionTimeSeconds": limit} if limit else {}
    priority = said.pop("priority", 0)
    job = workload_object(name, conditions=(PENDING,), created=created, priority=priority, **spec)
    return marked(job, **said)


def forecast(*jobs, namespaces=EVERYBODY, rules=(), learned=None):
    """Return the state, and its snapshot with forecasts, of a queue for one Job at a time."""
    state = state_with(*jobs, cpu="4")
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    queues = [local_queue() for _ in namespaces]
    for queue, namespace in zip(queues, namespaces, strict=True):
        queue["metadata"]["namespace"] = namespace
    state.replace(kinds.LOCAL_QUEUES, queues)
    trusting = [
        {"kind": "Namespace", "metadata": {"name": name, "labels": {"trust": trust}}}
        for name, trust in {"team": "yes", "friends": "yes", "others": "no"}.items()
    ]
    state.replace(kinds.NAMESPACES, trusting)
    snapshot = updated(
        state.snapshot(0.0, NOW),
        policies=(policy(strategy={"type": "FinishTime"}), *rules),
        run_times=learned or {},
    )
    return state, forecast_input.with_forecasts(state, snapshot, NOW)


def starts(snapshot, *, priority=0):
    """Return in how many seconds a newcomer of each namespace starts; None: it does not know."""
    wanted = demand([needs({"cpu": "4"})], snapshot.setup.cluster_queues["gpu-cq"], snapshot.setup)
    times = beside(StartTimes(), snapshot)
    found = {
        namespace: times.start_of(
            "gpu-cq", wanted, now=0.0, priority=priority, local_queue=f"{namespace}/gpu-lq"
        ).start
        for namespace in EVERYBODY
    }
    return {
        namespace: round(start.seconds) if start.is_known else None
        for namespace, start in found.items()
    }


def ran(seconds, key="team/c0ffee"):
    run = RunTime(seconds=seconds, low=seconds, high=seconds, basis=Basis.LEARNED, runs=50)
    return {(key, "a100"): run}


def of(team, friends, others):
    return dict(zip(EVERYBODY, (team, friends, others), strict=True))


def strategy(run_time):
    return {"type": "FinishTime", "finishTime": {"runTime": run_time}}


OF_TEAM = (team_policy(strategy=strategy("60s")),)
OF_ADMIN = (policy(name="admins", strategy=strategy("20s")),)
OF_FRIENDS = (policy(name="sharing", strategy={"type": "FinishTime"}, **SHARING),)
SHARED = {"by": "sharing", "home": shared_home("sharing")}


@pytest.mark.parametrize(
    ("said", "given_too", "expected"),
    [
        ({}, {}, of(None, None, None)),
        ({"said": 60}, {}, of(122, None, None)),
        ({"said": 60, **SHARED}, {"rules": OF_FRIENDS}, of(122, 122, None)),
        ({"by": "team/light"}, {"rules": OF_TEAM}, of(122, None, None)),
        ({"said": 40, "by": "team/light"}, {"rules": OF_TEAM}, of(82, None, None)),
        ({"by": "admins"}, {"rules": OF_ADMIN}, of(42, 42, 42)),
        ({"said": 60, "by": "admins"}, {"rules": OF_ADMIN}, of(42, 42, 42)),
        ({"said": 60, "by": "gone"}, {}, of(None, None, None)),
        ({"said": 60}, {"learned": ran(90.0)}, of(182, 182, 182)),
        ({"by": "team/light"}, {"rules": OF_TEAM, "learned": ran(90.0)}, of(182, 182, 182)),
        ({"said": 60}, {"learned": ran(90.0, of_queue("gpu-cq", "team"))}, of(182, 182, 182)),
        ({"said": 60}, {"learned": ran(90.0, "others/c0ffee")}, of(122, None, None)),
        ({"said": 60, "limit": 600}, {}, of(602, 602, 602)),
    ],
    ids=[
        "nobody says anything",
        "the owner",
        "the owner, in namespaces that share",
        "the team's policy",
        "the owner, under the team's policy",
        "the admin's policy",
        "the admin's policy before the owner",
        "the owner, under a policy that is gone",
        "learned runs of the class before the owner",
        "learned runs of the class before the team's policy",
        "learned runs of any class before the owner",
        "learned runs of another home",
        "a time limit before the owner",
    ],
)
def test_whose_word_counts_for_whom_where_others_may_wait(said, given_too, expected):
    _, snapshot = forecast(running(**said), pending(**said), **given_too)

    assert starts(snapshot) == expected


@pytest.mark.parametrize(
    ("said", "given_too", "seconds"),
    [
        ({"said": 60}, {}, 122),
        ({"said": 60}, {"learned": ran(90.0)}, 122),
        ({"said": 60}, {"learned": ran(90.0, of_queue("gpu-cq", "team"))}, 122),
        ({"said": 60, "by": "admins"}, {"rules": OF_ADMIN}, 122),
        ({"said": 60, "limit": 600}, {}, 122),
        ({"by": "team/light"}, {"rules": OF_TEAM}, 122),
        ({"by": "team/light"}, {"rules": OF_TEAM, "learned": ran(90.0)}, 182),
        ({"by": "admins"}, {"rules": OF_ADMIN, "learned": ran(90.0)}, 182),
    ],
    ids=[
        "the owner",
        "the owner before learned runs of the class",
        "the owner before learned runs of any class",
        "the owner before the admin's policy",
        "the owner before a time limit",
        "the team's policy",
        "learned runs before the team's policy",
        "learned runs before the admin's policy",
    ],
)
def test_whose_word_counts_where_nobody_else_may_wait(said, given_too, seconds):
    _, snapshot = forecast(running(**said), pending(**said), namespaces=ALONE, **given_too)

    assert starts(snapshot)["team"] == seconds


def test_who_shares_waits_alone_together():
    jobs = running(said=60, **SHARED), pending(said=60, **SHARED)
    given_too = {"rules": OF_FRIENDS, "learned": ran(90.0, "*sharing/c0ffee")}

    _, alone = forecast(*jobs, namespaces=("team", "friends"), **given_too)
    _, with_others = forecast(*jobs, **given_too)

    assert starts(alone)["friends"] == 122
    assert starts(with_others)["friends"] == 182


def test_who_holds_quota_of_a_queue_that_its_namespace_lost_is_believed_by_nobody_else():
    _, snapshot = forecast(running(said=60), namespaces=("others",))

    assert starts(snapshot) == of(61, None, None)


def test_what_holds_the_queue_of_another_namespace_is_as_unknown_as_what_waits_there():
    """Hundreds of Jobs that say 1s would otherwise keep others in a queue that they block."""
    hostile = [pending(f"b{number}", said=1, namespace="others") for number in range(200)]

    _, snapshot = forecast(running(said=1, namespace="others"), *hostile)

    assert starts(snapshot) == of(None, None, 402)


def test_who_waits_is_told_what_its_namespace_knows():
    state, snapshot = forecast(
        running(said=60),
        pending(said=60, created="2026-11-21T05:00:00Z"),
        pending("c", namespace="others", created="2026-11-21T05:30:00Z"),
        pending("d", said=60),
        pending("e", said=60),
    )

    waits = waiting_line.all_waiting(state, snapshot, NOW)

    assert [(each.workload.name, each.start.unseen) for each in waits] == [
        ("b", 0),
        ("c", 2),
        ("d", 1),
        ("e", 1),
    ]


@pytest.mark.parametrize(("namespaces", "expects"), [(ALONE, True), (EVERYBODY, False)])
def test_others_are_expected_to_come_by_a_word_that_everybody_believes(namespaces, expects):
    came = [
        running(f"a{number}", said=60, created=f"2026-11-21T05:{50 + number}:00Z")
        for number in range(10)
    ]

    _, snapshot = forecast(*came, namespaces=namespaces)

    assert (snapshot.forecasts["gpu-cq"].later is not None) is expects


WORD = st.one_of(st.just(0), st.integers(min_value=1, max_value=100_000))
SAYING = st.tuples(WORD, st.sampled_from((0, 0, 300)), st.integers(min_value=0, max_value=2))


@given(
    st.lists(SAYING, max_size=6),
    WORD,
    st.sampled_from(({}, ran(40.0), ran(40.0, of_queue("gpu-cq", "team")))),
    st.integers(min_value=0, max_value=2),
)
def test_another_namespaces_word_changes_no_start_that_is_known(waiting, holding, learned, rank):
    def told(*, counts):
        jobs = [
            pending(f"b{number}", said=said * counts, limit=limit, priority=priority)
            for number, (said, limit, priority) in enumerate(waiting)
        ]
        _, snapshot = forecast(running(said=holding * counts), *jobs, learned=learned)
        return starts(snapshot, priority=rank)

    said, unsaid = told(counts=True), told(counts=False)

    assert said["others"] == unsaid["others"]
    assert unsaid["team"] is None or said["team"] == unsaid["team"]
