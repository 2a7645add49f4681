"""What the regret bench concludes from pairs of Jobs, and what its worlds are made of."""

import pytest

from bench import regret
from bench.experiment.course import Course
from bench.regret import Pair, figures, lines, targets
from webhook.simulate.results import LostRun

WORLDS = ("preemption", "fair")


def pair(
    stayed,
    decided,
    *,
    again=None,
    would_take=0.0,
    is_gone=False,
    priority="low",
    preempted=(0, 0, 0),
):
    return Pair(
        world="here",
        job="some",
        priority=priority,
        stayed=stayed,
        again=stayed if again is None else again,
        decided=decided,
        is_advised=would_take > 0,
        would_take=would_take,
        is_gone=is_gone,
        preempted=preempted,
    )


def test_a_class_is_worse_off_above_a_percent_and_beyond_the_noise_of_its_jobs():
    slower = [pair(100.0, 102.0 + odd) for odd in (0.0, 0.1, 0.2)]
    as_noisy = [pair(100.0, 102.0 + odd, priority="high") for odd in (0.0, 50.0, -50.0)]
    as_alike = [pair(99.0, 102.0 + odd, again=101.5, priority="middle") for odd in (0.0, 0.1, 0.2)]
    sooner = [pair(100.0, 50.0, priority="other")] * 3

    found = figures([*slower, *as_noisy, *as_alike, *sooner])

    assert [(row.priority, row.verdict) for row in found] == [
        ("low", "WORSE"),
        ("high", "noise"),
        ("middle", "WORSE"),
        ("other", "met"),
    ]
    assert found[0].worse_percent == pytest.approx(2.1)
    assert found[2].null_percent == pytest.approx(100 * 2.5 / 99)
    assert [target.value for target in targets(found)] == [2, 0]
    assert [target.is_met for target in targets(found)] == [False, True]


def test_advice_is_wrong_where_the_job_that_stays_is_done_sooner():
    (found,) = figures(
        [
            pair(100.0, 90.0, would_take=90.0, is_gone=True),
            pair(80.0, 90.0, would_take=90.0, is_gone=True),
            pair(80.0, 80.0),
        ]
    )

    assert (found.advised, found.wrong, found.gone, found.later) == (2, 1, 2, 1)
    assert [target.value for target in targets([found])] == [0, 50.0]
    assert lines([found])[1].split()[-6:-2] == ["2", "1", "2", "1"]


def test_preemptions_are_counted_in_the_mean_of_the_arms_in_which_all_stay():
    (found,) = figures(
        [pair(100.0, 90.0, preempted=(1, 2, 4)), pair(80.0, 90.0, preempted=(0, 2, 1))]
    )

    assert (found.preempted_stayed, found.preempted_decided) == (2.5, 5)
    assert lines([found])[1].split()[-2:] == ["2.50", "5"]


def test_jobs_of_the_arms_are_paired_with_their_class_and_what_going_takes():
    stay, *_ = regret.arms_of("preemption")
    given = regret.scenario("preemption", stay, regret.Scale(jobs=10), seed=1)

    def course(submission, **more):
        home = given.templates[submission.template]["metadata"]["labels"]
        name = home["kueue.x-k8s.io/queue-name"]
        return Course(
            name=submission.name,
            template=submission.template,
            submitted_to=name,
            due=submission.at,
            created=1.0,
            **{"queue": name, "option": "gpu", "finished": 101.0, **more},
        )

    advice = ["cpu", *["gpu"] * (len(given.submissions) - 1)]
    stayed = [
        (course(submission), course(submission, finished=111.0), option)
        for submission, option in zip(given.submissions, advice, strict=True)
    ]
    decided = [course(submission) for submission in given.submissions]
    lost = (LostRun("gpu-a", 1.0, 2.0),)
    gone = {"queue": "cpu", "option": "cpu", "started": 2.0, "run_seconds": 97.0, "lost": lost}
    decided[0] = course(given.submissions[0], **gone)

    first, *rest = regret.pairs("preemption", given, stayed, decided)

    takes = given.submissions[0].run_seconds["cpu"] + 2.0
    assert (first.would_take, first.is_gone, first.alike) == (takes, True, 105.0)
    assert [each.preempted for each in [first, *rest][:2]] == [(0, 0, 1), (0, 0, 0)]
    assert not any(each.is_advised or each.is_gone for each in rest)
    assert {each.priority for each in [first, *rest]} <= {"low", "normal", "urgent"}


def test_a_replay_pairs_the_same_jobs_without_a_control_plane():
    scale = regret.Scale(jobs=30)

    pairs = list(regret.replayed(["preemption", "fair"], scale, [1, 2]))

    given = {name: regret.scenario(name, regret.arms_of(name)[2], scale, 2) for name in WORLDS}
    of_seed = [found for found in pairs if found.job.startswith("s2-")]
    assert [(found.world, found.job) for found in of_seed] == [
        (name, f"s2-{submission.name}") for name in WORLDS for submission in given[name].submissions
    ]
    assert {found.priority for found in pairs} == {"low", "normal", "urgent"}
    assert all(found.stayed == found.again > 0 for found in pairs)
    sooner = [found for found in pairs if found.is_gone and found.decided < found.stayed]
    assert {found.priority for found in sooner} == {"low"}
