"""The played Kueue beside the real one: the same Jobs are admitted, in the same order and flavors.

Worlds in which Kueue's order is drawn are left out: all Jobs of a queue have priorities of their
own. What comes next is waited for, so that no time decides.
"""

import copy
import uuid
from dataclasses import dataclass, field

import pytest

from hack import paper
from hack.embedded.played_plane import PlayedPlane
from hack.waiting import wait_for
from tests.e2e.plane import has_condition

FOR_AN_HOUR = {"cpu-run": 3600.0}
AT_ONCE = {"cpu-run": 0.001}
CLASS = "kueue.x-k8s.io/priority-class"
OURS_ALONE = ("topologyRequest", "finalizers", "observedGeneration")
"""What the real one writes besides: nobody here reads it."""


@dataclass(frozen=True, kw_only=True)
class World:
    """ClusterQueues with Jobs, all of which come before anybody is served."""

    queues: dict
    """Name to its flavors' CPUs, and the rest of its spec."""
    jobs: dict
    """Name to queue, CPUs and priority."""
    steps: dict = field(default_factory=dict)
    """A Job that is deleted to who has quota then, by flavor; "": before any is."""


TWO_FLAVORS = World(
    queues={"only": ({"near": 2, "far": 4}, {})},
    jobs={f"p{priority}": ("only", 2, priority) for priority in (5, 4, 3, 2, 1)},
    steps={
        "": {"p5": "near", "p4": "far", "p3": "far"},
        "p5": {"p2": "near", "p4": "far", "p3": "far"},
        "p3": {"p2": "near", "p4": "far", "p1": "far"},
    },
)
STRICT = World(
    queues={"only": ({"near": 4}, {"queueingStrategy": "StrictFIFO"})},
    jobs={"p3": ("only", 3, 3), "p2": ("only", 2, 2), "p1": ("only", 1, 1)},
    steps={"": {"p3": "near"}, "p3": {"p2": "near", "p1": "near"}},
)
BEST_EFFORT = World(
    queues=TWO_FLAVORS.queues | {"only": ({"near": 4}, {})},
    jobs=STRICT.jobs,
    steps={"": {"p3": "near", "p1": "near"}, "p3": {"p2": "near", "p1": "near"}},
)
COHORT = World(
    queues={
        "one": ({"near": 4}, {"cohortName": "all"}),
        "two": ({"near": 4}, {"cohortName": "all"}),
    },
    jobs={
        "p9": ("one", 4, 9),
        "p8": ("one", 3, 8),
        "p7": ("one", 2, 7),
        "p6": ("one", 1, 6),
        "p5": ("two", 5, 5),
    },
    steps={"": {"p9": "near", "p8": "near", "p6": "near"}},
)
WORLDS = {
    "the_next_flavor_is_taken": TWO_FLAVORS,
    "a_strict_queue_waits_for_its_head": STRICT,
    "others_pass_a_head_that_does_not_fit": BEST_EFFORT,
    "quota_is_borrowed": COHORT,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    with PlayedPlane(tmp_path_factory.mktemp("played")) as played:
        yield played


@pytest.mark.parametrize("name", WORLDS)
def test_the_same_jobs_get_quota_in_the_same_flavors(plane, played, name):
    world = WORLDS[name]

    for cluster in (plane, played):
        place = build(cluster, world)
        for gone, expected in world.steps.items():
            if gone:
                cluster.client.delete("batch/v1", "Job", gone, namespace=place)
            wait_for(
                lambda cluster=cluster, place=place, expected=expected: (
                    admitted(cluster, place) == expected
                ),
                f"{expected} in {type(cluster).__name__}",
            )


def build(cluster, world):
    """Create a world, and let it be served when all Jobs have Workloads; return its namespace."""
    place = f"world-{uuid.uuid4().hex[:6]}"
    client = cluster.client
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    for flavor in {flavor for flavors, _ in world.queues.values() for flavor in flavors}:
        client.create(paper.resource_flavor(f"{place}-{flavor}"))
    for name, (flavors, more) in world.queues.items():
        client.create(held_queue(place, name, flavors, more))
        local = paper.local_queue(name, place, cluster_queue=f"{place}-{name}")
        client.create(local)
    for name, (queue, cpus, priority) in world.jobs.items():
        create(client, place, name, queue=queue, cpus=cpus, priority=priority, run=FOR_AN_HOUR)
    wait_for(
        lambda: len(client.list(paper.KUEUE, "Workload", namespace=place)) == len(world.jobs),
        "all Jobs have Workloads",
    )
    for name in world.queues:
        change = {"spec": {"stopPolicy": "None"}}
        client.patch(paper.KUEUE, "ClusterQueue", f"{place}-{name}", change)
    return place


def held_queue(place, name, flavors, more):
    queue = paper.cluster_queue(f"{place}-{name}", flavor="", quota={})
    if "cohortName" in more:
        more = {**more, "cohortName": f"{place}-{more['cohortName']}"}
    listed = [
        {
            "name": f"{place}-{flavor}",
            "resources": [{"name": "cpu", "nominalQuota": str(cpus)}],
        }
        for flavor, cpus in flavors.items()
    ]
    groups = [{"coveredResources": ["cpu"], "flavors": listed}]
    queue["spec"] |= {"resourceGroups": groups, "stopPolicy": "Hold", **more}
    return queue


def create(client, place, name, *, queue, cpus, priority, run):
    urgency = f"{place}-{priority}"
    known = {"apiVersion": paper.KUEUE, "metadata": {"name": urgency}, "value": priority}
    client.create({**known, "kind": "WorkloadPriorityClass"})
    container = {"name": "main", "image": "any:1", "resources": {"requests": {"cpu": str(cpus)}}}
    labels = {paper.QUEUE_LABEL: queue, CLASS: urgency}
    return client.create(paper.job(name, place, labels=labels, run=run, container=container))


def admitted(cluster, place):
    """Return the Jobs that have quota, each with its flavor."""
    found = {}
    for workload in cluster.client.list(paper.KUEUE, "Workload", namespace=place):
        if has_condition(workload, "QuotaReserved"):
            (assigned,) = workload["status"]["admission"]["podSetAssignments"]
            job = workload["metadata"]["ownerReferences"][0]["name"]
            found[job] = assigned["flavors"]["cpu"].removeprefix(f"{place}-")
    return found


@pytest.mark.parametrize(
    ("run", "awaited", "passed_by"),
    [(FOR_AN_HOUR, "PodsReady", ()), (AT_ONCE, "Finished", ("PodsReady",))],
    ids=["running", "finished"],
)
def test_a_workload_says_what_kueues_says(plane, played, run, awaited, passed_by):
    said = [workload_that_is(cluster, run, awaited) for cluster in (plane, played)]

    for workload in said:
        for condition in passed_by:
            # Where a Job ends at once, Kueue may never see its pods ready.
            workload["conditions"].pop(condition, None)
    assert said[0] == said[1]


def workload_that_is(cluster, run, awaited):
    """Return a Job's Workload with a condition, without what differs from run to run."""
    world = World(queues={"only": ({"near": 1}, {})}, jobs={})
    place = build(cluster, world)
    create(cluster.client, place, "one", queue="only", cpus=1, priority=3, run=run)

    def workload():
        found = cluster.client.list(paper.KUEUE, "Workload", namespace=place)
        return found[0] if found and has_condition(found[0], awaited) else None

    return neutral(wait_for(workload, f"it is {awaited}"), place)


def neutral(workload, place):
    item = copy.deepcopy(workload)
    metadata = item["metadata"]
    (owner,) = metadata["ownerReferences"]
    uid = owner.pop("uid")
    name = metadata.pop("name")
    conditions = item["status"]["conditions"]
    (pod_set,) = item["spec"]["podSets"]
    return replaced(
        {
            "name": name.rpartition("-")[0],
            "labels": {key: value.replace(uid, "UID") for key, value in metadata["labels"].items()},
            "owner": owner,
            "spec": {**item["spec"], "podSets": [without_extras(pod_set)]},
            "admission": item["status"]["admission"],
            "conditions": {
                each["type"]: (each["status"], each["reason"], each["message"])
                for each in conditions
            },
        },
        place,
    )


def without_extras(pod_set):
    return {key: value for key, value in pod_set.items() if key not in OURS_ALONE}


def replaced(value, place):
    """Return a value in which nothing names its namespace."""
    if isinstance(value, dict):
        return {key: replaced(below, place) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(below, place) for below in value]
    return value.replace(place, "PLACE") if isinstance(value, str) else value
