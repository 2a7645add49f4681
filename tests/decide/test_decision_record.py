from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decide.decisions import SENTENCE, annotation, decision
from webhook.decide import decision_record
from webhook.decide.decision_record import RecordedOption
from webhook.model.decision import Assessment, Decision, Rejection, Stay
from webhook.model.fields import FieldError
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.job import DECISION, REASON
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import LeftAlone, Stayed
from webhook.model.words import harmless

RECORDED = Path(__file__).parent / "recorded.jsonl"
"""Annotations as they were written before the sentence stood beside them alone."""


def read(text, said=""):
    return decision_record.from_annotations({DECISION: text, REASON: said})


def read_back(decided, original):
    text = annotation(decided, original)
    return read(text, decision_record.reason_annotation(decided.reason))


def test_the_annotation_is_compact_and_leaves_out_what_is_unknown():
    found = annotation(decision(), {"/metadata/labels/a": None})

    assert found == (
        '{"version":1,"id":"0a1b-00c0ffee","time":"2026-11-21T06:00:00Z","policy":"light-gpu",'
        '"mode":"Enforce","option":"cpu",'
        '"from":{"queue":"gpu-lq"},"stateAge":0.25,"options":['
        '{"name":"gpu","queue":"gpu-lq","clusterQueue":"gpu-cq","fits":false,"pending":12},'
        '{"name":"cpu","queue":"cpu-lq","clusterQueue":"cpu-cq","fits":true,"pending":0,'
        '"startsIn":0},'
        '{"name":"spot","queue":"spot-lq",'
        '"rejected":"queueNotFound: LocalQueue spot-lq not found in namespace team"}],'
        '"original":{"/metadata/labels/a":null}}'
    )


def test_an_option_says_whom_the_job_would_preempt_and_how_many_may_preempt_it():
    start = Start(seconds=1.0, low=1.0, high=1.0, preempts=True, preempted_by=3)
    gpu = replace(decision().options[0], preempts=2, forecast=Forecast(start=start))

    found = annotation(replace(decision(), options=(gpu,)))

    assert '"fits":false,"preempts":2,"pending":12,"startsIn":1,"mayBePreemptedBy":3}]' in found


def test_why_a_better_option_was_passed_over_is_written_and_read_back():
    passed = Rejection(reason=Stayed.SMALL_GAIN, detail="9s sooner is less than the minimum")
    there = replace(decision().options[1], passed_over=passed)

    found = read_back(replace(decision(), options=(there,)), {}).options[0]

    said = "smallGain: 9s sooner is less than the minimum"
    assert (found.passed_over_for, found.passed_over) == ("smallGain", said)


def test_what_was_written_is_read_back():
    found = read_back(decision(), {"/a": "b"})

    assert found.unix == 1795240800.0
    assert found == decision_record.Recorded(
        version=1,
        id="0a1b-00c0ffee",
        time="2026-11-21T06:00:00Z",
        policy="light-gpu",
        mode=Mode.ENFORCE,
        option="cpu",
        reason=SENTENCE,
        from_queue="gpu-lq",
        state_age_seconds=0.25,
        original={"/a": "b"},
        options=(
            RecordedOption(
                name="gpu", queue="gpu-lq", cluster_queue="gpu-cq", fits=False, pending=12
            ),
            RecordedOption(
                name="cpu",
                queue="cpu-lq",
                cluster_queue="cpu-cq",
                fits=True,
                pending=0,
                starts_in=0,
            ),
            RecordedOption(
                name="spot",
                queue="spot-lq",
                rejected="queueNotFound: LocalQueue spot-lq not found in namespace team",
            ),
        ),
    )
    assert found.options[2].rejected_for == "queueNotFound"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
NAMES = st.text("abc-", min_size=1, max_size=8)
DECIDED = st.builds(
    Decision,
    id=NAMES,
    time=st.integers(1, 4_000_000_000).map(
        lambda unix: datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ),
    policy=NAMES,
    mode=st.sampled_from(Mode),
    option=st.none() | NAMES,
    left_alone=st.none() | st.sampled_from(LeftAlone),
    reason=TEXTS,
    from_queue=st.just("") | NAMES,
    state_age_seconds=st.floats(0, 1e6),
    moves=st.integers(0, 3),
    changed=st.lists(NAMES).map(tuple),
    options=st.lists(
        st.builds(Assessment, option=NAMES, queue=NAMES, cluster_queue=NAMES), max_size=3
    ).map(tuple),
)


@given(decided=DECIDED, original=st.dictionaries(NAMES, st.none() | TEXTS | st.integers(-9, 9)))
def test_whatever_is_written_is_read_back_and_any_part_of_it_harms_nobody(decided, original):
    text = annotation(decided, original)

    found = read_back(decided, original)

    for name in ("id", "time", "policy", "mode", "option", "reason", "from_queue", "moves"):
        assert getattr(found, name) == on_one_line(getattr(decided, name))
    assert (found.left_alone, found.original) == (decided.left_alone, original)
    assert [(each.name, each.queue, each.cluster_queue) for each in found.options] == [
        tuple(map(on_one_line, (each.option, each.queue, each.cluster_queue)))
        for each in decided.options
    ]
    with pytest.raises(FieldError):
        read(text[: len(text) // 2])


def on_one_line(value):
    """Replace control characters, which would make lines and rows of what people read."""
    return harmless(value) if isinstance(value, str) else value


def test_what_stands_elsewhere_on_the_job_is_written_once():
    stays = (
        Stay(time="2026-11-21T06:00:00Z", option="gpu", reason="stays"),
        Stay(time="2026-11-21T06:05:00Z", option="cpu", reason=SENTENCE),
    )
    moved = replace(decision(), moves=1, history=stays)

    text = annotation(moved)

    assert SENTENCE not in text
    found = read_back(moved, {})
    assert (found.reason, found.history) == (SENTENCE, stays)


def test_ranges_of_runs_and_finishes_are_in_the_log_alone():
    run = RunTime(seconds=20.0, low=10.0, high=40.0, basis=Basis.POLICY)
    forecast = Forecast(
        start=Start(seconds=30.0, low=10.0, high=90.0),
        run=run,
        finish=50.0,
        finish_low=25.0,
        finish_high=120.0,
    )
    gpu = replace(decision().options[0], forecast=forecast)
    decided = replace(decision(), options=(gpu,))

    written = json.loads(annotation(decided))
    logged = decision_record.decision_json(decision_record.record_of(decided))

    assert set(logged) - set(written) == {"reason"}
    left_out = set(logged["options"][0]) - set(written["options"][0])
    assert left_out == {"runsBetween", "finishesBetween"}


@pytest.mark.parametrize("said", [None, 7, "", "somebody else's", "x" * 70_000])
def test_a_reason_that_is_none_of_ours_is_none(said):
    text = annotation(decision())

    assert decision_record.from_annotations({DECISION: text, REASON: said}).reason == ""


def test_of_a_reason_that_somebody_made_longer_no_more_is_read_than_is_written():
    text = annotation(decision())

    found = read(text, f"kueue-fallback: {'x' * 70_000}\ud800")

    assert found.reason == "x" * 240


@pytest.mark.parametrize("text", RECORDED.read_text().splitlines())
def test_what_older_versions_wrote_is_read_as_it_was(text):
    written = json.loads(text)

    found = read(text, "kueue-fallback: not what was written")

    assert (found.reason, found.from_queue) == (written["reason"], written["from"]["queue"])
    assert found.original == written["original"]
    assert [each.name for each in found.options] == [each["name"] for each in written["options"]]


def test_moves_are_written_and_read_back_with_the_stays_before_them():
    stays = tuple(
        Stay(time=f"2026-11-21T06:{minute:02}:00Z", option="cpu", reason=f"moved {minute}")
        for minute in range(12)
    )
    moved = replace(decision(), moves=11, history=stays)

    text = annotation(moved)
    found = read(text)

    assert json.loads(text)["history"][1] == {
        "time": "2026-11-21T06:01:00Z",
        "option": "cpu",
        "reason": "moved 1",
    }
    assert (found.moves, found.history) == (11, stays[-10:])
    assert found.moved_unix == 1795240800.0 + 11 * 60


def test_of_a_newer_version_only_the_version_is_taken_for_known():
    found = read('{"version":2,"id":7,"mode":"Suggest","original":{"/a":1}}')

    assert (found.is_newer, found.id, found.mode, found.original) == (True, "", Mode.OBSERVE, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": expected JSON"),
        ("[" * 60_000, ": expected JSON"),
        ("[]", ": expected an object, got a list"),
        ("{}", ".version: expected, but not there"),
        ('{"version":0}', ".version: expected at least 1, got 0"),
        ('{"version":true}', ".version: expected a whole number, got a boolean"),
        ('{"version":1,"id":7}', ".id: expected a string, got 7"),
        ('{"version":1,"moves":"2"}', ".moves: expected a whole number, got '2'"),
        ('{"version":1,"original":[]}', ".original: expected an object, got a list"),
        ('{"version":1,"options":[7]}', ".options[0]: expected an object, got 7"),
    ],
)
def test_what_is_no_decision_is_an_error_that_names_the_place(text, message):
    with pytest.raises(FieldError) as error:
        read(text)

    assert str(error.value) == f"metadata.annotations[kueue-fallback.dev/decision]{message}"


def test_the_reason_on_the_job_has_at_most_256_characters():
    assert decision_record.reason_annotation(SENTENCE) == f"kueue-fallback: {SENTENCE}"
    assert len(decision_record.reason_annotation("x" * 999)) == 256


def test_no_text_of_a_decision_makes_another_line_or_colours_one():
    forged = "gpu\x1b[2J\r\nFAKE\u202e"
    names = ("name", "queue", "clusterQueue", "cluster", "rejected", "passedOver")
    texts = dict.fromkeys(names, forged)
    stay = dict.fromkeys(("time", "option", "reason"), forged)
    said = dict.fromkeys(("id", "time", "policy", "option", "reason", "leftAlone"), forged)
    lists = {"options": [texts], "history": [stay], "changed": [forged]}
    text = json.dumps({"version": 1, "from": {"queue": forged}, **said, **lists})

    found = decision_record.from_annotations({DECISION: text})

    shown = list(texts_in(asdict(found)))
    assert len(shown) > len([*texts, *stay, *said])
    assert all(each.isprintable() for each in shown), shown


def texts_in(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)
    elif isinstance(value, str):
        yield value
