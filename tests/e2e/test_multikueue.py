"""GPUs on two worker clusters behind MultiKueue, whose queues the webhook and its dispatcher see.

Three real planes: the leading controller on the manager is MultiKueue's dispatcher.
"""

import contextlib
import os
import signal
import urllib.request

import pytest

from hack import multikueue, paper
from hack.controlplane import ControlPlane
from hack.install import PATIENT, WAITED_FOR, Installation
from hack.waiting import wait_for
from tests.e2e import two_clusters
from tests.e2e.decisions import (
    OPTION,
    POLICY_API,
    SLOW,
    applied_policy,
    decision_of,
    finish_time,
    limited,
    metric,
    options,
    probe,
)
from tests.e2e.plane import has_condition, wait_until_complete, workload_of
from tests.e2e.worker_clusters import (
    arrived,
    as_worker,
    delete_account,
    let_read,
    manager_of,
    processes_of_the_project,
    reader_secret,
    times_watched_anew,
)
from webhook.model.kueue_support import OWN_DISPATCHER

NAMES = paper.Names()
FIRST, SECOND = "first-worker", "second-worker"
"""In the order of the MultiKueueConfig."""
ROLES = {FIRST: "holding", SECOND: "near"}
MANY = "100"
"""GPUs of the manager's quota: nobody waits there."""
SILENT_SECONDS = 30
"""Without a leading controller, until the servers ask all clusters."""
KUEUE_CONFIG = {"multiKueue": {"dispatcherName": OWN_DISPATCHER}}
ADDED = {f"kueue.x-k8s.io/{name}" for name in ("multikueue-origin", "prebuilt-workload-name")}
OF_THE_CLUSTER = ("managedBy", "selector", "suspend", "template")
"""Of a Job's spec, what is set in each cluster; the template is looked at apart."""


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
    silent = f"settings.dispatcher_timeout={SILENT_SECONDS}"
    values = [*WAITED_FOR, watched, "clusters.dispatcher=true", silent]
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


@pytest.fixture(autouse=True)
def no_jobs_left(manager, workers):
    yield
    for plane in (manager, *workers.values()):
        delete_jobs(plane)


def delete_jobs(plane):
    path = plane.client.path("batch/v1", "Job", namespace=NAMES.namespace)
    plane.client.send("DELETE", path, {"propagationPolicy": "Background"})
    wait_for(
        lambda: not plane.client.list("batch/v1", "Job", namespace=NAMES.namespace), "all are gone"
    )


def seen(client):
    """Return what the webhook knows of the clusters behind the GPU option, by their names."""
    found = options(probe(client, NAMES))["gpu"].get("clusters", ())
    return {each["name"]: each for each in found}


def known_of(client):
    """Return the clusters whose queues are known, with how many wait there."""
    return {name: each["pending"] for name, each in seen(client).items() if "pending" in each}


def status_of(client, job):
    """Return (nominated clusters, the one that has taken it)."""
    status = (workload_of(client, job) or {}).get("status", {})
    return tuple(status.get("nominatedClusterNames", ())), status.get("clusterName", "")


def ran_in(client, name):
    """Create a short Job, and return the cluster in which it has run."""
    job = client.create(paper.light_job(name, NAMES, faster=10))
    wait_until_complete(client, NAMES.namespace, name)
    return status_of(client, job)[1]


def wait_until_sent_to(client, cluster, prefix):
    """Create Jobs until one runs there: the controller has then seen what is better there."""
    names = (f"{prefix}-{number}" for number in range(100))
    wait_for(lambda: ran_in(client, next(names)) == cluster, f"Jobs run in {cluster}")


def occupy(worker, prefix, number, *, seconds=1280):
    """Create Jobs of the worker's own in its GPU queue, which has four GPUs."""
    jobs = [
        limited(paper.heavy_job(f"{prefix}-{each}", NAMES, faster=SLOW), seconds)
        for each in range(number)
    ]
    worker.client.create_all(jobs)


def test_a_job_arrives_on_the_worker_as_multikueue_sent_it_and_runs_there(client, workers):
    first = workers[FIRST]
    first.client.apply_all(paper.queues(NAMES))
    with (
        Installation(first, chart_values=PATIENT),
        applied_policy(first.client, always_cpu(), NAMES),
    ):
        submitted_there = probe(first.client, NAMES)
        sent = client.create(paper.light_job("sent", NAMES, faster=10))
        found = wait_for(lambda: arrived(first, NAMES.namespace, "sent"), "MultiKueue brings it")
        done = wait_until_complete(client, NAMES.namespace, "sent")

    assert submitted_there["option"] == "cpu"
    assert as_sent(found["metadata"]["annotations"]) == sent["metadata"]["annotations"]
    assert as_sent(found["metadata"]["labels"]) == sent["metadata"]["labels"]
    assert without_controllers(found) == without_controllers(sent)
    assert own(found["spec"]) == own(sent["spec"])
    assert done["spec"]["managedBy"] == multikueue.CONTROLLER
    assert done["metadata"]["labels"][OPTION] == "gpu"
    assert options(decision_of(done))["gpu"]["fits"]


def always_cpu():
    """Make a policy that matches the same Jobs, and changes each of them."""
    policy = paper.policy(NAMES)
    policy["spec"]["strategy"]["threshold"] = [{"option": "cpu", "orPendingBelow": 1_000_000}]
    return policy


def own(spec):
    return {name: value for name, value in spec.items() if name not in OF_THE_CLUSTER}


def as_sent(texts):
    """Leave out by what MultiKueue knows its own."""
    return {name: text for name, text in texts.items() if name not in ADDED}


def without_controllers(job):
    """Return the pod template as it was before anything but admission saw it.

    Leaves out the labels that the API server gives each Job's pods, and what Kueue adds when it
    starts it, which may have been before it was looked at.
    """
    template = job["spec"]["template"]
    pod = {name: value for name, value in template["spec"].items() if name != "nodeSelector"}
    metadata = {
        field: {
            name: text
            for name, text in template["metadata"].get(field, {}).items()
            if not name.startswith("kueue.x-k8s.io/") and not name.endswith(("-uid", "job-name"))
        }
        for field in ("labels", "annotations")
    }
    return {"metadata": {**template["metadata"], **metadata}, "spec": pod}


def test_jobs_go_where_they_end_sooner(client, workers):
    first = workers[FIRST]
    occupy(first, "own", 6)
    wait_for(lambda: known_of(client).get(FIRST) == 2, "the first worker is full")
    wait_until_sent_to(client, SECOND, "leaves")
    sent = [client.create(paper.light_job(f"sooner-{n}", NAMES, faster=10)) for n in range(4)]
    for job in sent:
        wait_until_complete(client, NAMES.namespace, job["metadata"]["name"])
    taken = [status_of(client, job) for job in sent]
    delete_jobs(first)
    wait_until_sent_to(client, FIRST, "returns")

    assert taken == [((), SECOND)] * 4


def test_a_job_that_waits_in_a_worker_goes_to_another_where_room_has_come(client, workers):
    for worker in workers.values():
        occupy(worker, "own", 5)
    wait_for(lambda: known_of(client) == {FIRST: 1, SECOND: 1}, "both workers are full")
    job = client.create(paper.light_job("waits", NAMES, faster=10))
    wait_for(lambda: status_of(client, job) == ((FIRST,), ""), "it waits in the first")

    delete_jobs(workers[SECOND])
    wait_until_complete(client, NAMES.namespace, "waits")

    assert status_of(client, job) == ((), SECOND)
    (told,) = (
        event["message"]
        for event in client.list("v1", "Event", namespace=NAMES.namespace)
        if event["reason"] == "ClusterAsked" and event["involvedObject"]["name"] == "waits"
    )
    # By what is learned of runs until then it is better, or late where it waits.
    assert told.startswith(f"asks {SECOND}: ")


@pytest.fixture
def by_cost(client):
    """Decide by cost, with GPUs that are dearer in the first cluster, which holds data; else as
    before."""
    policy = by_finish_time()
    policy["spec"]["strategy"] = {"type": "Cost", "cost": two_clusters.COST}
    tariffs = [two_clusters.tariff(name, role, NAMES.gpu_flavor) for name, role in ROLES.items()]
    client.apply_all([*tariffs, policy])
    wait_for(
        lambda: all(
            has_condition(client.get(POLICY_API, "Tariff", name), "Ready")
            for name in (FIRST, SECOND)
        ),
        "the controller has read both Tariffs",
    )
    yield
    client.apply(by_finish_time())
    for name in (FIRST, SECOND):
        client.delete(POLICY_API, "Tariff", name)


def test_jobs_go_where_they_cost_less(client, by_cost):
    wait_until_sent_to(client, SECOND, "cheaper")


def test_sixty_jobs_by_cost_end_though_a_cluster_freezes_and_no_controller_leads(
    client, manager, workers, installed, by_cost
):
    turns = [two_clusters.TURNS[number % 3] for number in range(40)]
    sent = []
    for number, kind in enumerate(turns):
        wait_for(lambda: unfinished(client) < 10, "few wait, however slow the machine is")
        sent.append(client.create(two_clusters.job(number, NAMES, kind=kind)))
    wait_for(lambda: not unfinished(client), "forty end where they cost less")
    ran = [status_of(client, job)[1] or asked_for(manager, job) for job in sent]
    costs = [
        two_clusters.cost_of(kind, ROLES[cluster]) for kind, cluster in zip(turns, ran, strict=True)
    ]

    more = [two_clusters.job(number, NAMES, kind="trains") for number in range(100, 120)]
    late = client.create_all(more)
    wait_for(lambda: waiting_for(client, late, (SECOND,)), "some wait for the second")
    with frozen(workers[SECOND]):
        manager.kill("controller")
        stuck = waiting_for(client, late, (SECOND,))
        wait_for(
            lambda: not waiting_for(client, stuck, (SECOND,)), "the server asks the first, too"
        )
        silent_seconds = metric(installed, "kueue_fallback_leaderless_seconds")
        manager.start("controller")
    wait_for(lambda: not unfinished(client), "all end")
    wait_until_sent_to(client, SECOND, "led")

    assert {*ran} == {FIRST, SECOND}
    assert sum(costs) == pytest.approx(two_clusters.simulated_cost(40, gpus=4), rel=0.15)
    assert stuck
    assert silent_seconds >= SILENT_SECONDS
    assert {job["metadata"]["name"] for job in (*sent, *late)} <= {
        job["metadata"]["name"] for job in all_jobs(client)
    }
    assert nominations(installed)["first"] > 0


def all_jobs(client):
    return client.list("batch/v1", "Job", namespace=NAMES.namespace)


def asked_for(manager, job):
    """Return the cluster asked for a Job: Kueue may not write which one took what ended at once."""
    lines = manager.processes.log("controller").read_text().splitlines()
    start = f"Workload {NAMES.namespace}/job-{job['metadata']['name']}-"
    (asked,) = (line.partition(": asks ")[2] for line in lines if start in line)
    return asked.partition(":")[0]


def unfinished(client):
    return sum(not has_condition(job, "Complete") for job in all_jobs(client))


def waiting_for(client, jobs, clusters):
    """Return those of the Jobs that no cluster has taken, and for which these are nominated."""
    return [job for job in jobs if status_of(client, job) == (clusters, "")]


@contextlib.contextmanager
def frozen(plane):
    """Stop the API server of a cluster, which answers nothing then, and let it go on."""
    pid = plane.processes.pid("kube-apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_dead_cluster_costs_its_time_out_once_and_no_job_is_sent_there(
    client, manager, workers, installed
):
    first, second = workers.values()
    processes = processes_of_the_project(manager)
    occupy(second, "theirs", 6)
    wait_for(lambda: known_of(client) == {FIRST: 0, SECOND: 2}, "the second is full")
    occupy(first, "own", 4, seconds=300)
    wait_for(lambda: not seen(client)[FIRST]["fits"], "so is the first")
    # Not later: what is written is seen before it is counted.
    before = nominations(installed)
    waits = client.create(paper.light_job("waits", NAMES, faster=10))
    wait_for(lambda: status_of(client, waits) == ((FIRST,), ""), "it is to wait in the first")

    first.stop("kube-apiserver")
    both = ((FIRST, SECOND), "")
    wait_for(lambda: status_of(client, waits) == both, "the second is asked, too")
    delete_jobs(second)
    wait_until_complete(client, NAMES.namespace, "waits")
    later = [client.create(paper.light_job(f"later-{n}", NAMES, faster=10)) for n in range(4)]
    for job in later:
        wait_until_complete(client, NAMES.namespace, job["metadata"]["name"])
    after = nominations(installed)
    first.start("kube-apiserver")
    wait_for(lambda: "rejected" not in seen(client)[FIRST], "the first is seen again")

    assert [status_of(client, job) for job in (waits, *later)] == [((), SECOND)] * 5
    assert all(decision_of(job) for job in (waits, *later))
    grown = {why: after[why] - before[why] for why in after}
    # Those that came later were never sent to the dead one.
    assert grown == {"first": 5, "lost": 1, "late": 0, "better": 0, "all": 0}
    assert sample(installed, "kueue_fallback_unnominated_workloads") == 0
    assert metric(installed, "kueue_fallback_failures_total") == 0
    assert processes_of_the_project(manager) == processes


def nominations(installed):
    name = 'kueue_fallback_nominations_total{{why="{}"}}'
    whys = ("first", "better", "late", "lost", "all")
    return {why: sample(installed, name.format(why)) for why in whys}


def sample(installed, name):
    url = f"http://127.0.0.1:{installed.controller_metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.rpartition(" ")[0] == name))


def test_another_kubeconfig_of_a_worker_is_taken_up(client, manager, workers):
    first, processes = workers[FIRST], processes_of_the_project(manager)
    times = times_watched_anew(manager, FIRST)
    client.apply(reader_secret(FIRST, let_read(first)))
    wait_for(lambda: times_watched_anew(manager, FIRST) > times, "a token beside the other is used")
    beside = seen(client)[FIRST].get("rejected")
    delete_account(first)
    refused = wait_for(lambda: seen(client)[FIRST].get("rejected"), "its token is void")
    client.apply(reader_secret(FIRST, let_read(first)))
    wait_for(lambda: "rejected" not in seen(client)[FIRST], "the new one is used")

    assert beside is None
    assert refused.startswith("stale: its queues were last seen ")
    assert processes_of_the_project(manager) == processes
