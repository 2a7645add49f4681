"""Scenarios whose Jobs are of other kinds than batch."""

import json
from pathlib import Path

import pytest
import yaml

from tests import kinds
from tests.simulate import files
from webhook.simulate.replay import replay
from webhook.simulate.scenario_file import read_scenario
from webhook.simulate.scenario_spec import ScenarioError

LABELS = {"kueue.x-k8s.io/queue-name": "fast"}
WORK = {"runTimes": {"fast": "10s", "slow": "30s"}}


def template(kind):
    light = kinds.pods(gpu=False, cpu="400m")
    light["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "400m"}}
    source = kinds.made(kind, light=light, labels=LABELS)
    small = json.loads(json.dumps(source).replace('{"cpu": "1", "memory": "1Gi"}', '{"cpu": "0"}'))
    if kind == "RayJob":
        small["spec"]["submissionMode"] = "HTTPMode"
    return {"job": small, **WORK}


def document(**jobs):
    found = files.document()
    policy = files.policy()
    policy["spec"]["match"]["kinds"] = sorted(kinds.SPECS)
    found["policies"] = {"objects": [policy]}
    found["jobs"] = jobs
    found["arrivals"] = [{"burst": {"count": 4, "jobs": list(jobs)}}]
    return found


def replayed(source, strategy="Threshold", **files_read):
    given = read_scenario(source, read_text=lambda file: files_read[file.partition(".")[0]])
    (arm,) = given.arms([strategy])
    return replay(given, arm).jobs


@pytest.mark.parametrize("kind", kinds.SPECS)
def test_jobs_of_any_kind_are_decided_and_run(kind):
    found = replayed(document(work=template(kind)))

    taken = [(each.option, each.queue, each.start, each.finish) for each in found]
    assert {queue for _, queue, _, _ in taken} == {"fast", "slow"}
    assert all(each.policy == "spill" and each.finish is not None for each in found)


def test_kinds_wait_in_one_queue_and_a_policy_takes_those_that_it_names():
    source = document(plain=template("Job"), set=template("JobSet"))
    source["policies"]["objects"][0]["spec"]["match"]["kinds"] = ["JobSet"]

    found = replayed(source)

    assert {each.template: bool(each.policy) for each in found} == {"plain": False, "set": True}


MISTAKES = yaml.safe_load(Path(__file__).with_name("kind_mistakes.yaml").read_text())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["message"] for each in MISTAKES])
def test_what_is_wrong_with_a_job_of_another_kind_is_named_with_its_place(mistake):
    work = template("RayJob")
    work["job"] |= mistake["change"]

    with pytest.raises(ScenarioError, match=mistake["message"]):
        replayed(document(work=work))


def test_what_is_several_workloads_is_no_job_of_a_scenario():
    work = {**WORK, "job": {**kinds.made("Job", labels=LABELS), "apiVersion": "apps/v1"}}
    work["job"] |= {"kind": "Deployment", "spec": {"replicas": 3, "template": kinds.small()}}

    with pytest.raises(ScenarioError, match="one Workload, got a Deployment that is 3"):
        replayed(document(work=work))


def test_a_kind_that_kueues_configuration_switches_off_is_refused():
    source = document(work=template("JobSet"))
    text = "kind: Configuration\nintegrations: {frameworks: [batch/job]}"
    config = {"kind": "ConfigMap", "metadata": {"name": "kueue-manager-config"}}
    config["metadata"]["namespace"] = "kueue-system"
    source["cluster"]["objects"].append(
        {**config, "data": {"controller_manager_config.yaml": text}}
    )

    with pytest.raises(ScenarioError, match=r"^jobs\.work: jobset\.x-k8s\.io/jobset is not among"):
        replayed(source)


ROWS = """\
created,kind,seconds,cpu
2026-11-15 18:00:00,JobSet,10,300m
2026-11-15 18:00:01,Job,10,200m
2026-11-15 18:00:02,Spark,10,200m
"""


def of_rows(**columns):
    source = document(plain=template("Job"), set=template("JobSet"))
    jobs = [
        {"job": job, "when": [{"column": "kind", "equals": kind}]}
        for job, kind in (("plain", "Job"), ("set", "JobSet"))
    ]
    csv = {"file": "rows.csv", "jobs": jobs, "columns": {"arrival": "created", **columns}}
    source["arrivals"] = [{"csv": csv}]
    return source


def test_a_column_of_a_csv_file_says_of_which_kind_each_row_is():
    found = replayed(of_rows(), "static", rows=ROWS)

    assert [each.template for each in found] == ["set", "plain"]


def test_what_a_row_asks_for_is_what_the_pods_that_ask_for_it_get():
    source = of_rows(requests={"cpu": "cpu"})
    given = read_scenario(source, read_text=lambda _: ROWS)
    first, second = map(given.manifest, given.submissions)

    def cpus(manifest):
        job = kinds.BY_NAME[manifest["kind"]].read(manifest)
        return [each.template.containers[0].resources.requests["cpu"] for each in job.pod_sets]

    assert (cpus(first), cpus(second)) == (["300m", "300m"], ["200m"])


def test_a_row_that_asks_for_what_no_pods_ask_for_is_named():
    source = of_rows(requests={"memory": "cpu"})

    with pytest.raises(ScenarioError, match="no pods of the JobSet ask for memory"):
        read_scenario(source, read_text=lambda _: ROWS)
