"""The record that is published: it comes back as it was, and no record is too large for etcd."""

import json
import random
import string
import zlib
from base64 import b64encode

import pytest

from tests.console.worlds import PUBLISHED, UNIX, gains, hour, past
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import (
    MOST_HOURS,
    SavingsRecord,
    config_map,
    packed,
    read_savings,
)

MIB = 1 << 20
OPTION = RecordedOption(name="cpu", queue="cpu-lq", runs=70.0, finishes_in=80.5, rejected="tooBig")
RANDOM = random.Random(7)


def noise(length):
    return "".join(RANDOM.choices(string.ascii_lowercase + string.digits, k=length))


@pytest.mark.parametrize(
    "record",
    [
        SavingsRecord(as_of=UNIX),
        PUBLISHED,
        SavingsRecord(as_of=UNIX, decisions=(past(options=(OPTION,), mode="Advise"),)),
        SavingsRecord(as_of=UNIX, hours=(hour(), hour(3600))),
    ],
    ids=["empty", "replayed", "advised", "by hour"],
)
def test_what_is_written_is_read(record):
    assert read_savings(config_map(packed(record))) == record


def test_what_is_published_of_a_decision_is_one_object():
    alone = past("job-8", option="", queue="gpu-lq", reason="stays")
    weighed = past(options=(OPTION,), mode="Advise", kind="RayJob", is_replayed=False)

    text = zlib.decompress(packed(SavingsRecord(as_of=UNIX, decisions=(weighed, alone)))).decode()

    common = '"at":1789999940.0,"namespace":"team","job":"seen-9","policy":"light-gpu"'
    assert text == (
        '{"as_of":1790000000.0,"decisions":[{"id":"job-9",'
        + common
        + ',"mode":"Advise","option":"cpu","queue":"cpu-lq",'
        '"reason":"a replay of the journal would send it to cpu-lq (cpu)",'
        '"options":[{"name":"cpu","queue":"cpu-lq","runs":70.0,"finishesIn":80.5,'
        '"rejected":"tooBig"}],"kind":"RayJob"},{"id":"job-8",'
        + common
        + ',"mode":"Observe","option":"","queue":"gpu-lq","reason":"stays","is_replayed":true}]}'
    )


def test_of_too_many_decisions_the_newest_fit():
    decisions = tuple(past(f"job-{number}", reason=noise(8_000)) for number in range(500))

    record = SavingsRecord(as_of=UNIX, gained=PUBLISHED.gained, decisions=decisions)
    source = config_map(packed(record))

    found = read_savings(source)
    assert len(json.dumps(source)) < MIB
    assert 50 <= len(found.decisions) < 500
    assert found.decisions == decisions[: len(found.decisions)]
    assert found.gained == PUBLISHED.gained


def test_a_namespace_for_each_entry_that_is_replayed_fits():
    rows = tuple(
        gains(noise(63), namespace=noise(63), gained_seconds=RANDOM.random() * 1e5)
        for _ in range(5_000)
    )

    record = SavingsRecord(as_of=UNIX, gained=rows, decisions=PUBLISHED.decisions)
    source = config_map(packed(record))

    assert len(json.dumps(source)) < MIB
    assert read_savings(source).gained == rows


def test_of_too_many_hours_the_newest_fit():
    hours = tuple(hour(60 * number, policy=noise(200)) for number in range(MOST_HOURS))
    rows = tuple(gains(noise(63), namespace=noise(63)) for _ in range(5_000))

    source = config_map(packed(SavingsRecord(as_of=UNIX, gained=rows, hours=hours)))

    found = read_savings(source)
    assert len(json.dumps(source)) < MIB
    assert 0 < len(found.hours) < MOST_HOURS
    assert found.hours == hours[: len(found.hours)]
    assert found.gained == rows


def written(**changed):
    """Write a record whose row says something else."""
    row = {"policy": "p", "namespace": "n", "mode": "Enforce", "since": 1.0, "jobs": 1}
    row |= {"moved": 1, "gained_seconds": 60.0, "margin_seconds": 1.0, "slower": 0}
    text = json.dumps({"as_of": UNIX, "gained": [row | changed]})
    packed = b64encode(zlib.compress(text.encode())).decode()
    return {"data": {"version": "2"}, "binaryData": {"savings": packed}}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"data": {"version": "1"}}, "data.version: expected 2"),
        (written(since=-1), "savings.gained[0].since: expected at least 0, got -1"),
        (written(gained_seconds="9"), "savings.gained[0].gained_seconds: expected a number"),
        (
            written(margin_seconds=float("nan")),
            "savings.gained[0].margin_seconds: Input should be a finite number",
        ),
        (written(jobs=1.5), "savings.gained[0].jobs: expected a whole number"),
    ],
)
def test_what_cannot_be_meant_is_refused(source, message):
    with pytest.raises(ValueError, match=r".*") as found:
        read_savings(source)

    assert str(found.value).startswith(message)
