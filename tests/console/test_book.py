"""The newest decisions, whichever way they came."""

import json
from dataclasses import replace

from tests.console.worlds import UNIX, decision
from webhook.console.decisions import DecisionStore


def line(identity, second=0):
    return json.dumps(
        {
            "namespace": "team",
            "generateName": "light-",
            "decision": {"version": 1, "id": identity, "time": f"2026-12-01T08:00:{second:02d}Z"},
        }
    )


def ids(book):
    return [each.recorded.id for each in book.newest()]


def test_the_newest_come_first_and_the_oldest_go():
    book = DecisionStore(kept=2)
    for second in (3, 1, 2):
        book.put_line(line(f"d-{second}", second))
        book.newest()

    assert ids(book) == ["d-3", "d-2"]


def test_a_line_that_is_no_decision_is_passed_over():
    book = DecisionStore()
    book.put_line("{")
    book.put_line(line("d"))

    assert ids(book) == ["d"]


def test_a_move_takes_the_place_of_its_jobs_creation():
    book, moved = DecisionStore(), decision(at=UNIX + 5)
    for each in (decision(), moved, decision()):
        book.put(("team", "light"), each)

    assert book.newest() == (moved,)


def test_a_jobs_name_is_not_lost_to_what_it_was_made_from():
    book, named = DecisionStore(), decision(job="light-x7k2p")
    book.put(("team", "light-x7k2p"), named)
    book.put(("team", "light-x7k2p"), decision(job="light-"))

    assert book.newest() == (named,)


def test_no_namespace_can_take_the_place_of_anothers_decision():
    book = DecisionStore()
    book.put(("team", "light"), decision())
    book.put(("other", "light"), decision(namespace="other", at=UNIX + 100))

    assert [each.namespace for each in book.newest()] == ["other", "team"]


def test_of_many_jobs_at_once_only_the_newest_are_kept():
    book = DecisionStore(kept=3)
    for number in range(1000):
        book.put(("team", f"light-{number}"), decision(f"d-{number}", at=UNIX + number))

    assert ids(book) == ["d-999", "d-998", "d-997"]


def claimed(identity="d", **rest):
    return decision(identity, is_unverified=True, **rest)


def test_of_one_job_only_the_last_that_it_says_is_kept():
    book = DecisionStore()
    for number in range(30):
        book.put(("team", "light"), claimed(f"d-{number}"))

    assert ids(book) == ["d-29"]


def test_what_a_job_alone_has_said_is_forgotten_with_it():
    book = DecisionStore()
    for name in ("gone", "stays", "deleted"):
        book.put(("team", name), claimed(name))
    book.forget_others({("team", "stays"), ("team", "deleted")})
    book.put(("team", "deleted"), None)

    assert ids(book) == ["stays"]


def test_what_the_log_told_too_stays_and_is_not_what_the_job_says_of_the_same_moment():
    book = DecisionStore()
    book.put_line(line("d"))
    (told,) = book.newest()
    book.put(("team", "light-x7k2p"), claimed("d", at=told.at, job="light-x7k2p", reason="forged"))
    book.put(("team", "light-x7k2p"), None)

    assert book.newest() == (replace(told, job="light-x7k2p"),)
