"""Both sides of every limit of the rule."""

from tests.builders import CPU_OPTION, GPU_OPTION, policy
from tests.learn.runs import DAY, ended, failure, success
from webhook.learn.failing import refused
from webhook.learn.run_records import ClassRecord, merged

NOW = 1_795_240_800
POLICY = policy().model_copy(update={"generation": 1})
THREE = [failure(NOW - 300, uid=1), failure(NOW - 200, uid=2), failure(NOW - 100, uid=3)]
FIRST = success(NOW - 1000)
UNTIL = NOW - 100 + DAY


def refusals(*runs, now=NOW, of=POLICY):
    record = ClassRecord()
    for run in runs:
        record = merged(record, run.record())
    return list(refused(record, of, now))


def test_three_failures_without_a_success_are_refused_for_a_day():
    late = success(NOW)

    assert refusals(*THREE, late) == [("cpu", UNTIL)]
    assert refusals(*THREE, late, now=UNTIL - 1) == [("cpu", UNTIL)]
    assert refusals(*THREE, late, now=UNTIL) == []


def test_two_failures_are_not_enough():
    assert refusals(*THREE[:2], FIRST) == []


def test_one_success_there_is_enough():
    assert refusals(*THREE, FIRST, success(NOW - 9000, option="cpu", flavors="plain")) == []


def test_the_first_option_must_have_succeeded_within_a_day():
    assert refusals(*THREE) == []
    assert refusals(*THREE, success(NOW - DAY)) == []
    assert refusals(*THREE, success(NOW - DAY + 50)) == [("cpu", NOW + 50)]


def test_a_slice_need_not_have_been_tried_elsewhere():
    slices = {
        "name": "cpu",
        "queue": "mig-lq",
        "adaptation": {"accelerator": "Replace", "by": {"nvidia.com/mig-1g.10gb": 1}},
    }
    of_slices = policy(GPU_OPTION, slices).model_copy(update={"generation": 1})

    assert refusals(*THREE, of=of_slices) == [("cpu", UNTIL)]
    assert refusals(*THREE, of=of_slices, now=UNTIL) == []
    assert refusals(*THREE[:2], of=of_slices) == []
    assert refusals(*THREE, success(NOW, option="cpu", flavors="mig"), of=of_slices) == []


def test_a_job_left_as_submitted_succeeds_for_the_first_option():
    assert refusals(*THREE, ended(finished=NOW - 1000)) == [("cpu", NOW - 1000 + DAY)]


def test_a_success_under_another_policy_tells_nothing():
    assert refusals(*THREE, success(NOW - 1000, policy="other")) == []


def test_a_changed_policy_begins_anew():
    changed = POLICY.model_copy(update={"generation": 2})
    newer = [failure(NOW - 50, generation=2, uid=4)]

    assert refusals(*THREE, FIRST, of=changed) == []
    assert refusals(*THREE, *newer, FIRST, of=changed) == []
    assert refusals(*THREE, *(failure(NOW - n, generation=2) for n in (1, 2, 3)), FIRST, of=changed)


def test_the_first_option_is_never_refused():
    there = [failure(NOW - n, option="gpu") for n in (1, 2, 3)]

    assert refusals(*there, FIRST) == []


def test_each_further_option_is_judged_on_its_own():
    third = {**CPU_OPTION, "name": "other", "queue": "other-lq"}
    which = policy(GPU_OPTION, CPU_OPTION, third).model_copy(update={"generation": 1})
    there = [failure(NOW - n, option="other") for n in (1, 2, 3)]

    assert [name for name, _ in refusals(*there, success(NOW), of=which)] == ["other"]
    assert [name for name, _ in refusals(*there, *THREE, success(NOW), of=which)] == [
        "cpu",
        "other",
    ]
