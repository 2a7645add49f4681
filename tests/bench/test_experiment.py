"""What the experiment submits, and what it reads off its Jobs."""

import json

from bench.experiment import course, objects
from bench.experiment.arms import PAPER, WRONG, scenario_of
from bench.experiment.course import Course

STATIC, THRESHOLD, PRIORS, LEARNED = PAPER.arms[:4]


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


def test_a_preempted_job_counts_from_its_last_start():
    before = Course(
        name="a", template="t", submitted_to="q", queue="q", due=0, created=0.0, started=3.0
    )
    stopped = course.seen(before, {"metadata": {}, "spec": {"suspend": True}}, 5.0)

    again = {"metadata": {}, "spec": {}, "status": {"startTime": "x"}}

    assert (stopped.started, stopped.lost) == (None, (("q", 3.0, 5.0),))
    assert course.seen(stopped, again, 9.0).started == 9.0
