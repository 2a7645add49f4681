"""When quota is free for Kueue, by what its log says of cycles and of Workloads that stop."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest

from tests.e2e import timed_judge
from tests.e2e.timed_judge import (
    PREEMPTED,
    STARTS,
    Event,
    agreed,
    around,
    happened,
    parts_at,
)
from tests.e2e.timed_player import Course, Cycles, KueueLog, Run, SeenCycle
from tests.e2e.timed_quota import may_have_seen, quota_free_at
from tests.e2e.timed_worlds import make_world


def course(*, starts: str = "w08") -> Course:
    """Build a course in which w00 stopped just after the heads of a cycle that tried w08."""
    return Course(
        world=make_world(6),
        cycles=[SeenCycle(number=7, at=10.0, tried=["w08"]), SeenCycle(number=8, at=10.02)],
        runs=[
            Run(name="w00", started=5.0, due=6.0, ended=10.001, cycle=7, is_in_between=True),
            Run(name=starts, started=10.01, due=20.0),
        ],
    )


def test_quota_given_back_before_a_cycle_read_it_is_free_for_who_starts_in_it():
    played = course()

    assert quota_free_at(played, played.runs[0]) < 10.0


def test_quota_given_back_after_a_cycle_read_it_is_free_for_the_next():
    played = course()
    played.runs[0].is_in_between = False

    assert 10.0 < quota_free_at(played, played.runs[0]) < 10.02


def test_quota_of_a_cycle_in_which_nobody_started_is_free_for_the_next():
    played = course(starts="w03")

    assert 10.0 < quota_free_at(played, played.runs[0]) < 10.02


def test_victims_of_one_cycle_are_told_by_name_and_those_of_the_next_one_after_them():
    played = course()
    played.uids = {"uid-8": "w08"}
    played.runs = [
        Run(name="w03", started=1.0, due=9.0, evicted=5.0, by="uid-8"),
        Run(name="w00", started=2.0, due=9.0, evicted=5.1, by="uid-8"),
        Run(name="w00", started=6.0, due=9.0, evicted=6.5, by="uid-8"),
    ]

    told = [(event.name, event.at) for event in happened(played) if event.what == PREEMPTED]

    assert told == [("w00", 5.1), ("w03", 5.0), ("w00", 6.5)]


def test_courses_agree_in_what_is_the_same_before_they_part():
    def events(*names):
        return [Event(at=1.0, what=STARTS, name=name, detail="f0") for name in names]

    assert agreed(events("w00", "w01", "w02"), events("w00", "w01", "w03")) == 2
    assert parts_at(events("w00", "w01"), events("w00", "w01")) == inf
    assert parts_at(events("w00", "w01"), events("w01", "w00")) == 1.0


def test_the_cycle_with_which_the_courses_agree_is_taken_to_have_seen_quota_free(monkeypatch):
    played = course()
    played.asked = 6.0
    (happens,) = happened(played)

    def followed(given, *_):
        seen = given.runs[0].seen_by
        return ((happens,) if seen == 8 else (replace(happens, name="w01"),)), ("a draw",)

    monkeypatch.setattr(timed_judge, "followed", followed)

    events, draws = timed_judge.likeliest(played, None, None)

    assert events == (happens,)
    assert draws == ("a draw", "4.00: cycle 8 saw w00 gone")


def test_a_difference_is_shown_with_what_kueue_tried_about_then():
    played = course()
    played.cycles[1] = SeenCycle(number=8, at=14.0, tried=["w01"])

    assert around(played, 10.5).splitlines() == [
        "  10.000 cycle 7 tries w08",
        "  10.001 w00 stops",
    ]


def test_quota_is_free_for_the_cycle_that_is_taken_to_have_seen_it():
    played = course()
    played.runs[0].seen_by = 8

    assert 10.0 < quota_free_at(played, played.runs[0]) < 10.02


def test_the_first_to_see_quota_free_is_a_cycle_until_the_workload_is_tried_again():
    played = course()
    tried = ["w08"], ["w08"], ["w08", "w01"], ["w00", "w01"], ["w02"]
    played.cycles = [
        SeenCycle(number=number, at=10.0 + 0.1 * number, tried=[*names])
        for number, names in enumerate(tried)
    ]

    found = may_have_seen(played, played.runs[0])

    # The second tries the same as the first; the fourth tries who had the quota.
    assert [cycle.number for cycle in found] == [0, 2, 3]


@pytest.mark.parametrize(
    ("messages", "is_reading"),
    [
        (("Scheduling cycle starts",), False),
        (("Scheduling cycle starts", "Obtained heads"), True),
        (("Scheduling cycle starts", "Obtained heads", "Snapshot taken"), False),
    ],
)
def test_a_cycle_reads_quota_between_its_heads_and_its_snapshot(tmp_path, messages, is_reading):
    path = tmp_path / "kueue.log"
    path.touch()
    cycles = Cycles()
    at = datetime(2026, 11, 1, tzinfo=UTC).isoformat()

    with KueueLog(path) as log:
        path.write_text(
            "".join(
                json.dumps({"ts": at, "msg": m}, separators=(",", ":")) + "\n" for m in messages
            )
        )
        for event in log.news():
            cycles.see(event)

    assert cycles.is_reading == is_reading
