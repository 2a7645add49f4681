"""Generated Jobs through every adaptation: the API server takes each, LimitRanges and all."""

import copy
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack import paper
from hack.api import ApiError
from hack.waiting import wait_for
from tests.e2e import many_jobs
from tests.e2e.decisions import DECISION, POLICY_API, decision_of, queue_of
from tests.e2e.plane import has_condition, job_of
from webhook.admission.patch import original_from_json, undone
from webhook.jobs import JOB

SEED = 20261
MANY = 180
CREATED = 33
OPT_OUT = {"kueue-fallback.dev/policy": "none"}
FOR_A_REASON = {"wouldBeInvalid", "stillPinned"}
UIDS = ("batch.kubernetes.io/controller-uid", "controller-uid")


@pytest.fixture
def places(plane, webhook, queues):
    """Queues without bounds, every policy, a namespace with a LimitRange and one without."""
    client = plane.client
    strict = f"{queues.namespace}-strict"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": strict}})
    client.apply_all([*queues_without_bounds(queues), *local_queues(queues, strict)])
    client.apply(limit_range(strict))
    client.apply_all([runtime_class("nvidia"), runtime_class("gvisor", cpu="250m")])
    policies = many_jobs.policies(queues)
    client.apply_all(policies)
    trial = [many_jobs.job(n, strict, random.Random(n)) for n in range(len(policies))]
    wait_for(
        lambda: all(decision_of(client.create(job, dry_run=True)) for job in trial),
        "the webhook decides by every policy",
    )
    yield queues.namespace, strict
    for policy in policies:
        client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])
    client.delete("v1", "Namespace", strict)


def queues_without_bounds(names):
    quota = dict.fromkeys(many_jobs.RESOURCES, "1000000")
    quota |= {name: "1000Ti" for name in quota if name not in ("cpu", many_jobs.GPU)}
    return [
        paper.cluster_queue(names.gpu_cluster_queue, flavor=names.gpu_flavor, quota=quota),
        paper.cluster_queue(names.cpu_cluster_queue, flavor=names.cpu_flavor, quota=quota),
    ]


def local_queues(names, namespace):
    return [
        paper.local_queue("gpu-lq", namespace, cluster_queue=names.gpu_cluster_queue),
        paper.local_queue("cpu-lq", namespace, cluster_queue=names.cpu_cluster_queue),
    ]


def limit_range(namespace):
    """Allow 12 CPUs a container, and give limits to whoever has none."""
    limit = {
        "type": "Container",
        "max": {"cpu": "12", "memory": "64Gi"},
        "default": {"cpu": "8", "memory": "32Gi"},
        "defaultRequest": {"cpu": "50m", "memory": "128Mi"},
    }
    metadata = {"name": "strict", "namespace": namespace}
    limits = {"limits": [limit]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": limits}


def runtime_class(name, **overhead):
    found = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}
    fixed = {"overhead": {"podFixed": overhead}} if overhead else {}
    return {**found, "metadata": {"name": name}, **fixed}


def tried(client, job, *, dry_run):
    """Create a Job, and for comparison ask for it as it were without us."""
    alone = copy.deepcopy(job)
    alone["metadata"]["annotations"] = OPT_OUT
    reference = client.create(alone, dry_run=True)
    try:
        return client.create(job, dry_run=dry_run), reference
    except ApiError as error:
        raise AssertionError(f"refused because of us: {error}\n{json.dumps(job)}") from error


def all_tried(client, jobs, *, dry_run):
    with ThreadPoolExecutor(max_workers=6) as pool:
        return list(pool.map(lambda job: tried(client, job, dry_run=dry_run), jobs))


def made(places, count, *, seed):
    source = random.Random(seed)
    return [many_jobs.job(number, places[number % 2], source) for number in range(count)]


def test_every_adapted_job_is_accepted_unpinned_and_can_be_undone(plane, places):
    jobs = made(places, MANY, seed=SEED)

    answers = all_tried(plane.client, jobs, dry_run=True)

    outcomes = Counter(outcome_of(job) for job, _ in answers)
    print(dict(outcomes))
    assert sum(outcomes.values()) == MANY
    assert {reason for _, reason in outcomes} <= {"taken", *FOR_A_REASON}
    assert all(outcomes[kind, "taken"] >= 5 for kind in many_jobs.ADAPTATIONS if kind != "huge")
    assert [pins for job, _ in answers if (pins := left_pinned(job))] == []
    for job, reference in answers:
        assert template_of(undone_job(job)) == template_of(reference)
        assert undone_job(job)["metadata"]["labels"] == reference["metadata"]["labels"]
    assert refused_pods(plane.client, answers) == []


def test_created_for_real_every_adapted_job_gets_its_pods(plane, places):
    jobs = made(places, CREATED, seed=SEED + 1)

    answers = all_tried(plane.client, jobs, dry_run=False)

    on_cpu = [job for job, _ in answers if decision_of(job).get("option") == "cpu"]
    assert len(on_cpu) >= CREATED // 2
    waiting = {(job["metadata"]["namespace"], job["metadata"]["name"]) for job in on_cpu}

    def all_have_pods():
        waiting.difference_update(
            where for where in tuple(waiting) if has_pods(job_of(plane.client, *where))
        )
        return not waiting

    wait_for(all_have_pods, f"pods of {waiting}")
    for job, reference in answers:
        assert template_of(undone_job(job)) == template_of(reference)


def refused_pods(client, answers):
    """List the pods that would be refused while those of the Job as submitted would not be."""
    with ThreadPoolExecutor(max_workers=6) as pool:
        adapted, alone = zip(
            *pool.map(lambda pair: tuple(why_refused(client, job) for job in pair), answers),
            strict=True,
        )
    assert sum(not why for why in alone) > MANY // 2
    print(f"pods refused: {sum(map(bool, adapted))} adapted, {sum(map(bool, alone))} as submitted")
    return [why for why, before in zip(adapted, alone, strict=True) if why and not before]


def why_refused(client, job):
    """Ask for a pod of the Job, as the job controller would."""
    template, where = template_of(job), job["metadata"]["namespace"]
    metadata = {**template["metadata"], "name": "trial", "namespace": where}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        client.create(pod, dry_run=True)
    except ApiError as error:
        return f"{job['metadata']['name']}: {error}"
    return ""


def has_pods(job):
    status = job.get("status", {})
    return has_condition(job, "Complete") or status.get("active", 0) + status.get("succeeded", 0)


def outcome_of(job):
    """Say by which adaptation the Job runs on CPU, or why it does not."""
    decision, kind = decision_of(job), job["metadata"]["labels"][many_jobs.LABEL]
    if decision.get("option") == "cpu":
        assert queue_of(job) == "cpu-lq"
        return kind, "taken"
    refused = next(option for option in decision["options"] if option["name"] == "cpu")
    return kind, refused["rejected"].partition(":")[0]


def left_pinned(job):
    """List what a Job still asks for that it was said to do without."""
    kind = job["metadata"]["labels"][many_jobs.LABEL]
    removes = many_jobs.ADAPTATIONS[kind].get("accelerator") == "Remove"
    if not removes or decision_of(job).get("option") != "cpu":
        return []
    pod = job["spec"]["template"]["spec"]
    text = json.dumps(
        [
            [one["resources"] for one in (*pod["containers"], *pod.get("initContainers", ()))],
            pod.get("nodeSelector"),
            pod.get("tolerations"),
            pod.get("affinity"),
            pod.get("runtimeClassName"),
        ]
    )
    words = ("nvidia", "gke-accelerator", '"sku"')
    return [word for word in words if word in text]


def undone_job(job):
    record = json.loads(job["metadata"]["annotations"][DECISION])["original"]
    return undone(job, original_from_json(record), JOB.allowed)


def template_of(job):
    template = copy.deepcopy(job["spec"]["template"])
    for label in UIDS:
        template["metadata"]["labels"].pop(label, None)
    return template
