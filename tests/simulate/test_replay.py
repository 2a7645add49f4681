"""Replays: who starts when, and what admission knows meanwhile."""

from pathlib import Path

import pytest
import yaml

from tests.simulate import files
from tests.simulate.shipped import SCENARIOS, shipped
from webhook.model.fields import FieldError
from webhook.simulate.replay import replay
from webhook.simulate.results import LostRun


def ways(scenario, strategy="static"):
    """Each Job's queue, start and finish."""
    (arm,) = scenario.arms([strategy])
    return [(job.queue, job.start, job.finish) for job in replay(scenario, arm).jobs]


def changed(*changes):
    """The small scenario with several places changed."""
    found = files.document()
    for path, value in changes:
        place = found
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
    return files.read(found)


def of_queue(field, value):
    """A change to the ClusterQueue ``fast``, the third object."""
    return ("cluster", "objects", 2, "spec", field), value


@pytest.mark.parametrize(
    ("name", "strategy", "makespan", "moved"),
    [
        ("uniform", "static", 216.0, 0),
        ("uniform", "Threshold", 195.0, 3),
        ("burst", "static", 215.0, 0),
        ("burst", "Threshold", 194.0, 3),
        ("uniform", "FinishTime", 175.0, 6),
        ("burst", "FinishTime", 173.0, 6),
    ],
)
def test_the_published_scenarios_take_as_long_as_they_do(name, strategy, makespan, moved):
    scenario = shipped(name)
    (arm,) = scenario.arms([strategy])

    totals = replay(scenario, arm).totals

    assert (round(totals.makespan, 2), totals.moved) == (makespan, moved)


def test_what_owners_say_counts_for_those_who_wait_behind_them():
    silent = files.policy(strategy={"type": "FinishTime", "finishTime": {}})
    times = {"runTimes": {"fast": "60s", "slow": "180s"}, "said": {"of": "fast", "times": 1}}
    coming = [{"burst": {"count": 8, "gap": "5s", "jobs": ["work"]}}]
    work = {**files.document()["jobs"]["work"], **times}

    scenario = changed(
        (["policies", "objects"], [silent]), (["jobs", "work"], work), (["arrivals"], coming)
    )

    assert [queue for queue, _, _ in ways(scenario, "spill")].count("slow") == 1


def test_jobs_start_one_after_another_where_they_were_submitted():
    assert ways(files.read()) == [("fast", 11.0 * n, 11.0 * n + 10) for n in range(4)]


def test_admission_knows_who_waits_and_who_holds_quota():
    # The first two fit and find nobody pending; then each queue has one pending.
    assert ways(files.read(), "Threshold") == [
        ("fast", 0.0, 10.0),
        ("fast", 11.0, 21.0),
        ("slow", 0.0, 30.0),
        ("slow", 31.0, 61.0),
    ]


def test_what_ends_at_the_moment_of_an_arrival_is_gone():
    arrivals = [{"at": "0s", "job": "work"}, {"at": "10s", "job": "work"}]

    assert ways(changed((["arrivals"], arrivals)), "Threshold") == [
        ("fast", 0.0, 10.0),
        ("fast", 10.0, 20.0),
    ]


def test_a_run_without_length_makes_room_at_once():
    run_times = {"fast": "0s", "slow": "0s"}

    assert ways(changed((["jobs", "work", "runTimes"], run_times))) == [("fast", 0.0, 0.0)] * 4


def test_in_a_stopped_queue_everybody_waits_for_ever():
    assert ways(changed(of_queue("stopPolicy", "Hold"))) == [("fast", None, None)] * 4


def test_a_queue_that_does_not_select_the_namespace_starts_nobody():
    selector = {"matchLabels": {"team": "other"}}

    assert ways(changed(of_queue("namespaceSelector", selector))) == [("fast", None, None)] * 4


@pytest.mark.parametrize(
    ("queueing", "starts"),
    [("BestEffortFIFO", [0.0, None, 11.0]), ("StrictFIFO", [0.0, None, None])],
)
def test_only_under_strict_fifo_does_one_that_never_fits_hold_up_the_others(queueing, starts):
    large = {"job": files.job(cpu="2"), "runTimes": {"fast": "10s"}}
    arrivals = [{"at": f"{at}s", "job": job} for at, job in enumerate(["work", "large", "work"])]
    scenario = changed(
        of_queue("queueingStrategy", queueing), (["jobs", "large"], large), (["arrivals"], arrivals)
    )

    assert [start for _, start, _ in ways(scenario)] == starts


def test_a_run_time_that_is_not_said_is_missed_only_where_it_is_needed():
    scenario = changed((["jobs", "work", "runTimes"], {"fast": "10s"}))

    assert ways(scenario)[-1] == ("fast", 33.0, 43.0)
    with pytest.raises(FieldError) as missing:
        ways(scenario, "Threshold")
    assert str(missing.value) == (
        "jobs.work.runTimes: expected a run time on flavor slow, found only fast"
    )


def test_a_job_whose_needs_cannot_be_read_is_a_mistake():
    scenario = changed((["jobs", "work", "job"], files.job(cpu="much")))

    with pytest.raises(FieldError) as mistake:
        ways(scenario)
    assert str(mistake.value) == "jobs.work: expected a Job that can be queued"


def test_progress_is_told_of_every_arrival():
    scenario = files.read()
    told = []

    replay(scenario, scenario.arms(["static"])[0], progress=told.append)

    assert told == [1, 2, 3, 4]


def test_who_starts_and_is_preempted_at_the_same_moment_waits_again():
    document = yaml.safe_load((SCENARIOS / "shared-gpus.yaml").read_text())
    for rate in ("rate-a", "rate-b", "duration"):
        del document["parameters"][rate]
    names = ("a-wide", "b-wide", "a-wide", "a-low")
    document["arrivals"] = [{"at": f"{at}s", "job": name} for at, name in enumerate(names)]
    stay = {"gpus": 2, "reclaim": "Any", "spread": 0, "minimum-gain": "9999s"}
    scenario = files.read(document, given=stay)
    (arm,) = scenario.arms(["FinishTime"])

    first, wide, _, narrow = replay(scenario, arm).jobs

    # The wide Job of b borrows all that a's releases, and a's narrow one, behind a's second wide
    # one, takes back what is a's.
    assert wide.lost == (LostRun("gpu-b", narrow.start - 1, narrow.start - 1),)
    assert first.finish <= narrow.start - 1 < narrow.finish < wide.finish


def test_who_is_preempted_and_moved_while_its_pods_stop_runs_again_once():
    document = yaml.safe_load((SCENARIOS / "shared-gpus.yaml").read_text())
    for rate in ("rate-a", "rate-b", "duration"):
        del document["parameters"][rate]
    for policy in document["policies"]["objects"]:
        gain = {"time": "1s", "percent": 1}
        policy["spec"]["reconsider"] = {"after": "4s", "minimumGain": gain}
    names = ("a-low", "a-low", "a-low", "a-urgent", "a-urgent")
    coming = zip(("1s", "1500ms", "2s", "5500ms", "5500ms"), names, strict=True)
    document["arrivals"] = [{"at": at, "job": job} for at, job in coming]
    given = {"gpus": 1, "within": "LowerPriority", "spread": 0, "minimum-gain": "9999s"}
    scenario = files.read(document, given=given)
    (arm,) = scenario.arms(["FinishTime"])

    _, second, _, urgent, _ = replay(scenario, arm).jobs

    # It is moved half a second before its quota is free.
    assert second.lost == (LostRun("gpu-a", 1.5, 5.5),)
    assert (second.queue, second.start, second.finish) == ("cpu", 6.0, 86.0)
    assert urgent.start == 6.5


def test_jobs_that_take_quota_from_each_other_for_ever_are_a_mistake():
    scenario = files.read(yaml.safe_load(Path(__file__).with_name("for_ever.yaml").read_text()))

    with pytest.raises(FieldError) as mistake:
        replay(scenario, scenario.arms(["static"])[0])
    assert str(mistake.value) == (
        "jobs.other: expected Jobs that end; this one was preempted 1000 times, as some take quota"
        " from each other for ever, in Kueue, too"
    )


def test_a_class_that_an_option_gives_is_in_the_results():
    source = files.document()
    priority_class = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "low"},
        "value": -1,
    }
    source["cluster"]["objects"].append(priority_class)
    source["policies"]["objects"][0]["spec"]["options"][1]["priorityClass"] = "low"
    scenario = files.read(source)

    static, threshold = (replay(scenario, arm).jobs for arm in scenario.arms())

    assert {job.priority_class for job in static} == {""}
    assert {(job.option, job.priority_class) for job in threshold} == {
        ("fast", ""),
        ("slow", "low"),
    }
