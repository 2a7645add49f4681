"""The newest decisions, whichever way they came."""

import json

from tests.console.worlds import UNIX, decision
from webhook.console.book import Book


def line(identity, second=0):
    return json.dumps(
        {
            "namespace": "team",
            "generateName": "light-",
            "decision": {"id": identity, "time": f"2026-12-01T08:00:{second:02d}Z"},
        }
    ).encode()


def ids(book):
    return [each.id for each in book.newest()]


def test_the_newest_come_first_and_the_oldest_go():
    book = Book(kept=2)
    for second in (3, 1, 2):
        book.put_line(line(f"d-{second}", second))
        book.newest()

    assert ids(book) == ["d-3", "d-2"]


def test_a_line_that_is_no_decision_is_passed_over():
    book = Book()
    book.put_line(b"{")
    book.put_line(line("d"))

    assert ids(book) == ["d"]


def test_a_move_takes_the_place_of_its_jobs_creation():
    book, moved = Book(), decision(at=UNIX + 5)
    book.put([decision(), moved, decision()])

    assert book.newest() == (moved,)


def test_a_jobs_name_is_not_lost_to_what_it_was_made_from():
    book, named = Book(), decision(job="light-x7k2p")
    book.put([named, decision(job="light-")])

    assert book.newest() == (named,)


def test_no_namespace_can_take_the_place_of_anothers_decision():
    book = Book()
    book.put([decision(), decision(namespace="other", at=UNIX + 100)])

    assert [each.namespace for each in book.newest()] == ["other", "team"]


def test_of_many_jobs_at_once_only_the_newest_are_kept():
    book = Book(kept=3)
    book.put(decision(f"d-{number}", at=UNIX + number) for number in range(1000))

    assert ids(book) == ["d-999", "d-998", "d-997"]
