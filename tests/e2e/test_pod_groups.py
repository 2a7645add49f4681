"""Groups of pods through three replicas on the real API server and Kueue: one decision a group."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack import paper
from hack.api import ApiError
from hack.controlplane import ControlPlane, Options
from hack.install import NAMESPACE, Installation
from hack.kwok import GPU
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, decision_of, fill, queue_of
from tests.e2e.lives import end, env_of, gpus_of, has_started
from tests.e2e.plane import has_condition

GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
CLAIMS = "kueue-fallback-pod-groups"
SIZE = 8
REMEMBERED_SECONDS = 31
"""For half a minute after it was made, replicas follow a claim without asking."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    config = {"integrations": {"frameworks": ["batch/job", "pod"]}}
    options = Options(kueue_config=config)
    with ControlPlane(tmp_path_factory.mktemp("groups"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def webhook(plane):
    values = [
        *("kinds={Job,Pod}", "podGroups.enabled=true"),
        *("webhook.timeoutSeconds=20", "settings.max_state_age=120"),
    ]
    with Installation(plane, replicas=3, chart_values=values) as installed:
        yield installed


@pytest.fixture(scope="module")
def names(plane, webhook):
    """A namespace with a long GPU queue, and a policy for light pods and Jobs."""
    client = plane.client
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "groups"}})
    names = paper.names_with("groups", namespace="groups")
    client.apply_all(paper.queues(names))
    policy = paper.policy(names)
    policy["spec"]["match"]["kinds"] = ["Job", "Pod"]
    with applied_policy(client, policy, names):
        fill(plane, names, gpu=14)
        yield names


def pod(name, names, *, group=None, labels=paper.LIGHT):
    job = paper.gpu_job(name, names, labels=labels, run={})
    spec = job["spec"]["template"]["spec"]
    spec["containers"][0]["resources"]["requests"] |= {"cpu": "1", "memory": "1Gi"}
    metadata = job["metadata"]
    if group:
        metadata["labels"][GROUP] = group
        metadata["annotations"] = {TOTAL: str(SIZE)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def members(group, names, *numbers):
    return [pod(f"{group}-{number}", names, group=group) for number in numbers]


def created_at_once(client, objects):
    with ThreadPoolExecutor(len(objects)) as threads:
        return list(threads.map(lambda each: until_created(client, each), objects))


def admitted_group(client, names, group):
    def admitted():
        workload = workload_named(client, names, group)
        return workload if workload and has_condition(workload, "Admitted") else None

    return wait_for(admitted, f"Kueue admits group {group}")


def workload_named(client, names, group):
    found = client.list(paper.KUEUE, "Workload", namespace=names.namespace)
    return next((each for each in found if each["metadata"]["name"] == group), None)


def deleted(client, names, group):
    """Delete a group; Kueue lets go of pods that had quota only with their Workload."""
    for number in range(SIZE + 1):
        client.delete("v1", "Pod", f"{group}-{number}", namespace=names.namespace)
    client.delete(paper.KUEUE, "Workload", group, namespace=names.namespace)
    wait_for(
        lambda: (
            not [p for p in client.list("v1", "Pod", namespace=names.namespace) if is_of(p, group)]
        ),
        f"the pods of {group} are gone",
    )


def is_of(found, group):
    return found["metadata"].get("labels", {}).get(GROUP) == group


def claims(client):
    return client.get("v1", "ConfigMap", CLAIMS, namespace=NAMESPACE).get("data") or {}


@pytest.fixture(scope="module")
def gone(plane, names):
    """The claim of a group that was created, admitted and deleted, and of which no pod is left."""
    client = plane.client
    created_at_once(client, members("again", names, *range(SIZE)))
    admitted_group(client, names, "again")
    deleted(client, names, "again")
    return json.loads(claims(client)["groups.again"])


def test_a_group_of_eight_through_three_replicas_at_once_is_one_decision(plane, names, gone):
    client = plane.client

    pods = created_at_once(client, members("eight", names, *range(SIZE)))

    assert {queue_of(each) for each in pods} == {names.cpu_queue}
    assert {decision_of(each)["option"] for each in pods} == {"cpu"}
    assert GPU not in json.dumps([each["spec"] for each in pods])
    workload = admitted_group(client, names, "eight")
    assert workload["spec"]["queueName"] == names.cpu_queue
    assert [each["count"] for each in workload["spec"]["podSets"]] == [SIZE]
    assert workload["status"]["admission"]["clusterQueue"] == names.cpu_cluster_queue
    assert list(claims(client)) == ["groups.again", "groups.eight"]

    running = wait_for(lambda: running_pods(client, names, "eight"), "all its pods run")
    assert (gpus_of(running), set(env_of(running, "RUN_ENV"))) == ([], {"cpu"})
    for _ in range(3):
        apply(plane, members("eight", names, *range(SIZE)))
    again = running_pods(client, names, "eight")
    assert [each["spec"] for each in again] == [each["spec"] for each in running]
    assert [decision_of(each) for each in again] == [decision_of(each) for each in running]

    end(client, running)
    wait_for(lambda: has_condition(workload_named(client, names, "eight"), "Finished"), "it ends")
    deleted(client, names, "eight")


def running_pods(client, names, group):
    """Return the pods of a group once all of them run."""
    found = [p for p in client.list("v1", "Pod", namespace=names.namespace) if is_of(p, group)]
    return found if len(found) == SIZE and all(map(has_started, found)) else None


def apply(plane, objects):
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    applied = plane.kubectl("apply", "-f", "-", given=given)
    assert applied.returncode == 0, applied.stderr


def test_a_heavy_group_stays_whole_where_it_was_submitted(plane, names):
    client = plane.client
    heavy = [
        pod(f"heavy-{number}", names, group="heavy", labels=paper.HEAVY) for number in range(SIZE)
    ]

    pods = created_at_once(client, heavy)

    assert {queue_of(each) for each in pods} == {names.gpu_queue}
    assert all(decision_of(each) is None for each in pods)
    deleted(client, names, "heavy")


def test_half_a_group_follows_once_the_webhook_is_there_again(plane, webhook, names):
    client = plane.client
    first = created_at_once(client, members("half", names, *range(4)))
    assert {queue_of(each) for each in first} == {names.cpu_queue}

    for number in range(3):
        webhook.kill(number)
    try:
        for rest in members("half", names, *range(4, SIZE)):
            with pytest.raises(ApiError, match=r"groups\.kueue-fallback\.dev"):
                client.create(rest)
        # Nobody else is held up.
        alone = client.create(pod("alone", names))
        assert (queue_of(alone), decision_of(alone)) == (names.gpu_queue, None)
    finally:
        for number in range(3):
            webhook.start(number)
    queues = {
        queue_of(each)
        for each in client.list("v1", "Pod", namespace=names.namespace)
        if is_of(each, "half")
    }
    assert queues == {names.cpu_queue}

    rest = [until_created(client, each) for each in members("half", names, *range(4, SIZE))]

    assert {queue_of(each) for each in rest} == {names.cpu_queue}
    workload = admitted_group(client, names, "half")
    assert workload["status"]["admission"]["clusterQueue"] == names.cpu_cluster_queue
    deleted(client, names, "half")
    client.delete("v1", "Pod", "alone", namespace=names.namespace)


def until_created(client, wanted):
    def created():
        try:
            return client.create(wanted)
        except ApiError:
            return None

    return wait_for(created, f"{wanted['metadata']['name']} is created")


def test_one_replica_killed_amid_a_group_splits_nothing(plane, webhook, names):
    client = plane.client
    with ThreadPoolExecutor(SIZE) as threads:
        pods = [
            threads.submit(until_created, client, each)
            for each in members("amid", names, *range(SIZE))
        ]
        webhook.kill(0)
        found = [each.result() for each in pods]
    webhook.start(0)

    assert len({queue_of(each) for each in found}) == 1
    admitted = admitted_group(client, names, "amid")
    assert admitted["spec"]["queueName"] == queue_of(found[0])
    deleted(client, names, "amid")


def test_a_pod_that_replaces_another_follows_its_running_group(plane, names):
    client = plane.client
    created_at_once(client, members("replaced", names, *range(SIZE)))
    admitted_group(client, names, "replaced")
    data = {
        "groups.replaced": json.dumps({**json.loads(claims(client)["groups.replaced"]), "unix": 1})
    }
    client.patch("v1", "ConfigMap", CLAIMS, {"data": data}, namespace=NAMESPACE)
    client.delete("v1", "Pod", "replaced-0", namespace=names.namespace)

    new = until_created(client, members("replaced", names, SIZE)[0])

    assert queue_of(new) == names.cpu_queue
    deleted(client, names, "replaced")


def test_a_group_that_is_created_anew_is_decided_anew(plane, names, gone):
    client = plane.client
    assert gone["option"] == "cpu"
    # As if it had been an hour ago, once no replica remembers it: it counts for half a minute,
    # which the tests above take, too.
    time.sleep(max(0.0, gone["unix"] + REMEMBERED_SECONDS - time.time()))
    old = json.dumps({**gone, "unix": gone["unix"] - 3600})
    change = {"data": {"groups.again": old}}
    client.patch("v1", "ConfigMap", CLAIMS, change, namespace=NAMESPACE)

    pods = created_at_once(
        client,
        [pod(f"again-{n}", names, group="again", labels=paper.HEAVY) for n in range(SIZE)],
    )

    assert {queue_of(each) for each in pods} == {names.gpu_queue}
    deleted(client, names, "again")
