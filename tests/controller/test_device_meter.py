"""Which runs count as measured, and whose a pod is."""

import sys

import pytest

from tests.learn import runs
from webhook.controller.device_reader import MOST_PODS, DeviceMeter, MeasuredRun
from webhook.learn.device_runs import UNKNOWN_BOUND, UNKNOWN_PART, UNKNOWN_WATTS, unpack
from webhook.model.costs.devices import DeviceMeasure, DeviceSample

A100 = "NVIDIA-A100-SXM4-80GB"
SIZE = 80 * 10**9
BEGIN = 1_000_000.0


def sample(pod="train-abcde", value=8192.0, *, model=A100, part=""):
    return DeviceSample("team", pod, model, part, value)


def ended(job="train", *, kind="Job", admitted=BEGIN + 10, memory=SIZE, key="team/k"):
    return MeasuredRun(
        namespace="team",
        job=job,
        kind=kind,
        ended=runs.ended(key, int(admitted) + 100, seconds=100, uid=7),
        model=A100,
        memory=memory,
    )


def meter(*samples, at=BEGIN):
    """Return a meter that has had an answer, and at the next one these samples."""
    found = DeviceMeter()
    found.take(DeviceMeasure.MEMORY, (), at)
    found.take(DeviceMeasure.MEMORY, samples, at + 300)
    return found


def learnt(found, run, *, at=BEGIN + 310, samples=(), jobs=None):
    """Return what is learned of a run that ends, once the next answer is there."""
    found.end(run, at)
    assert list(found.take_ended(jobs or {})) == []
    found.take(DeviceMeasure.MEMORY, samples, at + 290)
    records = dict(found.take_ended(jobs or {"team": ("train",)}))
    return {
        key: {model: unpack(packed) for model, packed in record.measured.items()}
        for key, record in records.items()
    }


def test_a_run_is_learned_at_the_answer_after_its_end():
    found = meter(sample(value=8000.0))

    records = learnt(found, ended(), samples=[sample(value=9000.0)])

    ((finished, uid, peak, part, watts, bound),) = records["team/k"][A100]
    assert (finished, uid, peak) == (int(BEGIN) + 110, 7, 9000)
    assert part == round(1000 * 9000 * 2**20 / SIZE)
    assert (watts, bound) == (UNKNOWN_WATTS, UNKNOWN_BOUND)


def test_watts_and_what_bounds_are_means_over_answers_and_pods():
    found = meter(sample(), sample("train-bcdef"))
    for watts, compute, bandwidth in ((200.0, 0.3, 0.1), (300.0, 0.5, 0.1)):
        for pod in ("train-abcde", "train-bcdef"):
            found.take(DeviceMeasure.POWER, [sample(pod, watts)], BEGIN + 301)
            found.take(DeviceMeasure.COMPUTE, [sample(pod, compute)], BEGIN + 301)
            found.take(DeviceMeasure.BANDWIDTH, [sample(pod, bandwidth)], BEGIN + 301)

    ((*_, watts, bound),) = learnt(found, ended())["team/k"][A100]

    assert (watts, bound) == (250, 80)


def test_a_run_that_began_before_answers_came_is_not_learned():
    assert learnt(meter(sample()), ended(admitted=BEGIN - 301)) == {}


def test_a_run_with_a_gap_in_its_answers_is_not_learned():
    found = meter(sample())
    found.take(DeviceMeasure.MEMORY, [sample()], BEGIN + 300 + 361)

    assert learnt(found, ended(), at=BEGIN + 700) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        sample(value=None),
        sample(part="1g.10gb"),
        sample(model="NVIDIA-L4"),
        # More than the device has.
        sample(value=90_000.0),
    ],
)
def test_a_run_of_which_something_cannot_be_true_or_whole_is_not_learned(wrong):
    assert learnt(meter(sample(), wrong), ended()) == {}


def test_a_run_of_which_nothing_was_measured_is_not_learned():
    assert learnt(meter(sample("other-abcde")), ended()) == {}
    assert learnt(meter(sample(value=0.0)), ended()) == {}


def test_without_a_model_the_flavor_s_device_counts_and_without_its_size_no_part_is_known():
    found = meter(sample(model=""))

    ((*_, part, _, _),) = learnt(found, ended(memory=None))["team/k"][A100]

    assert part == UNKNOWN_PART


@pytest.mark.parametrize(
    ("pod", "job", "kind", "is_its"),
    [
        ("train-abcde", "train", "Job", True),
        ("train-0-abcde", "train", "Job", True),
        ("train-2-abcde", "train", "Job", False),  # There is a Job train-2.
        ("train-2-abcde", "train-2", "Job", True),
        ("train-api-7d9f8c6b5-abcde", "train", "Job", False),
        ("train-worker-0", "train", "PyTorchJob", True),
        ("train-worker-0", "train", "Job", False),
        ("train", "train", "Pod", True),
        ("trainer-abcde", "train", "RayJob", False),
        (f"{'n' * 58}abcde", "n" * 63, "Job", True),
    ],
)
def test_a_pod_is_the_job_s_with_the_longest_name(pod, job, kind, is_its):
    records = learnt(
        meter(sample(pod)), ended(job, kind=kind), jobs={"team": ("train", "train-2", "n" * 63)}
    )

    assert bool(records) is is_its


def test_pods_are_bounded_and_those_last_heard_of_longest_ago_go():
    found = meter(sample())
    found.take(
        DeviceMeasure.MEMORY, [sample(f"p-{number}") for number in range(MOST_PODS)], BEGIN + 600
    )

    assert learnt(found, ended(), at=BEGIN + 610) == {}


def test_thousands_of_runs_that_end_at_once_do_not_hold_up_the_loop():
    """Each pod's name is looked up once, whatever the number of Jobs."""
    found = DeviceMeter()
    names = [f"train-{number}" for number in range(4000)]
    samples = [sample(f"{name}-{number}-abcde") for name in names for number in range(3)]
    found.take(DeviceMeasure.MEMORY, (), BEGIN)
    found.take(DeviceMeasure.MEMORY, samples, BEGIN + 300)
    for name in names:
        found.end(ended(name, key=f"team/{name}"), BEGIN + 310)
    found.take(DeviceMeasure.MEMORY, samples, BEGIN + 600)
    calls = []

    def profile(frame, event, _):
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        learned = dict(found.take_ended({"team": names}))
    finally:
        sys.setprofile(None)

    assert len(learned) == len(names)
    assert calls.count("_owner") == len(samples)
    assert calls.count("_is_of") == len(samples)
