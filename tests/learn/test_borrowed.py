"""What a manager lends to the forecasts of its worker clusters."""

from dataclasses import replace

from tests.builders import cluster_queue
from tests.learn.learned import learned
from webhook.learn.expected_runs import lent, together
from webhook.model.queues import MULTIKUEUE, AdmissionCheck

CHECK = AdmissionCheck(controller=MULTIKUEUE, parameters="all")
QUEUES = {
    "gpu-cq": cluster_queue("gpu-cq", {"remote": {"cpu": "8"}}, checks=("far",)),
    "cpu-cq": cluster_queue("cpu-cq", {"default": {"cpu": "8"}}),
}
THERE = {"four-gpus": cluster_queue("four-gpus", {"t4": {"cpu": "8"}, "a100": {"cpu": "8"}})}


def lent_of(recorded, *names):
    return lent(recorded, names or ("near", "far"), QUEUES, {"far": CHECK})


def test_what_ran_in_a_cluster_is_lent_to_it_alone():
    recorded = {
        ("k", "remote"): learned(60, 8),
        ("k", "remote@far"): learned(90, 4),
        ("k", "remote@near"): learned(30, 4),
    }

    assert lent_of(recorded) == {"near": {"k": learned(30, 4)}, "far": {"k": learned(90, 4)}}


def test_too_few_runs_there_stand_behind_those_of_all_clusters():
    recorded = {("k", "remote"): learned(60, 8), ("k", "remote@far"): learned(90, 2)}

    assert lent_of(recorded) == {"near": {"k": learned(60, 8)}, "far": {"k": learned(60, 8)}}


def test_what_ran_at_the_manager_or_in_a_cluster_that_is_gone_is_lent_to_nobody():
    recorded = {("k", "default"): learned(60), ("k", "remote@gone"): learned(90)}

    assert lent_of(recorded) == {"near": {}, "far": {}}


def test_what_is_lent_stands_for_each_flavor_of_the_cluster_that_is_not_known_itself():
    own = {("k", "t4"): learned(20, 3), ("other", "t4"): learned(5, 1)}

    assert together({"k": learned(60, 8)}, own, THERE) == {
        ("k", "t4"): learned(20, 3),
        ("k", "a100"): learned(60, 8),
        ("other", "t4"): learned(5, 1),
    }


def test_one_run_that_was_seen_is_not_set_against_many_that_were_recorded():
    own = {("k", "t4"): learned(20, 1)}

    assert together({"k": learned(60, 8)}, own, THERE)["k", "t4"] == learned(60, 8)


def test_runs_of_other_clusters_leave_no_data_in_one():
    warm = replace(learned(60, 8), warm=0.9)
    recorded = {("k", "remote"): warm, ("k", "remote@far"): replace(learned(90, 2), warm=0.5)}
    own = {("k", "t4"): learned(20, 1)}

    found = lent_of(recorded)

    assert found == {"near": {"k": learned(60, 8)}, "far": {"k": replace(warm, warm=0.5)}}
    assert together(found["near"], own, THERE)["k", "t4"] == learned(60, 8)
    assert together(found["far"], own, THERE)["k", "t4"] == replace(warm, warm=0.5)
