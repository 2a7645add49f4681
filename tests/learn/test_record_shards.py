import json

from hypothesis import given
from hypothesis import strategies as st

from tests.learn.learners import RUNS, full_record, learned_from
from tests.learn.runs import ended, failure
from webhook.learn.run_records import MOST_BYTES, SHARDS, config_map, name_of, read_shard, shard_of

MIB = 1 << 20


def by_shard(records):
    found = {}
    for key, record in records.items():
        found.setdefault(shard_of(key), {})[key] = record
    return found


@given(RUNS, st.text(max_size=10))
def test_what_is_written_is_read_again(runs, name):
    records = learned_from([*runs, ended("named", name=name), failure(5)]).records

    written = json.loads(json.dumps(config_map(3, records)))

    assert read_shard(written) == records


def test_a_shard_says_what_it_is():
    written = config_map(3, {"k": ended().record()})

    assert written["metadata"] == {
        "name": "kueue-fallback-run-times-3",
        "labels": {"kueue-fallback.dev/records": "run-times"},
    }
    assert written["data"]["version"] == "1"
    assert json.loads(written["data"]["classes"]) == {
        "class": "k",
        "coarse": "~c",
        "program": "trainer",
        "runs": {"t4": "6AMAAAEAPAAAAA=="},
        "outcomes": [["", "", "6AMAAAEAAAAAAAE="]],
    }


def test_a_record_without_beginnings_is_one_of_an_older_version():
    line = (
        '{"class": "k", "coarse": "~c", "program": "trainer", "runs": {"t4": "6AMAAAEAPAAAAA=="}}'
    )
    written = {"data": {"version": "1", "classes": line}}

    assert (read_shard(written)["k"].starts, read_shard(written)["k"].dispatches) == ({}, {})


def test_damaged_lines_are_passed_over():
    written = config_map(0, {"k": ended().record()})
    good = written["data"]["classes"]
    damaged = [
        "",
        "{",
        "[]",
        '{"class": 5}',
        '{"class": "a", "runs": {"t4": "6AMA"}}',
        '{"class": "a", "runs": {"t4": "?"}}',
        '{"class": "a", "outcomes": [["p", "o"]]}',
        '{"class": "a", "outcomes": [5]}',
    ]

    read = read_shard({"data": {"version": "1", "classes": "\n".join([*damaged, good])}})

    assert read == {"k": ended().record()}


def test_another_version_or_nothing_at_all_is_passed_over():
    written = config_map(0, {"k": ended().record()})

    assert read_shard({"data": {**written["data"], "version": "2"}}) == {}
    assert read_shard({}) == {}


def test_ten_thousand_classes_are_spread_over_objects_far_from_1_mib():
    records = {f"{number:016x}": full_record(number) for number in range(10_000)}

    shards = by_shard(records)

    assert sorted(shards) == list(range(SHARDS))
    sizes = [len(json.dumps(config_map(shard, each))) for shard, each in shards.items()]
    assert max(sizes) < 0.75 * MIB
    assert all(read_shard(config_map(shard, each)) == each for shard, each in shards.items())


def test_a_shard_too_large_leaves_out_what_ended_longest_ago():
    records = {f"team/{number:016x}": full_record(number) for number in range(1000)}

    written = config_map(0, records)

    kept = read_shard(written)
    assert len(written["data"]["classes"]) <= MOST_BYTES
    assert set(kept) == {f"team/{number:016x}" for number in range(1000 - len(kept), 1000)}
    assert len(kept) > 350


def test_every_shard_has_a_name():
    assert name_of(31) == "kueue-fallback-run-times-31"
