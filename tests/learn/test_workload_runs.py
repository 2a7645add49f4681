"""What Workloads tell of their runs, as they are on a real Kueue."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.builders import container, job
from tests.learn.finished import ADMITTED, finished, ran
from tests.state.objects import RESERVED, condition, reserving, workload
from webhook.jobs import batch
from webhook.learn import job_class
from webhook.learn.job_class import Mark
from webhook.learn.run_records import Run, WorkloadRun
from webhook.model.forecasts import JobClass
from webhook.state.workload import read_workload

ADMITTED_AT = 1795240810
UID = 0xF67D
EXAMPLES = Path(__file__).parents[2] / "examples"
BARE = job_class.of_job(job(container(image="x", requests={"cpu": "4"})))


def ended(*conditions, **rest):
    return run_of(ran(*conditions, **rest))


def run_of(source):
    """The run of a Workload, if it has ended."""
    run = read_workload(source).run
    return run if run is not None and run.has_ended else None


def template_of(source):
    return source["spec"]["podSets"][0]["template"]


OF_ITS_OWN = {"hostname": "a", "volumes": [{"name": "of-a"}], "serviceAccountName": "a"}


def test_workloads_that_differ_in_what_nothing_depends_on_hold_class_and_shape_once():
    one, another = (workload(name, decision=name) for name in ("job-a", "job-b"))
    template_of(another)["spec"].update(OF_ITS_OWN)
    template_of(another)["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]

    one, another = (read_workload(source) for source in (one, another))

    assert one.job_class is another.job_class
    assert one.pod_sets is another.pod_sets


@pytest.mark.parametrize(
    ("place", "field"),
    [
        *(
            ("container", field)
            for field in (
                {"name": "sidecar"},
                {"image": "y"},
                {"command": ["run"]},
                {"args": ["--fast"]},
                {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}}},
                {"restartPolicy": "Always"},
            )
        ),
        *(
            ("pods", field)
            for field in (
                {"initContainers": [{"name": "first", "image": "x"}]},
                {"nodeSelector": {"zone": "a"}},
                {"tolerations": [{"operator": "Exists"}]},
                {"affinity": {"nodeAffinity": {}}},
                {"runtimeClassName": "gvisor"},
                {"overhead": {"cpu": "1"}},
                {"resources": {"requests": {"cpu": "8"}}},
            )
        ),
        *(
            ("pod set", field)
            for field in (
                {"name": "workers"},
                {"count": 2},
                {"count": 2, "minCount": 1},
                {"topologyRequest": {"podSetGroupName": "all"}},
            )
        ),
        ("annotations", {"kueue.x-k8s.io/podset-required-topology": "rack"}),
    ],
    ids=str,
)
def test_each_field_that_counts_counts(place, field):
    other = workload()
    template = template_of(other)
    places = {
        "container": template["spec"]["containers"][0],
        "pods": template["spec"],
        "pod set": other["spec"]["podSets"][0],
        "annotations": template["metadata"]["annotations"],
    }
    places[place].update(field)

    assert said_of(other) != said_of(workload())


def said_of(source):
    """Class and shape of a Workload that is read after another one like it."""
    read_workload(workload())
    found = read_workload(source)
    return found.job_class, found.pod_sets


def test_pods_with_more_text_than_is_read_again_have_no_class():
    source = workload()
    (container,) = source["spec"]["podSets"][0]["template"]["spec"]["containers"]

    container["args"] = ["\N{PILE OF POO}" * 60_000]
    assert read_workload(source).job_class is not None
    container["args"] = ["x"] * 20_000
    assert read_workload(source).job_class is None


def test_a_running_workload_tells_since_when_and_where_it_runs():
    found = read_workload(reserving(also=(ADMITTED,), usage={"cpu": "4", "memory": "1Gi"}))

    assert (found.flavors, found.admitted, found.run) == ("a100", ADMITTED_AT, None)


def test_flavors_of_all_pods_are_named_once_in_order():
    source = reserving(also=(ADMITTED,))
    assignment = {"name": "other", "flavors": {"cpu": "t4", "memory": "a100"}, "resourceUsage": {}}
    source["status"]["admission"]["podSetAssignments"].append(assignment)

    assert read_workload(source).flavors == "a100,t4"


def test_a_run_lasts_from_the_last_admission_to_the_end():
    assert ended(ADMITTED, finished()) == WorkloadRun(
        run=Run(ADMITTED_AT + 70, UID, 70),
        flavors="a100",
        cluster_queue="gpu-cq",
        admitted=ADMITTED_AT,
        mark=Mark(BARE, 0),
        name="x",
    )


def test_a_failed_run_is_told_with_the_decision_that_put_it_there():
    mark = Mark(JobClass("team/c", "team/~c"), 3, 50)
    source = ran(ADMITTED, finished("Failed"), guest=("light", "cpu"))
    template = source["spec"]["podSets"][0]["template"]
    template["metadata"]["annotations"]["kueue-fallback.dev/class"] = job_class.mark_text(mark)

    assert run_of(source) == WorkloadRun(
        run=Run(ADMITTED_AT + 70, UID, 70, generation=3, succeeded=False),
        flavors="a100",
        cluster_queue="gpu-cq",
        admitted=ADMITTED_AT,
        mark=mark,
        name="x",
        policy="light",
        option="cpu",
    )


@pytest.mark.parametrize(
    "conditions",
    [
        (ADMITTED,),
        (ADMITTED, finished("OutOfSync")),
        (ADMITTED, finished("OwnerNotFound")),
        (ADMITTED, finished(at="2026-11-21T05:00:00Z")),
        ({**ADMITTED, "status": "False"}, finished("Failed")),
        (finished(),),
    ],
    ids=["runs", "out of sync", "deleted", "before its admission", "evicted", "never admitted"],
)
def test_what_did_not_run_to_an_end_is_no_run(conditions):
    assert ended(*conditions) is None


def at(condition_, seconds):
    moment = datetime.fromtimestamp(ADMITTED_AT + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**condition_, "lastTransitionTime": moment}


def began(*conditions, checks=(), cluster=None):
    source = workload(conditions=conditions, admitted_to="gpu-cq")
    source["metadata"]["uid"] = "fe8d536c-990b-49e4-988b-8cf1fe1d7f19"
    source["status"] |= {"admissionChecks": list(checks)} if checks else {}
    source["status"] |= {"clusterName": cluster} if cluster else {}
    return read_workload(source).run


SENT = {"name": "gpu-clusters", "state": "Ready"}
BEGAN = WorkloadRun(
    run=Run(0, UID),
    cluster_queue="gpu-cq",
    flavors="a100",
    admitted=ADMITTED_AT,
    mark=read_workload(ran(ADMITTED, finished())).run.mark,
)


def test_a_run_has_begun_when_all_its_pods_were_ready():
    ready = at(condition("PodsReady", reason="Started"), 30)

    assert began(RESERVED, ADMITTED, ready) == BEGAN._replace(ready=ADMITTED_AT + 30)


def test_a_workload_waits_for_its_checks_from_its_reservation_on():
    found = began(at(RESERVED, -12), checks=({**SENT, "state": "Pending"},))

    assert found == BEGAN._replace(reserved=ADMITTED_AT - 12, admitted=0)


def test_a_workload_that_was_dispatched_tells_how_long_that_took_and_where_to():
    found = began(at(RESERVED, -12), ADMITTED, checks=(SENT,), cluster="t4-cluster")

    assert found == BEGAN._replace(reserved=ADMITTED_AT - 12, cluster="t4-cluster")


@pytest.mark.parametrize(
    "conditions",
    [
        (at(RESERVED, -12), ADMITTED),
        (at(RESERVED, -12), ADMITTED, condition("PodsReady", "False", "WaitForStart")),
        (RESERVED, ADMITTED, at(condition("PodsReady", reason="Recovered"), 300)),
        (RESERVED, ADMITTED, at(condition("PodsReady", reason="Started"), -5)),
        (RESERVED, at(condition("PodsReady", reason="Started"), 5)),
    ],
    ids=["no check", "not ready", "ready again", "ready before", "not admitted"],
)
def test_without_a_check_or_a_first_readiness_nothing_is_told_of_how_it_began(conditions):
    assert began(*conditions) is None


def test_an_ended_run_tells_how_it_began_and_in_which_cluster():
    source = ran(ADMITTED, finished(), at(condition("PodsReady", reason="Started"), 30))
    source["status"]["clusterName"] = "t4-cluster"

    found = run_of(source)

    assert (found.cluster, found.admitted, found.ready) == (
        "t4-cluster",
        ADMITTED_AT,
        ADMITTED_AT + 30,
    )


def test_a_slice_that_took_over_from_another_is_no_run():
    slices = {"kueue.x-k8s.io/workload-slice-replacement-for": "team/other"}

    assert ended(ADMITTED, finished(), annotations=slices) is None


@pytest.mark.parametrize("resources", [{"limits": {"cpu": 4}}, {"requests": {"cpu": "4000m"}}])
def test_limits_written_as_requests_make_no_other_class(resources):
    source = workload()
    source["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = resources

    assert read_workload(source).job_class == BARE


def test_a_workload_whose_amounts_cannot_be_read_has_no_class():
    found = read_workload(reserving(cpu="much", usage={"cpu": "4"}, also=(ADMITTED, finished())))

    assert (found.job_class, found.run) == (None, None)


@pytest.mark.parametrize("kind", ["light", "heavy"])
def test_a_workload_of_kueues_has_the_class_of_the_job_that_it_was_made_from(kind):
    source = yaml.safe_load((EXAMPLES / f"{kind}-job.yaml").read_text())
    items = json.loads((EXAMPLES / "snapshot.json").read_text())["items"]
    left_alone = [
        item
        for item in items
        if item["kind"] == "Workload" and item["metadata"]["name"].startswith(f"job-{kind}")
    ]

    classes = {read_workload(item).job_class for item in left_alone}

    assert classes == {job_class.of_job(batch.read_job(source))}


def test_a_running_workload_of_kueues_tells_when_its_pods_were_ready():
    items = json.loads((EXAMPLES / "snapshot.json").read_text())["items"]
    sources = [read_workload(item) for item in items if item["kind"] == "Workload"]

    begun = [each.run for each in sources if each.run is not None]

    assert [(each.cluster_queue, each.flavors, each.ready - each.admitted) for each in begun] == [
        ("gpu-cq", "gpu", 3)
    ] * 4
