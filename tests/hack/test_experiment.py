"""What the experiment submits, and what it makes of what happened."""

import json

import pytest

from hack.experiment import course, figures, objects, play, remote
from hack.experiment.__main__ import arguments
from hack.experiment.arms import ADOPT, GUESTS, PAPER, WRONG, scenario_of
from hack.experiment.course import Course

STATIC, THRESHOLD, PRIORS, LEARNED = PAPER.arms[:4]
UNIFORM = scenario_of("uniform", STATIC)


def ran(name, due, started, finished, *, queue="gpu-lq", run=10.0, **more):
    return Course(
        name=name,
        template=name[0],
        submitted_to="gpu-lq",
        due=due,
        created=due + 0.1,
        queue=queue,
        started=started,
        finished=finished,
        run_seconds=run,
        **more,
    )


def test_every_arm_has_queues_of_its_own():
    kinds = {}
    for arm in PAPER.arms:
        for item in objects.queues(UNIFORM, arm):
            metadata = item["metadata"]
            kinds.setdefault(item["kind"], []).append((metadata.get("namespace"), metadata["name"]))

    assert {kind: len(set(names)) for kind, names in kinds.items()} == {
        "Namespace": 4,
        "ResourceFlavor": 8,
        "ClusterQueue": 8,
        "LocalQueue": 8,
    }


def test_with_two_clusters_the_worker_has_the_gpus_and_the_manager_a_queue_that_leads_there():
    items = objects.queues(UNIFORM, STATIC)

    checked = {
        item["metadata"]["name"]: item["spec"]["admissionChecksStrategy"]["admissionChecks"]
        for item in remote.at_manager(items, STATIC)
        if "admissionChecksStrategy" in item.get("spec", {})
    }
    there = {item["kind"]: item["metadata"]["name"] for item in remote.at_worker(items)}
    assert checked == {"gpu-cq-static": [{"name": "gpu-clusters-static"}]}
    assert (there["ClusterQueue"], there["LocalQueue"]) == ("gpu-cq-static", "gpu-lq")
    assert len(remote.at_worker(items)) == 5


def test_a_policy_is_for_its_arm_alone_and_as_fast_as_its_jobs():
    light, heavy = objects.policies(scenario_of("uniform", PRIORS), PRIORS, time_scale=4)

    selector = {"matchLabels": {"kubernetes.io/metadata.name": "experiment-priors"}}
    assert light["spec"]["match"]["namespaceSelector"] == selector
    assert light["spec"]["strategy"]["finishTime"]["runTime"] == "5.000s"
    assert [item["metadata"]["name"] for item in (light, heavy)] == ["light-priors", "heavy-priors"]
    assert objects.policies(UNIFORM, STATIC, time_scale=1) == []


def test_wrong_priors_are_wrong_in_the_policy_alone():
    believed, true = {}, set()
    for arm in (*PAPER.arms[2:], *WRONG.arms[1:]):
        scenario = scenario_of("burst", arm)
        light, _ = objects.policies(scenario, arm, time_scale=1)
        believed[arm.key] = light["spec"]["options"][1]["slowdown"]
        true |= {each.run_seconds.get("cpu") for each in scenario.submissions}

    assert believed == {
        "priors": 3.5,
        "learned": 3.5,
        "over": 5.25,
        "under": 2.333,
        "far-over": 10.5,
        "far-under": 1.167,
    }
    assert true == {None, 70.0}


def test_a_policy_that_comes_late_adopts_and_changes_resources_alone():
    _, arm = ADOPT.arms
    light, heavy = objects.policies(scenario_of("burst", arm), arm, time_scale=1)

    rules = [item["spec"]["reconsider"] for item in (light, heavy)]
    assert [each["adopt"] for each in rules] == [True, True]
    assert light["spec"]["options"][1]["adaptation"] == {"accelerator": "Remove"}
    # The scenario's own policy is as it was.
    (kept, _) = objects.policies(scenario_of("burst", PRIORS), PRIORS, time_scale=1)
    assert kept["spec"]["options"][1]["adaptation"]["env"] == {"RUN_ENV": "cpu"}


def images(arm, round_name):
    found = objects.job(UNIFORM, UNIFORM.submissions[1], arm, round_name=round_name)
    return found["spec"]["template"]["spec"]["containers"][0]["image"]


def test_only_an_arm_that_learns_meets_its_classes_again():
    assert images(PRIORS, "r1-uniform") != images(PRIORS, "r2-uniform")
    assert images(LEARNED, "learning-uniform") == images(LEARNED, "r2-burst")
    assert images(LEARNED, "r1-uniform") != images(PRIORS, "r1-uniform")


def test_a_jobs_pods_run_as_long_as_the_scenario_says():
    fast = UNIFORM.faster(4)
    found = objects.job(fast, fast.submissions[1], THRESHOLD, round_name="r1-uniform")

    assert found["metadata"]["name"] == "r1-uniform-light-1"
    assert found["metadata"]["namespace"] == "experiment-threshold"
    assert found["spec"]["template"]["metadata"]["annotations"] == {
        "sim.example.com/gpu-run": "5000ms",
        "sim.example.com/cpu-run": "17500ms",
    }
    # The scenario's own template is as it was.
    assert "name" not in UNIFORM.templates["light"]["metadata"]


def test_the_decision_on_a_job_tells_option_and_forecast():
    options = [{"name": "gpu", "startsIn": 40.5}, {"name": "cpu", "startsIn": 0}]
    decision = json.dumps({"option": "cpu", "options": options})
    annotated = {"metadata": {"annotations": {"kueue-fallback.dev/decision": decision}}}

    assert course.decided(annotated) == ("cpu", 0.0)
    assert course.decided({"metadata": {}}) == ("", None)


def job_seen(*, suspend, start=None, condition=None):
    conditions = [{"type": condition, "status": "True"}] if condition else []
    status = {"conditions": conditions, **({"startTime": start} if start else {})}
    labels = {"kueue.x-k8s.io/queue-name": "cpu-lq"}
    return {"metadata": {"labels": labels}, "spec": {"suspend": suspend}, "status": status}


def test_a_job_starts_and_ends_when_that_is_first_seen():
    one = Course(name="a", template="a", submitted_to="gpu-lq", due=0.0, created=0.0)
    for moment, sight in enumerate(
        [
            job_seen(suspend=True),
            job_seen(suspend=False),
            job_seen(suspend=False, start="now"),
            job_seen(suspend=False, start="now"),
            job_seen(suspend=False, start="now", condition="Complete"),
            job_seen(suspend=False, start="now", condition="Complete"),
        ]
    ):
        one = course.seen(one, sight, float(moment))

    assert (one.queue, one.started, one.finished, one.failed) == ("cpu-lq", 2.0, 4.0, False)
    assert course.seen(one, job_seen(suspend=False, condition="Failed"), 9.0).failed


ROUND = (
    ran("a1", 0.0, 0.2, 12.2, starts_in=0.0),
    ran("b1", 1.0, 12.7, 24.7, starts_in=10.0),
    ran("b2", 2.0, 2.2, 42.2, queue="cpu-lq", run=40.0),
)


def test_a_round_comes_to_its_figures():
    found = figures.figures(ROUND)

    assert found.makespan == pytest.approx(42.1)
    assert found.turnaround == pytest.approx((12.1 + 23.6 + 40.1) / 3)
    assert found.by_template == pytest.approx({"a": 12.1, "b": 31.85})
    assert (found.moved, found.failed) == (("b2",), 0)
    assert found.overhead == pytest.approx(2.0)
    assert found.gap == pytest.approx(0.5)
    assert found.lag_p90 == pytest.approx(0.1)
    (first, second) = found.forecasts
    assert first == pytest.approx((0.0, 0.1))
    assert second == pytest.approx((10.0, 11.6))


def test_forecasts_of_short_waits_may_be_off_by_five_seconds():
    assert figures.forecast_error([(100.0, 200.0)], 50) == 50.0
    assert figures.forecast_error([(5.0, 0.0)], 50) == 10.0
    assert figures.forecast_error([(0.0, 5.0)], 90) == 25.0
    assert figures.forecast_error([], 50) is None


def made(makespan, **more):
    return figures.figures([ran("a1", 0.0, 0.5, makespan + 0.1, run=makespan - 2, **more)])


def test_only_arms_that_ran_are_held_to_their_targets():
    rounds = {"static": [made(200.0), made(100.0)], "threshold": [made(180.0), made(95.0)]}

    found = figures.targets("burst", rounds, {"threshold": 150.0})

    assert [(each.name, round(each.value, 1), each.is_met) for each in found] == [
        ("burst: threshold saves, % of static, mean", 7.5, False),
        ("burst: simulate is off for threshold, %", 9.1, False),
    ]


def test_behind_multikueue_two_points_less_must_be_saved():
    rounds = {"static": [made(200.0)], "threshold": [made(184.0)]}

    limits = [
        figures.targets("burst", rounds, {}, clusters=clusters)[0].limit for clusters in (1, 2)
    ]

    assert limits == [9, 7]


def test_natives_are_compared_with_those_without_guests():
    def natives(seconds):
        return [figures.figures([ran("native-1", 0.0, 0.5, seconds + 0.1)])]

    rounds = {"static": natives(20.0), "limited": natives(20.6)}
    rounds = {
        key: [figures.dataclasses.replace(own[0], by_template={"native": own[0].turnaround})]
        for key, own in rounds.items()
    }

    (found,) = figures.targets("guests", rounds, {})

    assert (found.value, found.is_met) == (pytest.approx(3.0), True)


def test_a_busy_machine_is_complained_of():
    late = figures.figures([ran("a1", 0.0, 0.5, 12.0), ran("a2", -2.0, 0.5, 20.0)])
    late = figures.dataclasses.replace(late, lag_p90=1.4)

    assert figures.complaints({"static": [late]}, time_scale=1) == [
        "The machine was too busy, these figures are not to be trusted:",
        "static: Jobs were created 1.4 s late (p90)",
        "static: Jobs held quota 9.5 s longer than they ran (p90)",
    ]
    assert figures.complaints({"static": [made(50.0)]}, time_scale=1) == []


def test_the_same_is_simulated_with_the_overhead_that_was_measured():
    measured = {"uniform": {"static": [made(100.0)]}}

    (found,) = play.simulated(PAPER.only(("static",)), measured, time_scale=1).values()

    # 1.6 s for each of the Jobs that follow one another on a GPU.
    assert found["static"] == pytest.approx(209 + 7 * 1.6, abs=8)


def test_who_learns_is_simulated_after_a_round_of_learning():
    keys = ("priors", "learned")
    measured = {"uniform": {key: [made(100.0)] for key in keys}}

    (found,) = play.simulated(PAPER.only(keys), measured, time_scale=1).values()

    assert found["learned"] < found["priors"]


def test_what_comes_late_is_measured_and_not_simulated():
    measured = {"burst": {"static": [made(200.0)], "adopt": [made(150.0)]}}

    found = play.simulated(ADOPT, measured, time_scale=1)
    promised = figures.targets("burst", measured["burst"], {})

    assert list(found["burst"]) == ["static"]
    assert [(each.name, each.value, each.is_met) for each in promised] == [
        ("burst: adopt saves, % of static, mean", pytest.approx(25.0), True)
    ]


def test_arms_are_named_by_their_keys():
    assert [arm.key for arm in PAPER.only(("threshold", "static")).arms] == ["threshold", "static"]
    assert GUESTS.only(()) == GUESTS
    with pytest.raises(ValueError, match="nobody is none of static, unlimited, limited"):
        GUESTS.only(("nobody",))


def test_a_quick_run_is_one_round_of_two_arms():
    found = arguments(["--quick"])

    assert (found.rounds, found.time_scale, found.arms) == (1, 4.0, ("static", "threshold"))
    assert arguments(["--quick", "--set", "guests"]).arms == ()
    assert arguments(["--rounds", "2"]).time_scale == 1.0
