"""What anybody who may create a Job or a Workload can write into it harms that object alone."""

import json

import pytest

from tests.state.feeds import changed, synced_feed
from tests.state.objects import RESERVED, condition, workload
from webhook.api import client
from webhook.api import resources as kinds
from webhook.api.kubernetes_api import Unreachable
from webhook.api.resources import ReadObject, read_by
from webhook.api.watch import WatchUpdate
from webhook.learn.job_class import parse_mark
from webhook.learn.run_records import ClassRecord, config_map, read_shard
from webhook.model import faults, fields, quantity
from webhook.model.fields import FieldError
from webhook.model.forecasts import JobClass
from webhook.state import forecast_input
from webhook.state.queue_counts import PendingArrivals
from webhook.state.workload import read_workload

DAY = "2026-11-21T06:00:10Z"
CLASS = "kueue-fallback.dev/class"
DIGITS = "9" * 5000


def over(mark, reason="Succeeded"):
    """A Workload that was admitted and has ended, with our mark of a class."""
    conditions = (RESERVED, condition("Admitted"), condition("Finished", reason=reason))
    conditions = tuple({**each, "lastTransitionTime": DAY} for each in conditions)
    source = workload("hostile", conditions=conditions, admitted_to="gpu-cq")
    source["spec"]["podSets"][0]["template"]["metadata"]["annotations"][CLASS] = mark
    return source


@pytest.mark.parametrize("mark", [f"x ~y {DIGITS}", "x ~y 99999999999", f"ab ~cd {1 << 32}"])
@pytest.mark.parametrize("reason", ["Succeeded", "Failed"])
def test_a_class_with_a_number_that_is_none_of_ours_is_worked_out_anew(mark, reason):
    feed = synced_feed()

    feed.take(changed(kinds.WORKLOADS, "ADDED", over(mark, reason)))
    update = feed.update(3.0, 0.0)

    assert update.synced
    (learned,) = feed.workloads()
    assert learned.run.mark == read_workload(over("", reason)).run.mark


@pytest.mark.parametrize("mark", ["@gpu-cq ~a 0", "~a ~a 0", f"{'a' * 300} ~a 0", "k=v ~a é"])
def test_a_class_that_stands_for_others_or_for_none_is_not_believed(mark):
    assert parse_mark(mark, "team") is None


@pytest.mark.parametrize("cpu", [DIGITS, "1" * 65, f"0.{DIGITS}", f"{DIGITS}m"])
def test_a_workload_that_asks_for_a_number_without_end_is_counted_and_learned_from_by_nobody(cpu):
    feed = synced_feed()

    feed.take(changed(kinds.WORKLOADS, "ADDED", workload("hostile", cpu=cpu)))
    feed.take(changed(kinds.WORKLOADS, "ADDED", workload("plain", job="other")))

    assert feed.update(3.0, 0.0).synced
    hostile, plain = feed.workloads()
    assert (hostile.job_class, PendingArrivals().of(hostile)) == (None, None)
    assert PendingArrivals().of(plain) is not None


@pytest.mark.parametrize("text", [DIGITS, "1" * 65, f"{DIGITS}Gi"])
def test_a_quantity_of_more_than_64_characters_is_refused_and_not_repeated(text):
    for read in (quantity.nano, quantity.exact, lambda given: quantity.parse(given, resource="x")):
        with pytest.raises(FieldError) as error:
            read(text)
        assert len(str(error.value)) < 200
    assert not quantity.is_quantity(text)


@pytest.mark.parametrize(
    "name", ["decision-id", "decided-by", "class"], ids=["decision-id", "decided-by", "class"]
)
def test_marks_longer_than_ours_are_not_kept(name):
    source = workload(decision="")
    marks = source["spec"]["podSets"][0]["template"]["metadata"]["annotations"]
    marks[f"kueue-fallback.dev/{name}"] = "x" * 240_000

    found = read_workload(source)

    assert (found.decision_id, found.policy) == ("", "")
    assert len(repr(found)) < 5_000


@pytest.mark.parametrize("name", ["decision-id", "decided-by", "class"])
@pytest.mark.parametrize("text", ["light\ngpu", "light\tgpu", "light\u2028gpu", "light\x1d"])
def test_marks_with_line_breaks_or_control_characters_are_not_kept(name, text):
    source = workload()
    marks = source["spec"]["podSets"][0]["template"]["metadata"]["annotations"]
    marks[f"kueue-fallback.dev/{name}"] = text

    found = read_workload(source)

    assert (found.decision_id, found.policy) == ("", "")
    assert text not in forecast_input.class_text(found)


@pytest.mark.parametrize(
    "written",
    ["9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "2" * 300, ""],
)
def test_a_time_that_four_bytes_do_not_hold_is_refused(written):
    with pytest.raises(FieldError, match="expected a time"):
        fields.seconds_since_1970(written, "here")


def test_a_time_without_a_zone_is_utc():
    assert fields.seconds_since_1970("1970-01-02T00:00:00", "here") == 86_400.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1e999}', "here: expected JSON"),
        ('{"a": NaN}', "here: expected JSON"),
        ('{"a": 1' + 400 * "0" + "}", "here: expected JSON"),
        ('{"a": "\\ud800"}', "here: expected JSON"),
        ('{"\\udfff": 1}', "here: expected JSON"),
        ('{"a":' * 200 + "1" + "}" * 200, "here: nested more than 128 deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "here: expected JSON"),
        ("[1]", "here: expected an object, got a list"),
        ('{"a": "' + "x" * 100_000 + '"}', "here: expected at most 65536 characters, got 100009"),
    ],
)
def test_json_in_a_text_is_bounded_in_size_depth_numbers_and_characters(text, message):
    with pytest.raises(FieldError) as error:
        fields.from_json(text, "here", longest=65_536)

    assert str(error.value) == message


@pytest.mark.parametrize("error", [RuntimeError, RecursionError, UnicodeError, KeyError])
def test_whatever_a_reader_raises_is_a_problem_of_that_object_without_its_text(error):
    def reader(source):
        raise error("s3cret", b"", 0, 1, "s3cret") if error is UnicodeError else error("s3cret")

    entry = read_by(reader, "jobs", {"metadata": {"name": "a", "namespace": "team"}})

    assert entry[:2] == (("team", "a"), None)
    assert entry.problem.startswith(f"jobs team/a: {error.__name__} at ")
    assert "s3cret" not in entry.problem


def test_lack_of_memory_is_no_objects_fault():
    def work():
        raise MemoryError

    with pytest.raises(MemoryError):
        faults.attempted(work)


def test_an_object_that_only_a_follower_of_its_own_reads_is_counted_and_named_once_too():
    feed = synced_feed()
    bad = ReadObject(("team", "a"), None, "jobs team/a: bad")
    good = ReadObject(("team", "a"), object())

    told = [
        feed.hear(WatchUpdate(kind="jobs", at=1.0, event=("MODIFIED", each))) for each in (bad, bad)
    ]
    counted = feed.update(2.0, 0.0).problems
    feed.hear(WatchUpdate(kind="jobs", at=1.0, entries=(good,)))

    assert told == [("skipped: jobs team/a: bad",), ()]
    assert (counted, feed.update(3.0, 0.0).problems) == ({"jobs": 1}, {})


@pytest.mark.parametrize(
    "line", ["[" * 20_000, '{"class": "\\ud800"}', '{"class": "a", "runs": 7}']
)
def test_a_damaged_line_of_the_records_costs_that_line(line):
    known = {"a-class": ClassRecord(name="trainer")}
    source = dict(config_map(3, known))
    source["data"] = {**source["data"], "classes": f"{line}\n{source['data']['classes']}"}

    assert read_shard(source) == known


def test_what_is_recalled_of_long_texts_is_nothing():
    source = workload()
    template = source["spec"]["podSets"][0]["template"]
    template["spec"]["containers"][0]["args"] = ["x" * 50_000]

    one, other = read_workload(source), read_workload(source)

    assert one.job_class == other.job_class
    assert isinstance(one.job_class, JobClass)
    assert one.job_class.key is not other.job_class.key


def test_what_is_nested_thousands_deep_where_nobody_looks_costs_nothing_else():
    deep = '[{"a":' * 5000 + '"}]"' + "}]" * 5000
    plain = {"metadata": {"name": 'a "[{" b\\'}, "items": [1, {"b": [2]}]}
    content = json.dumps({"managedFields": "@", **plain}).replace('"@"', deep).encode()

    found = dict(client.parse(content))

    nested, depth = found.pop("managedFields"), 1
    while nested is not None:
        nested, depth = (nested[0] if isinstance(nested, list) else nested["a"]), depth + 1
    assert (found, depth) == (plain, fields.DEEPEST)


def test_what_is_no_json_at_all_is_said_to_be_none_however_deep():
    with pytest.raises(Unreachable, match="an answer that is not JSON"):
        client.parse(b"[" * 100_000)
