"""What is kept of Kueue's own scheduler tests, and of which Kueue they are."""

import json
import re
from pathlib import Path

from hack.kueue_tables.pruned import TABLES, lines, pruned, resolved

ROOT = Path(__file__).resolve().parents[2]
QUEUE = {"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {"namespaceSelector": {}}}
LONG = {"kind": "ResourceFlavor", "metadata": {"name": "long" * 50}}


def table(**case):
    meta = {"kueue": "v1", "package": "pkg/a", "source": "a.go:1", "test": "TestA", "now": "today"}
    record = {"name": "a case", "line": 7, "case": {"featureGates": None, **case}}
    return {"meta": meta, "common": {"baseFlavors": [LONG], "queues": [QUEUE]}, "cases": [record]}


def workload(name, *conditions, **status):
    written = [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions]
    return {"metadata": {"name": name}, "status": {"conditions": written, **status}}


def test_what_is_empty_is_dropped_but_a_selector_of_everything_is_kept():
    kept = pruned(table(queue={**QUEUE, "status": {"pendingWorkloads": 0}}, cohorts=None))

    assert kept["cases"] == [{"name": "a case", "line": 7, "queue": QUEUE}]


def test_of_the_workloads_at_the_end_the_victims_and_the_admissions_are_kept():
    admission = {"clusterQueue": "q"}
    before = workload("old", ("Preempted", "InClusterQueue"))
    after = [before, workload("new", ("Preempted", "InCohortFairSharing"), admission=admission)]

    (case,) = pruned(table(workloads=[before], wantWorkloads=after))["cases"]

    assert case["wantVictims"] == {"/new": "InCohortFairSharing"}
    assert case["wantAssignments"] == {"/new": admission}


def test_a_case_names_what_the_table_has_and_is_read_with_it():
    kept = pruned(table(flavors=[LONG]))

    (case,) = kept["cases"]
    assert case["flavors"] == {"common": "baseFlavors"}
    assert resolved(case, kept["common"])["flavors"] == [LONG]


def test_what_the_cases_are_made_of_is_kept_only_if_one_names_it():
    assert pruned(table())["common"] == {"queues": [QUEUE]}


def test_each_case_has_a_line_of_its_own():
    kept = pruned(table())

    text = lines(kept)

    assert json.loads(text) == kept
    assert '\n{"line":7,"name":"a case"}\n' in text


def test_the_tables_are_of_the_kueue_that_the_tool_takes_them_from():
    module = (ROOT / "hack/kueue_tables/go/go.mod").read_text()
    (version,) = re.findall(r"sigs\.k8s\.io/kueue (v\S+)", module)

    files = [ROOT / "tests/kueue_tables/data" / f"{test}.json" for test in sum(TABLES.values(), ())]

    assert {json.loads(path.read_text())["meta"]["kueue"] for path in files} == {version}
