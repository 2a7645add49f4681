"""Arrivals out of CSV rows."""

from pathlib import Path

import pytest
import yaml

from tests.simulate import files
from webhook.model.fields import FieldError
from webhook.simulate.arrivals import read_arrivals
from webhook.simulate.scenario import Submission
from webhook.simulate.scenario_spec import Csv, ScenarioError

LINES = """\
created,status,seconds,steps
2024-11-15 18:00:30,DONE,32,30
2024-11-15 18:00:00,DONE,20.5,5
2024-11-15 18:01:00,FAILED,1,5
2024-11-15 18:02:00,DONE,40,
""".splitlines()


def read(lines=LINES, **fields):
    spec = {
        "file": "t.csv",
        "columns": {"arrival": "created", "runTime": "seconds"},
        "jobs": [{"job": "work"}],
        **fields,
    }
    return read_arrivals(Csv.model_validate(spec), lines, "arrivals[0].csv")


def test_rows_come_in_order_of_time_from_the_first_on():
    assert read() == [
        Submission(at=0.0, template="work", given_seconds=20.5),
        Submission(at=30.0, template="work", given_seconds=32.0),
        Submission(at=60.0, template="work", given_seconds=1.0),
        Submission(at=120.0, template="work", given_seconds=40.0),
    ]


TIMES = """\
created,began,ended
5,10,40
0,0,3600
""".splitlines()


def times(lines=TIMES, **columns):
    found = read(lines, columns={"arrival": "created", **columns}, arrivalFormat="seconds")
    return [(each.at, each.given_seconds) for each in found]


def test_a_run_may_be_told_by_when_it_ended_and_began():
    assert times(end="ended") == [(0.0, 3600.0), (5.0, 35.0)]
    assert times(end="ended", begin="began") == [(0.0, 3600.0), (5.0, 30.0)]
    assert times() == [(0.0, None), (5.0, None)]


def test_a_run_that_ends_before_it_begins_is_named_with_its_line():
    with pytest.raises(FieldError, match=r"t\.csv line 2: column created is before began"):
        times(end="created", begin="began")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"end": "ended", "runTime": "ended"}, "expected runTime or end, not both"),
        ({"begin": "began"}, "expected end beside begin"),
    ],
)
def test_a_run_is_told_once(columns, message):
    with pytest.raises(ValueError, match=message):
        times(**columns)


def test_only_rows_that_meet_all_conditions_come():
    done = {"column": "status", "equals": "DONE"}
    short = {"column": "seconds", "atLeast": 10, "atMost": 35}

    assert [each.given_seconds for each in read(where=[done, short])] == [20.5, 32.0]

    failed = {"column": "status", "oneOf": ["FAILED"]}
    assert [each.given_seconds for each in read(where=[failed])] == [1.0]


def test_the_first_rule_that_holds_says_which_job_a_row_is():
    light = {"job": "light", "when": [{"column": "steps", "atMost": 10}]}

    assert [each.template for each in read(jobs=[light, {"job": "heavy"}])] == [
        "light",
        "heavy",
        "light",
        "heavy",
    ]
    # A row without a number is in no range, and one that no rule takes does not come.
    assert len(read(jobs=[light])) == 2


def test_the_first_ones_come_when_a_limit_is_set():
    assert [each.at for each in read(limit=2)] == [0.0, 30.0]


def test_time_is_scaled_between_arrivals_alone():
    found = read(timeScale=0.1, start="1s", runTimeUnit="minutes")

    assert found[1] == Submission(at=4.0, template="work", given_seconds=1920.0)


@pytest.mark.parametrize(
    ("form", "first", "second"),
    [
        ("iso", "2024-11-15T18:00:00Z", "2024-11-15T19:00:05+01:00"),
        ("seconds", "100", "105.0"),
        ("milliseconds", "1700000000000", "1700000005000"),
        ("%d.%m.%Y %H:%M:%S", "15.11.2024 18:00:00", "15.11.2024 18:00:05"),
    ],
)
def test_times_are_read_in_many_forms(form, first, second):
    lines = ["created,seconds", f"{first},1", f"{second},1"]

    assert [each.at for each in read(lines, arrivalFormat=form)] == [0.0, 5.0]


def test_other_delimiters_and_no_run_time():
    fields = {"delimiter": ";", "columns": {"arrival": "created"}, "arrivalFormat": "seconds"}
    found = read(["created;x", "1;2"], **fields)

    assert found == [Submission(at=0.0, template="work")]


MISTAKES = yaml.safe_load(Path(__file__).with_name("csv_mistakes.yaml").read_text())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["message"] for each in MISTAKES])
def test_a_file_that_does_not_fit_is_refused_with_its_line(mistake):
    lines = [] if mistake.get("empty") else [*LINES, *mistake.get("more", ())]

    with pytest.raises(FieldError) as refused:
        read(lines, **mistake.get("csv", {}))

    assert str(refused.value) == mistake["message"]


def test_a_condition_that_says_nothing_is_refused():
    csv = {
        "file": "t.csv",
        "columns": {"arrival": "created"},
        "jobs": [{"job": "work"}],
        "where": [{"column": "status"}],
    }

    with pytest.raises(ScenarioError) as refused:
        files.read(files.changed(["arrivals"], [{"csv": csv}]))

    assert str(refused.value) == (
        "arrivals[0].csv.where[0]: expected at least one of equals, oneOf, atLeast, atMost"
    )


def test_rows_become_a_scenarios_jobs():
    csv = {
        "file": "t.csv",
        "columns": {"arrival": "created", "runTime": "seconds"},
        "jobs": [{"job": "work"}],
        "limit": 2,
    }
    source = files.changed(["arrivals"], [{"csv": csv}])
    source["jobs"]["work"]["runTimes"] = {"fast": {"times": 1}, "slow": {"of": "fast", "times": 10}}

    found = files.read(source, {"t.csv": "\n".join(LINES)}).submissions

    assert [(each.name, each.at, dict(each.run_seconds)) for each in found] == [
        ("work-1", 0.0, {"fast": 20.5, "slow": 205.0}),
        ("work-2", 30.0, {"fast": 32.0, "slow": 320.0}),
    ]
