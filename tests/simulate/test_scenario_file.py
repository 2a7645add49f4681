"""A scenario's file: what is read, and what is refused with which words."""

import json
from pathlib import Path

import pytest
import yaml

from tests.simulate import files
from webhook.model.fields import FieldError
from webhook.simulate.scenario import Submission
from webhook.simulate.scenario_spec import ScenarioError

RUN = {"fast": 10.0, "slow": 30.0}


def test_jobs_are_named_by_their_kind_in_order_of_arrival():
    source = files.changed(["arrivals"], [{"at": "5s", "job": "work"}, {"at": "0s", "job": "work"}])

    assert files.read(source).submissions == (
        Submission(at=0.0, name="work-1", template="work", run_seconds=RUN),
        Submission(at=5.0, name="work-2", template="work", run_seconds=RUN),
    )


def test_the_overhead_is_part_of_every_run():
    (first, *_) = files.read(files.changed(["overhead"], "1500ms")).submissions

    assert first.run_seconds == {"fast": 11.5, "slow": 31.5}


def test_queues_and_namespaces_become_a_snapshot_without_policies():
    scenario = files.read()

    assert set(scenario.snapshot.setup.cluster_queues) == {"fast", "slow"}
    assert scenario.snapshot.cluster.namespaces == {"team": {"kubernetes.io/metadata.name": "team"}}
    assert scenario.snapshot.fallback.policies == ()
    assert [policy.name for policy in scenario.policies] == ["spill"]


def test_what_one_run_of_a_job_has_is_left_out_of_its_template():
    once = files.job(name="work-abc", uid="1", annotations={"mine": "kept"})
    scenario = files.read(files.changed(["jobs", "work", "job"], {**once, "status": {"active": 1}}))

    assert scenario.manifest(scenario.submissions[1]) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "fast"},
            "annotations": {"mine": "kept"},
            "name": "work-2",
        },
        "spec": once["spec"],
    }


def test_files_hold_queues_policies_and_jobs():
    workload = {"kind": "Workload", "metadata": {"name": "w", "namespace": "team"}}
    objects = files.document()["cluster"]["objects"]
    source = files.changed(["cluster"], {"files": ["state.json"]})
    source["policies"] = {"files": ["policy.yaml"]}
    source["jobs"]["work"] = {"file": "job.yaml", "runTimes": {"fast": "10s"}}

    scenario = files.read(
        source,
        {
            "state.json": json.dumps({"kind": "List", "items": [*objects, workload]}),
            "policy.yaml": yaml.safe_dump(files.policy("other")),
            "job.yaml": yaml.safe_dump_all([files.local_queue("else"), files.job()]),
        },
    )

    assert set(scenario.snapshot.setup.local_queues) == {("team", "fast"), ("team", "slow")}
    assert [policy.name for policy in scenario.policies] == ["other"]
    assert scenario.snapshot.workloads.arrivals == ()


def test_a_clusters_own_policies_count_where_the_scenario_names_none():
    source = files.changed(["policies"], None)
    source["cluster"]["objects"].append(files.policy("live"))

    assert [policy.name for policy in files.read(source).policies] == ["live"]


def test_a_run_time_is_found_by_flavors_then_option_then_one_of_the_flavors():
    given = {"a": 1.0, "a,b": 2.0, "cpu": 3.0}
    submission = Submission(at=0.0, name="x", template="t", run_seconds=given)

    assert submission.seconds_on("a,b") == 2.0
    assert submission.seconds_on("z", "cpu") == 3.0
    assert submission.seconds_on("a,z") == 1.0
    with pytest.raises(FieldError) as refused:
        submission.seconds_on("z")
    assert str(refused.value) == (
        "jobs.t.runTimes: expected a run time on flavor z, found only a, a,b, cpu"
    )


def test_faster_divides_arrivals_and_run_times():
    source = files.changed(["arrivals"], [{"at": "8s", "job": "work"}])

    (found,) = files.read(source).faster(4).submissions

    assert (found.at, found.run_seconds) == (2.0, {"fast": 2.5, "slow": 7.5})


MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["message"] for each in MISTAKES])
def test_a_mistake_is_named_with_its_place(mistake):
    with pytest.raises(ScenarioError) as refused:
        files.read(files.changed(mistake["path"], mistake["value"]))

    assert str(refused.value) == mistake["message"]


def test_all_mistakes_of_the_fields_are_named_at_once():
    source = files.changed(["arrivals", 0, "burst", "count"], None)
    source["nmae"] = "x"

    with pytest.raises(ScenarioError) as refused:
        files.read(source)

    assert str(refused.value) == (
        "arrivals[0].burst.count: expected, but not there\nnmae: no such field"
    )


def test_a_document_that_is_no_object_is_refused():
    with pytest.raises(ScenarioError, match=r"^expected an object, got a list$"):
        files.read([1])


def test_a_file_with_two_jobs_is_no_template():
    source = files.changed(["jobs", "work"], {"file": "j.yaml", "runTimes": {"fast": "1s"}})

    with pytest.raises(ScenarioError) as refused:
        files.read(source, {"j.yaml": yaml.safe_dump_all([files.job(), files.job()])})

    assert str(refused.value) == "jobs.work.file: expected one Job in j.yaml, found 2"
