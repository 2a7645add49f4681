"""Services go where they hold their latency, and move while they serve, beside batch Jobs.

Kueue, the Deployment's, the ReplicaSet's and the Job's controllers are real; KWOK's pods are ready
at once.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack import paper
from hack.api import ApiClient, Object
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, decision_of
from tests.e2e.plane import container_of, has_condition, wait_until_complete
from webhook.__main__ import main

OURS = "kueue-fallback.dev/"
NAMESPACE = "serving"
GREEN, DEAR, CHEAP, EMPTY = "green", "dear", "cheap", "empty"
LINUX = {"kubernetes.io/os": "linux"}
NODES = {GREEN: LINUX, DEAR: LINUX, CHEAP: LINUX, EMPTY: {"pool": "of-no-node"}}
"""Queue, and flavor, to the labels of its nodes."""
REPLICAS = 3


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    options = Options(
        controllers=("deployment-controller", "replicaset-controller"),
        kueue_config={"integrations": {"frameworks": ["batch/job", "pod", "deployment"]}},
    )
    with ControlPlane(tmp_path_factory.mktemp("services"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def queues(plane):
    client = plane.client
    with Installation(plane, chart_values=[*PATIENT, "kinds={Job,Deployment}"]):
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name, labels in NODES.items():
            client.apply(paper.resource_flavor(name, node_labels=labels))
            client.apply(paper.cluster_queue(name, flavor=name, quota={"cpu": "12"}))
            client.apply(paper.local_queue(name, NAMESPACE, cluster_queue=name))
        yield


def options(**each: Object) -> list[Object]:
    return [{"name": name, "queue": name, **each} for name in (DEAR, CHEAP, EMPTY, GREEN)]


@contextlib.contextmanager
def applied_policy(client: ApiClient, strategy: Object, **spec: Object) -> Iterator[None]:
    found = {
        "apiVersion": POLICY_API,
        "kind": "FallbackPolicy",
        "metadata": {"name": "services"},
        "spec": {
            "mode": "Enforce",
            "match": {"kinds": ["Deployment"], "jobSelector": {}},
            "strategy": strategy,
            **spec,
        },
    }
    client.apply(found)
    try:
        wait_for(lambda: is_decided(client), "services are decided by it")
        yield
    finally:
        client.delete(POLICY_API, "FallbackPolicy", "services")


@pytest.fixture
def policy(plane, queues):
    """One that sends services to the dear queue, and moves them to others when asked."""
    threshold = [{"option": name, "orPendingBelow": 1000} for name in NODES if name != GREEN]
    threshold.sort(key=lambda each: each["option"] != DEAR)
    wanted = options()
    wanted[1]["adaptation"] = {"env": {"MODE": CHEAP}}
    strategy = {"type": "Threshold", "threshold": threshold}
    with applied_policy(plane.client, strategy, options=wanted):
        yield


@pytest.fixture
def prices(plane, queues):
    """Sets what an hour of a CPU costs in queues; the dear one is the cheapest at first."""
    client = plane.client
    costs = {GREEN: 5, DEAR: 1, CHEAP: 5, EMPTY: 5}

    def set_prices(**changed: float) -> None:
        costs.update(changed)
        client.apply(tariff(costs))

    set_prices()
    rules = {"after": "1s", "horizon": "1h", "readyWithin": "15s", "maxMoves": 10}
    serving = {"requestsPerSecond": 20, "latency": "80ms"}
    with applied_policy(
        client, {"type": "Cost"}, options=options(serving=serving), reconsider=rules
    ):
        yield set_prices
    client.delete(POLICY_API, "Tariff", "here")


@pytest.fixture
def shared(plane, queues):
    """A policy for services and Jobs, whose dearer devices are faster."""
    client = plane.client
    client.apply(tariff({DEAR: 4, GREEN: 2, CHEAP: 1}))
    speeds = {DEAR: ("40", "40ms"), GREEN: ("15", "100ms"), CHEAP: ("10", "300ms")}
    wanted: list[Object] = [
        {
            "name": name,
            "queue": name,
            "serving": {"requestsPerSecond": per_second, "latency": latency},
        }
        for name, (per_second, latency) in speeds.items()
    ]
    match = {"kinds": ["Deployment", "Job"], "jobSelector": {}}
    with applied_policy(client, {"type": "Cost"}, options=wanted, match=match):
        yield
    client.delete(POLICY_API, "Tariff", "here")


def tariff(costs: Mapping[str, float]) -> Object:
    """Return what an hour of a CPU costs, by flavor."""
    rates = [{"flavors": [name], "resources": {"cpu": str(price)}} for name, price in costs.items()]
    return {
        "apiVersion": POLICY_API,
        "kind": "Tariff",
        "metadata": {"name": "here"},
        "spec": {"rates": rates},
    }


def is_decided(client: ApiClient) -> bool:
    decision = decision_of(client.create(service("probe"), dry_run=True))
    return decision is not None and decision["option"] == DEAR


def service(name: str, *, rate: str = "40", target: str = "300ms") -> Object:
    container = {
        "name": "main",
        "image": "serve",
        "env": [{"name": "MODE", "value": "as-submitted"}],
        "resources": {"requests": {"cpu": "1"}},
    }
    pod = {"containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {paper.QUEUE_LABEL: GREEN},
            # Of 40 a second, three replicas that each answer 20 answer 95 % within 189ms.
            "annotations": {f"{OURS}request-rate": rate, f"{OURS}target-latency": target},
        },
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


def now(client: ApiClient, name: str) -> Object:
    return client.get("apps/v1", "Deployment", name, namespace=NAMESPACE)


def pods_in(client: ApiClient, name: str) -> list[tuple[str, bool]]:
    """List the pods of a service that are not ending: their queues, and whether each is ready."""
    pods = client.list("v1", "Pod", namespace=NAMESPACE)
    return sorted(
        (pod["metadata"]["labels"][paper.QUEUE_LABEL], has_condition(pod, "Ready"))
        for pod in pods
        if pod["metadata"]["labels"].get("app") == name
        and "deletionTimestamp" not in pod["metadata"]
    )


def wait_until_in(client: ApiClient, name: str, queue: str) -> None:
    wanted = [(queue, True)] * REPLICAS
    wait_for(
        lambda: pods_in(client, name) == wanted,
        lambda: f"all of {pods_in(client, name)} are in {queue}",
    )


@contextlib.contextmanager
def readiness(client: ApiClient, name: str) -> Iterator[list[int]]:
    """Collect how many pods of a service are ready after each event from now on."""
    ready: dict[str, bool] = {}
    counts: list[int] = []

    def read(events: Iterator[Object]) -> None:
        for event in events:
            pod = event["object"]
            is_ending = event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]
            ready[pod["metadata"]["name"]] = has_condition(pod, "Ready") and not is_ending
            counts.append(sum(ready.values()))

    with client.watching("v1", "Pod", selector=f"app={name}") as events:
        thread = threading.Thread(target=read, args=(events,))
        thread.start()
        wait_for(lambda: REPLICAS in counts, "all pods are watched")
        counts.clear()
        yield counts
    thread.join()


def applied(plane: ControlPlane, folder: Path, wanted: Object) -> None:
    manifest = folder / "service.json"
    manifest.write_text(json.dumps(wanted))
    told = plane.kubectl("apply", "-f", str(manifest))
    assert told.returncode == 0, told.stderr


def test_a_service_is_moved_and_undone_while_it_serves(plane, policy, tmp_path):
    client = plane.client
    applied(plane, tmp_path, service("web"))
    wait_until_in(client, "web", DEAR)
    place = ["-n", NAMESPACE, "--kubeconfig", str(plane.kubeconfig)]

    with readiness(client, "web") as counts:
        result = CliRunner().invoke(main, ["move", "deployment/web", "--to", CHEAP, *place])
        wait_until_in(client, "web", CHEAP)
        # Kueue writes the queue of the Deployment's own label over that of the pods.
        applied(plane, tmp_path, service("web"))
        moved = now(client, "web")
    assert result.exit_code == 0, result.output
    assert "Deployment serving/web is in LocalQueue cheap (cheap)." in result.output
    assert min(counts) == REPLICAS
    # Kueue keeps that label while a pod is ready.
    assert queues_of(moved) == (DEAR, CHEAP)
    assert container_of(moved)["env"] == [{"name": "MODE", "value": CHEAP}]
    assert moved["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}

    result = CliRunner().invoke(main, ["undo", "deployment/web", *place])
    wait_until_in(client, "web", GREEN)
    applied(plane, tmp_path, service("web"))

    assert result.exit_code == 0, result.output
    assert "as it was submitted, in LocalQueue green." in result.output
    undone = now(client, "web")
    assert (queues_of(undone), decision_of(undone)) == ((DEAR, GREEN), None)
    assert undone["spec"]["strategy"] == {
        "type": "RollingUpdate",
        **service("web")["spec"]["strategy"],
    }
    assert container_of(undone)["env"] == container_of(service("web"))["env"]


def queues_of(item: Object) -> tuple[str, str]:
    """Return the queue on the Deployment and that on its pod template."""
    template = item["spec"]["template"]
    return tuple(each["metadata"]["labels"][paper.QUEUE_LABEL] for each in (item, template))


def test_a_service_follows_the_price_and_is_put_back_where_its_pods_do_not_get_ready(plane, prices):
    client = plane.client
    client.create(service("priced"))
    wait_until_in(client, "priced", DEAR)

    with readiness(client, "priced") as counts:
        prices(cheap=0.2)
        wait_until_in(client, "priced", CHEAP)
        moved = decision_of(now(client, "priced"))
        prices(empty=0.01)
        wait_for(lambda: option_of(client) == EMPTY, "it is moved there")
        wait_for(lambda: option_of(client) == CHEAP, "it is put back")
        wait_until_in(client, "priced", CHEAP)
        put_back = decision_of(now(client, "priced"))
        # The empty queue costs less still, and is not tried again.
        prices(dear=0.1)
        wait_until_in(client, "priced", DEAR)
    assert min(counts) == REPLICAS
    assert moved["reason"] == "moved to cheap (cheap): costs 2.4 less in 1h"
    assert put_back["reason"] == PUT_BACK
    decision = decision_of(now(client, "priced"))
    assert [stay["option"] for stay in decision["history"]] == [DEAR, CHEAP, EMPTY, CHEAP, DEAR]
    events = client.list("v1", "Event", namespace=NAMESPACE)
    assert PUT_BACK in [each["message"] for each in events if each["reason"] == "Moved"]


PUT_BACK = "moved to cheap (cheap): put back, as new pods were not ready in 15s"


def option_of(client: ApiClient) -> str:
    return decision_of(now(client, "priced"))["option"]


TARGETS = {DEAR: "80ms", GREEN: "200ms", CHEAP: "600ms"}
"""Where a service is to be, to its target latency."""
TOO_SLOW = {
    (DEAR, GREEN): "latencyNotMet: a request takes 100ms there, and its target-latency is 80ms",
    (DEAR, CHEAP): "latencyNotMet: a request takes 300ms there, and its target-latency is 80ms",
    (GREEN, CHEAP): "latencyNotMet: a request takes 300ms there, and its target-latency is 200ms",
}


def batch_job(name: str, place: str) -> Object:
    """Return a Job that runs for a second, and allows one option alone."""
    container = {"name": "main", "image": "batch", "resources": {"requests": {"cpu": "1"}}}
    labels = {paper.QUEUE_LABEL: GREEN}
    job = paper.job(name, NAMESPACE, labels=labels, run={"cpu-run": 1}, container=container)
    job["metadata"]["annotations"] = {f"{OURS}allow": place}
    return job


def test_services_hold_their_latencies_at_the_least_cost_beside_thirty_jobs(plane, shared):
    client = plane.client
    found = {}
    for place, target in TARGETS.items():
        decision = decision_of(client.create(service(f"in-{place}", rate="20", target=target)))
        found |= {(place, each["name"]): each.get("rejected") for each in decision["options"]}
        assert decision["option"] == place
    assert {key: found[key] for key in TOO_SLOW} == TOO_SLOW
    for place in TARGETS:
        wait_until_in(client, f"in-{place}", place)

    with contextlib.ExitStack() as stack:
        counts = [stack.enter_context(readiness(client, f"in-{place}")) for place in TARGETS]
        jobs = {f"job-{number}": [DEAR, GREEN, CHEAP][number % 3] for number in range(30)}
        made = {name: client.create(batch_job(name, place)) for name, place in jobs.items()}
        for name in jobs:
            wait_until_complete(client, NAMESPACE, name)
    assert {name: decision_of(job)["option"] for name, job in made.items()} == jobs
    # Jobs share the queues, and no replica of a service gives way to them.
    assert set().union(*counts) <= {REPLICAS}
    for place in TARGETS:
        assert pods_in(client, f"in-{place}") == [(place, True)] * REPLICAS
