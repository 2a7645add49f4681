"""What a user reads: what was changed and how to object, each in less than 120 characters."""

from math import inf

import pytest

from tests.builders import policy
from webhook.decide import warning
from webhook.decide.warning import Differences
from webhook.jobs import BY_NAME, JOB
from webhook.model.decision import Assessment, Decision, Rejection
from webhook.model.forecasts import Forecast, Start
from webhook.model.holds import Hold
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.policy.patterns import LONGEST_MESSAGE
from webhook.model.reasons import LeftAlone, Obstacle, Reason, Stayed

TO_OBJECT = (
    "kueue-fallback: to object: kubectl fallback undo train -n team --recreate",
    "kueue-fallback: or delete it and submit with annotation kueue-fallback.dev/policy=none",
)
IN_PLACE = (
    (
        "kueue-fallback: to object: kubectl fallback undo train -n team,"
        " or submit with kueue-fallback.dev/policy=none"
    ),
)
TRAIN = Job(namespace="team", name="train")
NO_GPU = Differences(queue=True, lost=("nvidia.com/gpu",), others=("env RUN_ENV",))


def option(name, *, queue="", start=0.0, finish=None, **rest):
    forecast = Forecast(start=Start(seconds=start, low=start, high=start), finish=finish)
    return Assessment(
        option=name,
        queue=queue or f"{name}-lq",
        forecast=None if finish is None else forecast,
        **rest,
    )


def said(*options, differences=NO_GPU, submitted="gpu-lq", kind=JOB, job=TRAIN, **rest):
    given = {"mode": Mode.ENFORCE, "option": "cpu", "left_alone": None, "reason": "", **rest}
    decision = Decision(
        id="a",
        time="",
        policy="light-gpu",
        from_queue=submitted,
        state_age_seconds=0.0,
        options=options,
        **given,
    )
    return warning.decided(decision, differences, submitted=submitted, kind=kind, job=job)


GPU = option("gpu", start=320.0, finish=340.0, pending=32)
CPU = option("cpu", finish=116.0, pending=0)


def test_it_says_what_is_taken_what_is_gained_and_how_to_object():
    first, *others = said(GPU, CPU)

    assert first == (
        "kueue-fallback: runs in cpu-lq without nvidia.com/gpu:"
        " done in ~1m56s, not ~5m40s (32 Jobs ahead in gpu-lq)"
    )
    assert tuple(others) == TO_OBJECT


LATER = option("cpu", start=30.0, finish=116.0)


def test_a_job_that_waits_is_undone_in_place():
    assert said(GPU, LATER)[1:] == IN_PLACE


def test_a_held_job_does_not_start_at_once():
    held = Hold(until=100.0, latest=200.0, saves=1.0, of=2.0)

    assert said(GPU, CPU, hold=held)[1:] == IN_PLACE


@pytest.mark.parametrize(
    ("namespace", "name", "command"),
    [
        ("team", "", "undo JOB -n team"),
        ("", "", "undo JOB"),
        ("team", "a b; rm -rf {x}", "undo JOB -n team"),
        ("n" * 63, "j" * 63, "undo JOB"),
    ],
)
def test_a_command_is_never_one_that_would_not_work(namespace, name, command):
    job = Job(namespace=namespace, name=name, generate_name="train-")

    (only,) = said(GPU, LATER, job=job)[1:]

    assert only.startswith(f"kueue-fallback: to object: kubectl fallback {command}, or submit with")


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - {"Job"}))
def test_how_to_object_names_the_kind_and_nothing_that_cannot_be_done(name):
    kind = BY_NAME[name]

    texts = said(GPU, LATER, kind=kind)[1:]

    undo = f"kubectl fallback undo {name.lower()}/train -n team"
    assert (undo in "".join(texts)) == kind.is_movable
    assert texts[-1].endswith("kueue-fallback.dev/policy=none")
    assert all(len(text) < 120 for text in texts)


def test_what_starts_at_once_and_cannot_be_recreated_is_deleted():
    assert said(GPU, CPU, kind=BY_NAME["RayJob"])[1:] == (
        (
            "kueue-fallback: it starts at once; to object: delete it and submit with annotation "
            "kueue-fallback.dev/policy=none"
        ),
    )


def test_what_is_decided_at_its_creation_only_is_not_undone():
    assert {name for name, kind in BY_NAME.items() if not kind.is_movable} >= {
        "StatefulSet",
        "LeaderWorkerSet",
    }
    assert said(GPU, CPU, kind=BY_NAME["StatefulSet"])[1] == (
        "kueue-fallback: to object: submit with annotation kueue-fallback.dev/policy=none"
    )


def test_a_move_of_another_kind_is_taken_back_by_its_type():
    (text,) = warning.moved(CPU, NO_GPU, left="gpu-lq", kind=BY_NAME["RayJob"], job=TRAIN)

    assert text.endswith("to take it back: kubectl fallback undo rayjob/train -n team")


def test_under_advise_it_says_what_would_be_done_and_nothing_to_object_to():
    (only,) = said(GPU, CPU, mode=Mode.ADVISE)

    assert only == (
        "kueue-fallback: would run in cpu-lq without nvidia.com/gpu:"
        " done in ~1m56s, not ~5m40s (32 Jobs ahead in gpu-lq)"
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            (option("gpu", pending=10), option("cpu", starts_now=True)),
            "starts now; gpu-lq has 10 pending",
        ),
        (
            (option("gpu", pending=0, reserving=4), option("cpu", pending=2)),
            "2 pending there; gpu-lq has 4 with quota",
        ),
        (
            (
                option("gpu", rejection=Rejection(reason=Reason.GUESTS_FULL, detail="3 of 3 in")),
                option("cpu", finish=90.0),
            ),
            "done in ~1m30s; gpu-lq refused: 3 of 3 in",
        ),
        (
            (option("gpu", start=600.0, finish=620.0, pending=1), option("cpu", finish=900.0)),
            "starts now, not in ~10m (1 Job ahead in gpu-lq)",
        ),
        (
            (
                option("gpu", start=600.0, finish=620.0),
                option("cpu", start=60.0, finish=900.0),
            ),
            "starts in ~1m, not ~10m",
        ),
        ((option("gpu", start=inf, finish=inf), option("cpu", finish=7200.0)), "done in ~2h"),
        ((option("gpu"), option("cpu")), ""),
    ],
)
def test_it_gives_the_numbers_that_are_known(options, why):
    first, *_ = said(*options)

    head = "kueue-fallback: runs in cpu-lq without nvidia.com/gpu"
    assert first == (f"{head}: {why}" if why else head)


@pytest.mark.parametrize(
    ("differences", "text"),
    [
        (Differences(queue=True), "runs in cpu-lq, not gpu-lq"),
        (
            Differences(queue=True, others=("image",)),
            "runs in cpu-lq, with another image, not gpu-lq",
        ),
        (
            Differences(queue=True, lost=("a", "b"), gained=("c",)),
            "cpu-lq with c instead of a, b",
        ),
        (Differences(others=("env A", "cpu")), "is changed in cpu-lq: env A, cpu"),
        (Differences(lost=("a/b",)), "runs in cpu-lq without a/b"),
    ],
)
def test_it_names_what_differs(differences, text):
    first, *others = said(option("gpu"), option("cpu"), differences=differences)

    assert (text in first, tuple(others)) == (True, IN_PLACE)


def test_it_names_the_worker_cluster():
    first, *_ = said(option("gpu"), option("cpu", finish=116.0, cluster="worker1"))

    where = "runs in cpu-lq on worker1 without nvidia.com/gpu"
    assert first == f"kueue-fallback: {where}: done in ~1m56s"


@pytest.mark.parametrize(
    ("differences", "text"),
    [
        (NO_GPU, "moved to cpu-lq without nvidia.com/gpu"),
        (Differences(queue=True), "moved to cpu-lq, not gpu-lq"),
        (Differences(others=("cpu",)), "is changed in cpu-lq: cpu"),
    ],
)
def test_a_move_says_what_it_changes_and_how_to_take_it_back(differences, text):
    assert warning.moved(CPU, differences, left="gpu-lq", kind=JOB, job=TRAIN) == (
        f"kueue-fallback: {text}; to take it back: kubectl fallback undo train -n team",
    )


def test_where_nothing_changes_nothing_is_said():
    assert said(GPU, CPU, differences=Differences()) == ()
    assert said(GPU, CPU, option=None, left_alone=LeftAlone.STALE, reason="stale") == ()


def test_what_cannot_be_read_is_said_in_two_lines_where_one_is_too_short():
    reason = (
        "left as submitted: metadata.annotations[kueue-fallback.dev/deadline]: expected a time"
        " such as 2026-12-01T08:00:00Z, or a duration such as 45m, got 'soon'"
    )

    first, second = said(GPU, CPU, option=None, left_alone=LeftAlone.UNREADABLE, reason=reason)

    assert first == "kueue-fallback: left as submitted: annotation kueue-fallback.dev/deadline"
    assert second == (
        "kueue-fallback: expected a time such as 2026-12-01T08:00:00Z,"
        " or a duration such as 45m, got 'soon'"
    )


def test_long_names_lose_their_middle_and_keep_their_ends():
    gpu = option("gpu", queue="g" * 60 + "-1", start=320.0, finish=340.0, pending=32)
    cpu = option("cpu", queue="c" * 100 + "-2", finish=116.0)

    first, second, *_ = said(gpu, cpu, submitted=gpu.queue)

    names = "c" * 35 + "..." + "c" * 32 + "-2"
    assert first == f"kueue-fallback: runs in {names} without nvidia.com/gpu"
    assert second.endswith("(32 Jobs ahead in " + "g" * 27 + "..." + "g" * 25 + "-1)")
    assert max(map(len, (first, second))) == 119


@pytest.mark.parametrize("obstacle", Obstacle)
def test_every_obstacle_stands_whole_in_its_warnings(obstacle):
    found = warning.refused("a-name-of-twenty-two", obstacle.meaning)

    text = ": ".join(each.removeprefix(warning.PREFIX) for each in found)
    assert text == f"not moved to a-name-of-twenty-two: {obstacle.meaning}"
    assert max(map(len, found)) < 120


def test_a_warning_is_linked_to_its_reason_where_that_fits():
    said, why = ("kueue-fallback: not undone: …",), Obstacle.IMMUTABLE_ENV
    url = "https://docs.example/reasons.md"

    assert warning.linked(said, why, url) == (
        *said,
        "kueue-fallback: see https://docs.example/reasons.md#Obstacle.immutableEnv",
    )
    assert warning.linked(said, why, url + "x" * 80) == said
    assert warning.linked(said, why, "") == said
    assert warning.linked(said, None, url) == said
    assert warning.linked((), why, url) == ()


def test_the_longest_message_of_a_policy_still_fits_into_one_warning():
    longest = "m" * LONGEST_MESSAGE

    *_, last = warning.by_policy(policy(message=longest).spec, ("changed",))

    assert last == f"kueue-fallback: {longest}"
    assert len(last) == warning.LONGEST


def test_a_value_of_many_lines_stays_in_few_lines_of_ascii():
    found = warning.sentence("left as submitted: metadata.annotations[a]: got 'ü\n\x07; " * 900)

    assert len(found) == 4
    assert all(len(each) < 120 and each.isascii() and each.isprintable() for each in found)


def test_it_says_why_a_sooner_option_was_passed_over():
    passed = Rejection(reason=Stayed.SMALL_GAIN, detail="9s sooner is less than the minimum")
    sooner = option("gpu", finish=107.0, passed_over=passed)

    first = said(sooner, CPU)[0]

    assert first == (
        "kueue-fallback: runs in cpu-lq without nvidia.com/gpu:"
        " done in ~1m56s; gpu-lq: 9s sooner is less than the minimum"
    )
