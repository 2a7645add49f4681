"""RayJobs and JobSets that wait are moved to and fro, and each runs once as its queue wants it.

JobSets may only change their queue once they exist, so their options are tiers of nodes; RayJobs
may change in everything, and lose their GPUs and get them back.
"""

import contextlib
import json
import random

import pytest
from click.testing import CliRunner

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.job_definitions import definitions
from hack.kwok import GPU
from hack.waiting import wait_for
from tests.conftest import FULL
from tests.e2e.decisions import POLICY_API, cpu_job, decision_of, limited, queue_of
from tests.e2e.moving import MOVE_TO, RULES, hold, wish
from tests.e2e.plane import has_condition, workload_of
from tests.e2e.played_controllers import KINDS, PlayedControllers
from webhook.__main__ import main
from webhook.jobs import BY_NAME

MANY = 50 if FULL else 8
LOST_AT_MOST = MANY // 4 if FULL else MANY // 2
"""JobSets to which Kueue gives quota just when they are moved: of eight, three may be by chance."""
SEED = 20261125
NAMESPACE = "moved-kinds"
NAMES = paper.names_with("kinds", namespace=NAMESPACE)
FAST, SLOW = "fast", "slow"
TIER = "example.com/tier"
GREAT = 1000
RAYJOB, JOBSET, JAXJOB = (BY_NAME[name] for name in ("RayJob", "JobSet", "JAXJob"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    frameworks = ["batch/job", *(kind.framework for kind in (*KINDS, JAXJOB))]
    options = Options(
        kueue_config={"integrations": {"frameworks": frameworks}}, definitions=definitions()
    )
    with ControlPlane(tmp_path_factory.mktemp("kind-moves"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def queues(plane):
    with Installation(
        plane, chart_values=[*PATIENT, "kinds={Job,RayJob,JobSet,JAXJob,XGBoostJob}"]
    ):
        plane.client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        plane.client.apply_all(paper.queues(NAMES))
        for name in (FAST, SLOW):
            flavor = paper.resource_flavor(name, node_labels={TIER: name})
            queue = paper.cluster_queue(name, flavor=name, quota={"cpu": "4"})
            plane.client.apply_all([flavor, queue])
            plane.client.apply(paper.local_queue(name, NAMESPACE, cluster_queue=name))
        yield


def asked_policy(name, kind, options, **spec):
    """A policy that leaves Jobs where they were submitted, and moves them when asked."""
    threshold = [{"option": option["name"], "orPendingBelow": GREAT} for option in options]
    return {
        "apiVersion": POLICY_API,
        "kind": "FallbackPolicy",
        "metadata": {"name": name},
        "spec": {
            "mode": "Enforce",
            "match": {"kinds": [kind], "jobSelector": {}},
            "options": options,
            "strategy": {"type": "Threshold", "threshold": threshold},
            **spec,
        },
    }


TO_AND_FRO = {
    "RayJob": [
        {"name": "gpu", "queue": NAMES.gpu_queue},
        {
            "name": "cpu",
            "queue": NAMES.cpu_queue,
            "adaptation": {
                "accelerator": "Remove",
                "env": {"RUN_ENV": "cpu"},
                "replicas": {"workers": 2},
            },
        },
    ],
    "JobSet": [{"name": FAST, "queue": FAST}, {"name": SLOW, "queue": SLOW}],
}


@pytest.fixture
def policies(plane, queues):
    found = [asked_policy(f"{kind.lower()}s", kind, TO_AND_FRO[kind]) for kind in TO_AND_FRO]
    with applied(plane.client, *found):
        yield found


@contextlib.contextmanager
def applied(client, *found):
    names = [each["metadata"]["name"] for each in found]
    client.apply_all(found)
    for name in names:
        wait_for(lambda name=name: is_ready(client, name), f"{name} is ready")
    try:
        yield
    finally:
        for name in names:
            client.delete(POLICY_API, "FallbackPolicy", name)


def is_ready(client, name):
    return has_condition(client.get(POLICY_API, "FallbackPolicy", name), "Ready")


def pods(requests, env="gpu"):
    resources = {"requests": requests}
    if GPU in requests:
        resources["limits"] = {GPU: requests[GPU]}
    variables = [{"name": "RUN_ENV", "value": env}]
    container = {"name": "main", "image": "train", "env": variables, "resources": resources}
    return {"spec": {"containers": [container]}}


def rayjob(name):
    workers = {"groupName": "workers", "replicas": 1, "minReplicas": 1, "maxReplicas": 4}
    cluster = {
        "headGroupSpec": {"rayStartParams": {}, "template": pods({"cpu": "1"})},
        "workerGroupSpecs": [
            {**workers, "rayStartParams": {}, "template": pods({"cpu": "1", GPU: "1"})}
        ],
    }
    spec = {"entrypoint": "python a.py", "submissionMode": "HTTPMode", "rayClusterSpec": cluster}
    return made(RAYJOB, name, NAMES.gpu_queue, {"shutdownAfterJobFinishes": True, **spec})


def jobset(name):
    template = pods({"cpu": "1"})
    template["spec"]["restartPolicy"] = "Never"
    workers = {"name": "workers", "template": {"spec": {"template": template}}}
    return made(JOBSET, name, FAST, {"replicatedJobs": [workers]})


MAKE = {"RayJob": rayjob, "JobSet": jobset}


def made(kind, name, queue, spec):
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {paper.QUEUE_LABEL: queue}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec,
    }


def blockers():
    """Jobs that fill each of the queues, by the queue."""
    tiers = {name: cpu_job(f"holds-{name}", NAMES) for name in (FAST, SLOW)}
    for name, job in tiers.items():
        job["metadata"]["labels"][paper.QUEUE_LABEL] = name
        del job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"]
    return {
        NAMES.gpu_queue: [paper.heavy_job(f"holds-gpu-{n}", NAMES, faster=0.05) for n in range(4)],
        NAMES.cpu_queue: [cpu_job(f"holds-cpu-{n}", NAMES) for n in range(6)],
        **{name: [job] for name, job in tiers.items()},
    }


@pytest.fixture
def free(plane, queues):
    """Fill all queues; yields what frees one of them."""
    client, held = plane.client, blockers()
    for job in client.create_all([limited(job) for jobs in held.values() for job in jobs]):
        wait_for(lambda job=job: is_reserved(client, job), "it has quota")

    def free_one(queue):
        for job in held.pop(queue, ()):
            client.delete("batch/v1", "Job", job["metadata"]["name"], namespace=NAMESPACE)

    yield free_one
    for queue in list(held):
        free_one(queue)
    wait_for(lambda: not client.list("batch/v1", "Job", namespace=NAMESPACE), "all are gone")


def is_reserved(client, job):
    workload = workload_of(client, job)
    return workload and has_condition(workload, "QuotaReserved")


def now(client, job):
    metadata = job["metadata"]
    return client.get(job["apiVersion"], job["kind"], metadata["name"], namespace=NAMESPACE)


def test_the_controller_moves_a_rayjob_and_tells_of_it(plane, free):
    # First of all: later it is known that the RayJobs here run for a second, and little is to gain.
    client = plane.client
    options = [TO_AND_FRO["RayJob"][0], {**TO_AND_FRO["RayJob"][1], "slowdown": 1.5}]
    policy = asked_policy("own", "RayJob", options, reconsider=RULES)
    policy["spec"]["strategy"] = {"type": "FinishTime", "finishTime": {"runTime": "20s"}}
    free(NAMES.cpu_queue)
    hold(client, NAMES.cpu_cluster_queue, "Hold")
    with applied(client, policy):
        wait_for(lambda: is_refused_cpu(client), "the CPU queue is known to be stopped")
        waiting = client.create_all([rayjob(f"own-{n}") for n in range(3)])
        try:
            assert [queue_of(job) for job in waiting] == [NAMES.gpu_queue] * 3

            hold(client, NAMES.cpu_cluster_queue, "None")
            moved = wait_for(lambda: moved_by_itself(client, waiting), "the controller moves one")
            event = wait_for(lambda: event_of(client, moved, "Moved"), "an Event on it")
        finally:
            hold(client, NAMES.cpu_cluster_queue, "None")
            for job in waiting:
                name = job["metadata"]["name"]
                client.delete("ray.io/v1", "RayJob", name, namespace=NAMESPACE)

    assert decision_of(moved)["reason"].startswith(f"moved to {NAMES.cpu_queue} (cpu): done in ")
    about = event["involvedObject"]
    assert (about["kind"], about["apiVersion"]) == ("RayJob", "ray.io/v1")


def is_refused_cpu(client):
    decision = decision_of(client.create(rayjob("probe"), dry_run=True)) or {"options": []}
    return any(each["name"] == "cpu" and each.get("rejected") for each in decision["options"])


def moved_by_itself(client, jobs):
    found = [now(client, job) for job in jobs]
    return next((job for job in found if (decision_of(job) or {}).get("moves")), None)


def event_of(client, job, reason):
    found = client.list("v1", "Event", namespace=NAMESPACE)
    mine = (each for each in found if each["involvedObject"].get("uid") == job["metadata"]["uid"])
    return next((each for each in mine if each["reason"] == reason), None)


def test_many_are_moved_both_ways_under_load_and_each_runs_once(plane, policies, free):
    client, draw = plane.client, random.Random(SEED)
    wanted = [MAKE[kind](f"{kind.lower()}-{n}") for n in range(MANY) for kind in sorted(MAKE)]
    all_made = client.create_all(wanted)
    for job in all_made:
        wait_for(lambda job=job: workload_of(client, job), "its Workload")

    with PlayedControllers(client=client, namespace=NAMESPACE, kinds=KINDS).running() as played:
        refused = move_at_random(client, draw, all_made, free)
        over = wait_for(lambda: all_over(client, all_made), "all are over")

    moves = [decision_of(job).get("moves", 0) for job in over]
    report = {
        "jobs": len(over),
        "moves": sum(moves),
        "moved back": sum(count > 1 for count in moves),
        "refused": refused,
        "interrupted": sum(map(len, played.interrupted.values())),
        "lost": sum(is_lost(client, job) for job in over),
    }
    print(json.dumps(report))
    assert {len(played.runs[job["metadata"]["uid"]]) for job in over} == {1}
    wrong = {job["metadata"]["name"]: wrong_with(client, job, played) for job in over}
    assert {name: what for name, what in wrong.items() if what} == {}
    assert {decision_of(job)["option"] for job in over} == set(QUEUES)
    assert report["lost"] <= LOST_AT_MOST
    assert sum(count > 1 for count in moves) >= MANY // 4


def move_at_random(client, draw, jobs, free):
    """Ask for moves there and back while quota becomes free; return how many were refused."""
    refused = 0
    # Some twice and some thrice, so that all options are taken even if nobody starts meanwhile.
    steps = [job for number, job in enumerate(jobs) for _ in range(2 + number // len(KINDS) % 2)]
    draw.shuffle(steps)
    for number, job in enumerate(steps):
        if number == len(steps) // 3:
            for queue in (NAMES.gpu_queue, NAMES.cpu_queue, FAST, SLOW):
                free(queue)
        current = now(client, job)
        option = (decision_of(current) or {}).get("option")
        others = [each["name"] for each in TO_AND_FRO[job["kind"]] if each["name"] != option]
        asked, _ = wish(client, current, draw.choice(others))
        assert MOVE_TO not in asked["metadata"]["annotations"]
        refused += decision_of(asked)["option"] == option

    return refused


def all_over(client, jobs):
    found = [now(client, job) for job in jobs]
    ended = [workload_of(client, job) for job in found if is_over(job)]
    is_known = all(workload and has_condition(workload, "Finished") for workload in ended)
    return found if len(ended) == len(found) and is_known else None


def is_over(job):
    status = job.get("status", {})
    return status.get("jobDeploymentStatus") == "Complete" or has_condition(job, "Completed")


QUEUES = {
    "gpu": (NAMES.gpu_queue, NAMES.gpu_cluster_queue),
    "cpu": (NAMES.cpu_queue, NAMES.cpu_cluster_queue),
    FAST: (FAST, FAST),
    SLOW: (SLOW, SLOW),
}


def wrong_with(client, job, played):
    """Say what of a Job that is over is not as its queue wants it: (what it is, what it should)."""
    (run,) = played.runs[job["metadata"]["uid"]]
    workload = workload_of(client, job)
    admitted_in = workload["status"]["admission"]["clusterQueue"]
    option = next(name for name, (_, there) in QUEUES.items() if there == admitted_in)
    found = {
        "queue of its Workload": (workload["spec"]["queueName"], QUEUES[option][0]),
        "ran with": (ran_with(run.job), FOR[option]),
        "counted": (counted(workload), COUNTED[option]),
    }
    if not is_lost(client, job):
        found["option"] = (decision_of(job)["option"], option)
        found["queue"] = (queue_of(job), QUEUES[option][0])
    return {what: pair for what, pair in found.items() if pair[0] != pair[1]}


def is_lost(client, job):
    """Whether Kueue gave it quota just when its queue alone changed: it goes on where it was."""
    queue = workload_of(client, job)["spec"]["queueName"]
    return job["kind"] == "JobSet" and queue != queue_of(job)


FOR = {
    "gpu": ({GPU, "cpu"}, "gpu", 1, None),
    "cpu": ({"cpu"}, "cpu", 2, None),
    FAST: ({"cpu"}, "gpu", 1, FAST),
    SLOW: ({"cpu"}, "gpu", 1, SLOW),
}
"""What the workers of each option ask for, the variable that they have, how many they are, and the
tier of nodes that they run on."""
COUNTED = {
    "gpu": {"cpu": "2", GPU: "1"},
    "cpu": {"cpu": "3"},
    FAST: {"cpu": "1"},
    SLOW: {"cpu": "1"},
}


def ran_with(job):
    *_, workers = BY_NAME[job["kind"]].read(job).pod_sets
    (container,) = workers.template.containers
    (variable,) = container.env
    tier = workers.template.node_selector.get(TIER)
    return set(container.resources.requests), value_of(variable, workers), workers.count, tier


def value_of(variable, workers):
    if "value" in variable:
        return variable["value"]
    name = variable["valueFrom"]["fieldRef"]["fieldPath"].split("'")[1]
    return workers.template.annotations[name]


def counted(workload):
    total = {}
    for assigned in workload["status"]["admission"]["podSetAssignments"]:
        for resource, amount in assigned["resourceUsage"].items():
            total[resource] = str(int(total.get(resource, 0)) + int(amount))
    return total


def test_what_is_immutable_is_refused_with_its_reason(plane, free):
    client = plane.client
    options = [
        {"name": FAST, "queue": FAST},
        {"name": "less", "queue": SLOW, "adaptation": {"resources": {"requests": {"cpu": "2"}}}},
        {"name": "more", "queue": SLOW, "adaptation": {"replicas": {"workers": 2}}},
    ]
    with applied(client, asked_policy("jobsets", "JobSet", options)):
        job = client.create(jobset("stays"))
        wait_for(lambda: workload_of(client, job), "its Workload")

        stayed, for_resources = wish(client, job, "less")
        still, for_replicas = wish(client, stayed, "more")

    assert "its resources would change, which its kind allows at creation only" in for_resources
    assert "the replicas of a pod set would change" in for_replicas
    assert pods_of(still) == pods_of(job)
    assert (queue_of(still), decision_of(still)["option"]) == (FAST, FAST)
    client.delete(JOBSET.api_version, "JobSet", "stays", namespace=NAMESPACE)


def pods_of(job):
    return BY_NAME[job["kind"]].read(job).pod_sets


def test_one_that_was_moved_is_undone_as_it_was_submitted(plane, policies, free):
    client = plane.client
    job = client.create(rayjob("undone"))
    wait_for(lambda: workload_of(client, job), "its Workload")
    moved, _ = wish(client, job, "cpu")
    assert (queue_of(moved), ran_with(moved)[2]) == (NAMES.cpu_queue, 2)

    words = ["undo", "rayjob/undone", "-n", NAMESPACE, "--kubeconfig", str(plane.kubeconfig)]
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 0, result.output
    after = now(client, job)
    assert (decision_of(after), queue_of(after)) == (None, NAMES.gpu_queue)
    assert ran_with(after) == FOR["gpu"]
    followed = wait_for(lambda: followed_back(client, after), "its Workload follows")
    assert followed["spec"]["queueName"] == NAMES.gpu_queue


def followed_back(client, job):
    workload = workload_of(client, job)
    return workload if workload["spec"]["queueName"] == queue_of(job) else None


def test_a_policy_says_which_of_its_kinds_cannot_be_decided_until_it_can(plane, queues):
    client = plane.client
    options = [{"name": FAST, "queue": FAST}]
    found = {kind: asked_policy(kind.lower(), kind, options) for kind in WORDS}
    client.apply_all(found.values())
    try:
        for kind, words in WORDS.items():
            wait_for(lambda kind=kind, words=words: says(client, kind, words), f"{kind}: {words}")
        definition = client.get(CRD, "CustomResourceDefinition", JAX_DEFINITION)
        client.delete(CRD, "CustomResourceDefinition", JAX_DEFINITION)
        missing = "the cluster serves no jaxjobs of kubeflow.org/v1"
        wait_for(lambda: says(client, "JAXJob", missing), "it is not served")

        metadata = {"name": JAX_DEFINITION, "annotations": definition["metadata"]["annotations"]}
        client.create({**definition, "metadata": metadata, "status": {}})

        wait_for(lambda: says(client, "JAXJob", WORDS["JAXJob"]), "it is served again")
    finally:
        for each in found.values():
            client.delete(POLICY_API, "FallbackPolicy", each["metadata"]["name"])


CRD, JAX_DEFINITION = "apiextensions.k8s.io/v1", "jaxjobs.kubeflow.org"
WORDS = {
    "JAXJob": "all queues and classes",
    "RayCluster": "RayCluster is not among the chart's kinds",
    "XGBoostJob": "Kueue's integration kubeflow.org/xgboostjob is off",
}
"""What the condition Ready of a policy for a kind says."""


def says(client, kind, words):
    policy = client.get(POLICY_API, "FallbackPolicy", kind.lower())
    conditions = policy.get("status", {}).get("conditions") or ()
    ready = next((each for each in conditions if each["type"] == "Ready"), None)
    return (
        ready
        and words in ready["message"]
        and ready["status"] == str(kind == "JAXJob" and words == WORDS[kind])
    )
