"""`kubectl fallback simulate` on files: no cluster is asked."""

import functools
import importlib.util
import json
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call
from tests.simulate import files
from tests.simulate.files import with_workers, worker

simulate = functools.partial(call, "simulate")
UNIFORM = "examples/scenarios/uniform.yaml"


def written(folder, source=None):
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(source or files.document(), sort_keys=False))
    return str(path)


def test_strategies_stand_side_by_side(tmp_path):
    found = simulate("-f", written(tmp_path), "--strategy", "static", "--strategy", "Threshold")

    assert found.exit_code == 0
    assert [line.split()[:3] for line in found.output.splitlines()[2:]] == [
        ["STRATEGY", "MAKESPAN", "SAVED"],
        ["static", "43s", "-"],
        ["Threshold", "1m1s", "-41.9"],
    ]


def test_jobs_are_compared_with_no_policy_also_where_that_is_not_shown(tmp_path):
    found = json.loads(
        simulate("-f", written(tmp_path), "--strategy", "spill", "-o", "json").output
    )

    (spill,) = found["strategies"]
    assert spill["strategy"] == "spill"
    assert [job["staticFinish"] for job in spill["jobs"]] == [10.0, 21.0, 32.0, 43.0]


def test_the_same_seed_gives_the_same_text(tmp_path):
    source = files.changed(["jobs", "work", "runTimes", "fast"], {"median": "9s", "sigma": 0.7})
    path = written(tmp_path, source)

    first, again, other = (
        simulate("-f", path, "--seed", seed, "-o", "json").output for seed in ("1", "1", "2")
    )

    assert first == again != other


def test_a_scenario_may_come_through_standard_input():
    found = simulate("-f", "-", given=yaml.safe_dump(files.document()))

    assert (found.exit_code, found.output.splitlines()[0]) == (0, "small: 4 Jobs in 0s (4 work)")


def test_parameters_are_set(tmp_path):
    source = files.changed(["arrivals", 0, "burst", "count"], "${many}")
    path = written(tmp_path, {**source, "parameters": {"many": 4}})

    found = simulate("-f", path, "--set", "many=2")

    assert found.output.startswith("small: 2 Jobs")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_timelines_are_drawn(tmp_path, suffix):
    picture = tmp_path / f"timeline{suffix}"

    found = simulate("-f", UNIFORM, "--plot", str(picture))

    assert found.exit_code == 0
    assert found.stderr == f"Timelines are drawn in {picture}.\n"
    assert picture.read_bytes()[:4] == {".png": b"\x89PNG", ".svg": b"<?xm"}[suffix]


def test_a_picture_without_matplotlib_is_refused_before_the_replay(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    found = simulate("-f", written(tmp_path), "--plot", "x.svg")

    assert (found.exit_code, found.output) == (
        2,
        "--plot: needs matplotlib: pip install 'kueue-fallback[plots]'\n",
    )


def test_a_picture_of_services_alone_is_refused(tmp_path):
    source = yaml.safe_load(Path("examples/scenarios/services.yaml").read_text())
    del source["jobs"], source["arrivals"], source["parameters"]["rate"]

    found = simulate("-f", written(tmp_path, source), "--plot", str(tmp_path / "x.svg"))

    assert (found.exit_code, found.output) == (2, "--plot: draws Jobs, and the scenario has none\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "x.pdf"], "--plot: expected a file that ends in .png or .svg, got x.pdf"),
        (["--plot", "no/where/x.svg"], "--plot: no such folder: no/where"),
        (["--set", "a"], "--set a: expected NAME=VALUE"),
        (["--set", "a=1"], "{path}: --set a: no such parameter; the scenario has none"),
        (["--strategy", "x"], "--strategy: expected one of static, Threshold, spill, got x"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(tmp_path, arguments, message):
    path = written(tmp_path)

    found = simulate("-f", path, *arguments)

    assert (found.exit_code, found.output) == (2, message.format(path=path) + "\n")


def test_mistakes_are_named_with_file_line_and_path(tmp_path):
    source = files.changed(["arrivals", 0, "burst", "count"], 0)
    path = written(tmp_path, {**source, "typo": 1})
    lines = (tmp_path / "scenario.yaml").read_text().splitlines()
    count, typo = (
        next(n for n, line in enumerate(lines, 1) if line.strip().startswith(key))
        for key in ("count:", "typo:")
    )

    found = simulate("-f", path)

    wanted = "expected at least 1"
    assert found.exit_code == 2
    assert found.output.splitlines() == [
        f"{path}:{count}: arrivals[0].burst.count: {wanted}, got 0",
        f"{path}:{typo}: typo: no such field",
    ]


def test_files_that_are_not_there_are_named(tmp_path):
    path = written(tmp_path, files.changed(["cluster"], {"files": ["queues.yaml"]}))

    missing = simulate("-f", path)
    nothing = simulate("-f", str(tmp_path / "none.yaml"))

    assert missing.exit_code == nothing.exit_code == 2
    assert missing.output.endswith(
        f": cluster.files[0]: {tmp_path}/queues.yaml: No such file or directory\n"
    )
    assert nothing.output == f"{tmp_path}/none.yaml: No such file or directory\n"


def test_a_run_time_that_the_scenario_does_not_tell_is_asked_for(tmp_path):
    path = written(tmp_path, files.changed(["jobs", "work", "runTimes", "fast"], None))

    found = simulate("-f", path)

    assert (found.exit_code, found.output) == (
        2,
        f"{path}: jobs.work.runTimes: expected a run time on flavor fast, found only slow\n",
    )


def test_clusters_are_named_in_every_output(tmp_path):
    path = written(tmp_path, with_workers(worker("a", cpu=2), worker("b")))
    asked = ("-f", path, "--strategy", "static", "--strategy", "Threshold")

    lines = simulate(*asked).output.splitlines()
    static, _ = json.loads(simulate(*asked, "-o", "json").output)["strategies"]

    assert [line.split() for line in lines[-3:]] == [
        ["JOBS", "RUN", "IN", "(manager)", "a", "b"],
        ["static", "0", "3", "1"],
        ["Threshold", "0", "3", "1"],
    ]
    assert [job["cluster"] for job in static["jobs"]] == ["a", "a", "b", "a"]
    assert {name: each["makespan"] for name, each in static["byCluster"].items()} == {
        "a": 21.0,
        "b": 10.0,
    }
