"""Two worker clusters, and the leading controller as MultiKueue's dispatcher: three real planes."""

import json
import time
import urllib.request

import pytest

from hack import paper
from hack.controlplane import ControlPlane
from hack.install import WAITED_FOR, Installation
from hack.waiting import WAIT_SECONDS, wait_for
from tests.conftest import FULL
from tests.e2e.decisions import POLICY_API, SLOW, applied_policy, finish_time, limited
from tests.e2e.plane import has_condition, wait_until_complete, workload_of
from tests.e2e.worker_clusters import as_worker, let_read, manager_of, reader_secret
from webhook.model.kueue_support import OWN_DISPATCHER

NAMES = paper.Names()
FIRST, SECOND = "first-worker", "second-worker"
"""In the order of the MultiKueueConfig."""
MANY = "40"
"""GPUs of the manager's quota: nobody waits there."""
GIVEN_UP_SECONDS = 90.0 if FULL else WAIT_SECONDS
"""Well above what makes a cluster's state old, and the least time between two nominations."""
FORECAST_SECONDS = 3.0 if FULL else 8.0
"""What the webhook has seen, the controller has too by then, and has forecast it."""
KUEUE_CONFIG = {"multiKueue": {"dispatcherName": OWN_DISPATCHER}}


@pytest.fixture(scope="module")
def workers(own_plane, tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp(SECOND)) as second:
        yield {FIRST: as_worker(own_plane, NAMES), SECOND: as_worker(second, NAMES)}


@pytest.fixture(scope="module")
def manager(tmp_path_factory, workers):
    folder = tmp_path_factory.mktemp("manager")
    with manager_of(folder, NAMES, workers, gpus=MANY, kueue_config=KUEUE_CONFIG) as started:
        yield started


@pytest.fixture(scope="module")
def installed(manager, workers):
    watched = f"clusters.watchWorkers={{{FIRST},{SECOND}}}"
    values = [*WAITED_FOR, watched, "clusters.dispatcher=true"]
    with Installation(manager, chart_values=values) as found:
        for name, worker in workers.items():
            manager.client.apply(reader_secret(name, let_read(worker)))
        yield found


def by_finish_time():
    policy = finish_time(NAMES, runTime="20s")
    policy["spec"]["options"] = policy["spec"]["options"][:1]
    return policy


@pytest.fixture(scope="module")
def client(manager, installed):
    with applied_policy(manager.client, by_finish_time(), NAMES):
        wait_for(lambda: known_of(manager.client).keys() == {FIRST, SECOND}, "both are seen")
        yield manager.client


def known_of(client):
    """Return the clusters whose queues are known, with how many wait there."""
    job = client.create(paper.light_job("probe", NAMES), dry_run=True)
    decision = json.loads(job["metadata"]["annotations"]["kueue-fallback.dev/decision"])
    clusters = decision["options"][0].get("clusters", ())
    return {each["name"]: each["pending"] for each in clusters if "pending" in each}


def status_of(client, job):
    """Return (nominated clusters, the one that has taken it)."""
    status = (workload_of(client, job) or {}).get("status", {})
    return tuple(status.get("nominatedClusterNames", ())), status.get("clusterName", "")


def occupy(worker, prefix, number, *, seconds=1280):
    """Create Jobs of the worker's own in its GPU queue, which has four GPUs."""
    jobs = [
        limited(paper.heavy_job(f"{prefix}-{each}", NAMES, faster=SLOW), seconds)
        for each in range(number)
    ]
    worker.client.create_all(jobs)


def test_jobs_go_where_they_end_sooner(client, workers, installed):
    first = workers[FIRST]
    occupy(first, "own", 6)
    wait_for(lambda: known_of(client).get(FIRST) == 2, "the first worker is full")
    time.sleep(FORECAST_SECONDS)
    sent = [client.create(paper.light_job(f"sooner-{n}", NAMES, faster=10)) for n in range(4)]
    for job in sent:
        wait_until_complete(client, NAMES.namespace, job["metadata"]["name"])
    taken = [status_of(client, job) for job in sent]
    delete_jobs(first)
    wait_for(lambda: known_of(client).get(FIRST) == 0, "the first worker is free again")
    time.sleep(FORECAST_SECONDS)
    back = client.create(paper.light_job("back", NAMES, faster=10))
    wait_until_complete(client, NAMES.namespace, "back")

    assert taken == [((), SECOND)] * 4
    assert status_of(client, back) == ((), FIRST)


@pytest.fixture
def by_cost(client):
    """Decide by cost, with GPUs that are dearer in the first cluster; else as before."""
    policy = by_finish_time()
    policy["spec"]["strategy"] = {"type": "Cost", "cost": {"runTime": "1h", "timeValue": "0.5"}}
    client.apply_all([tariff(FIRST, "3"), tariff(SECOND, "1"), policy])
    yield
    client.apply(by_finish_time())
    for name in (FIRST, SECOND):
        client.delete(POLICY_API, "Tariff", name)


def tariff(cluster, price):
    rates = [{"flavors": [NAMES.gpu_flavor], "resources": {paper.GPU: price}}]
    return {
        "apiVersion": POLICY_API,
        "kind": "Tariff",
        "metadata": {"name": cluster},
        "spec": {"clusters": [cluster], "rates": rates},
    }


def test_jobs_go_where_they_cost_less(client, by_cost):
    wait_for(lambda: money(client), "the webhook knows what a Job pays")
    wait_for(lambda: all(map(is_ready, tariffs(client))), "the controller has read both Tariffs")
    time.sleep(FORECAST_SECONDS)
    sent = [client.create(paper.light_job(f"cheaper-{n}", NAMES, faster=10)) for n in range(2)]
    for job in sent:
        wait_until_complete(client, NAMES.namespace, job["metadata"]["name"])

    assert [status_of(client, job) for job in sent] == [((), SECOND)] * 2


def money(client):
    """Return what a Job is expected to pay where it would run; None: it is not known."""
    job = client.create(paper.light_job("probe", NAMES), dry_run=True)
    decision = json.loads(job["metadata"]["annotations"]["kueue-fallback.dev/decision"])
    return decision["options"][0].get("cost", {}).get("money")


def tariffs(client):
    return [client.get(POLICY_API, "Tariff", name) for name in (FIRST, SECOND)]


def is_ready(found):
    return has_condition(found, "Ready")


def test_a_dead_cluster_costs_its_time_out_once(client, workers, installed):
    first, second = workers.values()
    occupy(second, "theirs", 6)
    occupy(first, "own", 4, seconds=300)
    wait_for(lambda: known_of(client) == {FIRST: 0, SECOND: 2}, "both are full")
    time.sleep(FORECAST_SECONDS)
    waits = client.create(paper.light_job("waits", NAMES, faster=10))
    wait_for(lambda: status_of(client, waits) == ((FIRST,), ""), "it is to wait in the first")
    before = nominations(installed)

    first.stop("kube-apiserver")
    since = time.monotonic()
    wait_for(
        lambda: status_of(client, waits) == ((FIRST, SECOND), ""),
        "the second is asked, too",
        timeout_seconds=GIVEN_UP_SECONDS,
    )
    took = time.monotonic() - since
    delete_jobs(second)
    wait_until_complete(client, NAMES.namespace, "waits")
    later = [client.create(paper.light_job(f"later-{n}", NAMES, faster=10)) for n in range(4)]
    for job in later:
        wait_until_complete(client, NAMES.namespace, job["metadata"]["name"])
    after = nominations(installed)
    first.start("kube-apiserver")

    assert took < GIVEN_UP_SECONDS
    assert [status_of(client, job) for job in (waits, *later)] == [((), SECOND)] * 5
    grown = {why: after[why] - before[why] for why in after}
    # Those that came later were never sent to the dead one.
    assert grown == {"first": 4, "lost": 1, "late": 0, "better": 0, "all": 0}
    assert sample(installed, "kueue_fallback_unnominated_workloads") == 0


def nominations(installed):
    name = 'kueue_fallback_nominations_total{{why="{}"}}'
    whys = ("first", "better", "late", "lost", "all")
    return {why: sample(installed, name.format(why)) for why in whys}


def sample(installed, name):
    url = f"http://127.0.0.1:{installed.controller_metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.rpartition(" ")[0] == name))


def delete_jobs(worker):
    path = worker.client.path("batch/v1", "Job", namespace=NAMES.namespace)
    worker.client.send("DELETE", path, {"propagationPolicy": "Background"})
