"""`kubectl fallback report` on files: no cluster is asked."""

import json
from dataclasses import replace

import pytest
import yaml

from bench.experiment.arms import SCENARIOS
from tests.commands.calling import call
from tests.hindsight import journals
from webhook.hindsight.journal import Slot, config_map, slot_of

HOUR = slot_of(journals.BEGAN)


def saved_state(tmp_path, strategy, *, mode, change=lambda entries: entries):
    """Queues, the policies of Burst in a mode, and a journal of what a strategy came to."""
    given = journals.scenario("burst")
    ran = journals.happened(given, strategy)
    entries = change(journals.entries(given, ran, mode="Enforce" if mode == "Enforce" else ""))
    queues = list(yaml.safe_load_all((SCENARIOS.parent / "queues.yaml").read_text()))
    policies = [
        {**each, "kind": "FallbackPolicy", "spec": {**each["spec"], "mode": mode}}
        for each in given.policy_objects
        if each["spec"].get("strategy", {}).get("type", "FinishTime") == "FinishTime"
    ]
    slot = Slot(number=HOUR, entries={each.key: each for each in entries}, left_out=2)
    namespace = {"kind": "Namespace", "metadata": {"name": "research"}}
    journal = config_map(slot)
    path = tmp_path / "snapshot.json"
    items = [*queues, *policies, namespace, journal]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return str(path)


def report(*arguments):
    return call("report", *arguments)


def test_a_journal_that_does_not_reach_back_so_far_says_so(tmp_path):
    state = saved_state(tmp_path, "FinishTime", mode="Enforce")

    day, week = (report("--snapshot", state, "--since", since).output for since in ("24h", "7d"))
    found = json.loads(report("--snapshot", state, "--since", "7d", "-o", "json").output)

    covered = found["journalHours"]["covered"]
    told = f"The journal covers {covered} of 168 hours; to keep more, set journal_days: 7."
    assert found["journalHours"]["of"] == 168
    assert week.splitlines()[-1] == told
    assert "The journal covers" not in day


def test_what_was_gained_stands_in_a_line_for_each_policy(tmp_path):
    found = report("--snapshot", saved_state(tmp_path, "FinishTime", mode="Enforce"))

    lines = found.output.splitlines()
    assert found.exit_code == 0
    assert lines[:2] == [
        "Jobs were done 20.3 % sooner (in 1m39s, not 2m4s), and 0.03 GPU hours were given back.",
        "6 of the 30 that have ended were moved.",
    ]
    assert lines[2].startswith("Since 2027-01-14T")
    assert lines[2].endswith("policies have seen 30 Jobs.")
    assert lines[4].split() == [
        *("POLICY", "NAMESPACE", "SEEN", "MOVED", "STAYED", "SAVED"),
        *("BY", "OTHERS", "A", "JOB", "SLOWER"),
    ]
    rows = [line.split()[:5] for line in lines[5:7]]
    assert rows == [["heavy", "research", "15", "0", "15"], ["light", "research", "15", "6", "9"]]
    # No heavy Job was moved, so all that they gained is by others.
    saved, by_others = lines[5].split()[5:7]
    assert (saved, by_others) != ("-", "-")
    assert saved == "-"
    assert "How sure: a replay of what happened to 30 Jobs is off by" in found.output
    assert "2 Jobs are left out" in found.output
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--policy", "ligth"), "There is no policy ligth (there is light)."),
        (("-n", "reserach"), "There is no namespace reserach (there is research)."),
        (("-n", "any"), "There is no namespace any."),
    ],
)
def test_what_is_misspelt_is_answered_with_the_nearest(tmp_path, words, why):
    found = report("--snapshot", saved_state(tmp_path, "FinishTime", mode="Enforce"), *words)

    assert (found.exit_code, found.stdout, found.stderr) == (1, "", f"{why}\n")


def test_labels_choose_the_jobs_that_are_counted(tmp_path):
    def of_two_teams(entries):
        teams = ("ml", "vision", "ml")
        return [
            replace(entry, labels={**entry.labels, "team": teams[number % 3]})
            for number, entry in enumerate(entries)
        ]

    state = saved_state(tmp_path, "FinishTime", mode="Enforce", change=of_two_teams)

    seen = [
        sum(row["seen"] for row in json.loads(found.output)["rows"])
        for found in (
            report("--snapshot", state, "-l", query, "-o", "json")
            for query in ("team=ml", "team!=ml")
        )
    ]
    wrong = report("--snapshot", state, "-l", "a b")

    assert seen == [20, 10]
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        "--selector: expected a label query such as team=ml,env!=dev, got 'a b'\n",
    )


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_seconds(tmp_path, output, read):
    snapshot = saved_state(tmp_path, "FinishTime", mode="Enforce")

    found = read(report("--snapshot", snapshot, "--policy", "light", "-o", output).output)

    (row,) = found["rows"]
    assert (row["policy"], row["mode"], row["moved"], row["ended"]) == ("light", "Enforce", 6, 15)
    assert row["savedSeconds"] == pytest.approx(15 * row["savedSecondsMean"], abs=1)
    assert row["savedSeconds"] > 0
    spans = found["makespan"]
    assert spans["withoutDecisions"] - spans["replayed"] > 40
    assert abs(found["sureness"]["turnaroundOffPercent"]) < 3


def test_a_time_in_which_no_job_came_is_told_by_the_exit_code(tmp_path):
    snapshot = saved_state(tmp_path, "static", mode="Observe")

    found = report("--snapshot", snapshot, "-n", "research", "-l", "team=none")

    said = "No Job has come in that time. (2 are left out: their queues are not known.)\n"
    assert (found.exit_code, found.output) == (1, said)


SOON = """\
Usage: main report [OPTIONS]
Try 'main report --help' for help.

Error: Invalid value for '--since': expected a duration such as 10s, 1h30m or 2d, got 'soon'
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "soon"], SOON),
        (["--snapshot", "/no/such"], "/no/such: No such file or directory\n"),
    ],
)
def test_wrong_input_ends_with_2(arguments, said):
    found = report(*arguments)

    assert (found.exit_code, found.stderr) == (2, said)


def saved_clusters(tmp_path):
    """The manager's state with a journal, and the one of its worker."""
    document = yaml.safe_load((SCENARIOS / "clusters.yaml").read_text())
    objects = [*document["cluster"]["objects"], *document["policies"]["objects"][:2]]
    filled = json.dumps(objects).replace('"${managerGpus}"', "40").replace("${startDelay}", "0s")
    objects = json.loads(filled.replace('"${slowdown}"', "3.5"))
    given = journals.scenario("clusters", managerGpus=40)
    ran = journals.happened(given, "FinishTime")
    entries = journals.entries(given, ran, mode="Enforce")
    slot = Slot(number=HOUR, entries={each.key: each for each in entries})
    path, worker = tmp_path / "snapshot.json", tmp_path / "worker.json"
    path.write_text(json.dumps({"kind": "List", "items": [*objects, config_map(slot)]}))
    worker.write_text(json.dumps({"kind": "List", "items": document["clusters"][0]["objects"]}))
    return str(path), str(worker)


def test_a_workers_queues_are_taken_from_its_saved_state(tmp_path):
    path, worker = saved_clusters(tmp_path)

    without = json.loads(report("--snapshot", path, "-o", "json").output)
    found = json.loads(
        report("--snapshot", path, "--cluster", f"worker={worker}", "-o", "json").output
    )

    assert (without["unknownClusters"], without["sureness"]) == (["worker"], None)
    assert (found["unknownClusters"], found["sureness"]["jobs"]) == ([], 30)
    assert [each["cluster"] for each in found["byCluster"]] == [None, "worker"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("worker", "--cluster: expected NAME=FILE, got worker"),
        (
            "other=x.json",
            "--cluster: no ClusterQueue leads to other through MultiKueue; there is worker",
        ),
        ("worker=nowhere.json", "nowhere.json: No such file or directory"),
    ],
)
def test_a_cluster_that_cannot_be_read_is_a_wrong_input(tmp_path, given, words):
    path, _ = saved_clusters(tmp_path)

    found = report("--snapshot", path, "--cluster", given)

    assert (found.exit_code, found.stderr.strip()) == (2, words)
