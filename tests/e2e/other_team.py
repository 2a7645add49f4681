"""Another team beside the paper's queues: its LocalQueue, and Jobs whose run times are said."""

import contextlib
from collections.abc import Iterator, Mapping

from hack import paper
from hack.api import ApiClient, Object
from hack.waiting import wait_for
from tests.e2e import courses
from tests.e2e.decisions import SLOW, finish_time, options, probe
from tests.e2e.plane import has_condition

QUEUE = "other-lq"
LABELS = {"team": "other"}
GPUS = 4


@contextlib.contextmanager
def applied(client: ApiClient, *items: Object) -> Iterator[None]:
    """Apply objects; delete them in the end."""
    client.apply_all(items)
    try:
        yield
    finally:
        client.delete_all(items)


@contextlib.contextmanager
def with_its_queue(
    client: ApiClient, names: paper.Names, cluster_queue: str, *, run_time: str = "60s"
) -> Iterator[None]:
    """Give it a LocalQueue, and a policy that says how long its Jobs run."""
    local = paper.local_queue(QUEUE, names.namespace, cluster_queue=cluster_queue)
    with applied(client, local, _policy(names, run_time)):
        yield


@contextlib.contextmanager
def borrowing(
    client: ApiClient, names: paper.Names, *, preemption: Mapping[str, str], run_time: str = "60s"
) -> Iterator[None]:
    """Put its queue, which has no quota, into a cohort with the paper's, which may preempt so."""
    other = gpu_queue(names, f"other-cq-{names.namespace}", gpus=0, cohortName=names.namespace)
    own = gpu_queue(
        names, names.gpu_cluster_queue, cohortName=names.namespace, preemption=dict(preemption)
    )
    client.apply(own)
    with (
        applied(client, other),
        with_its_queue(client, names, other["metadata"]["name"], run_time=run_time),
    ):
        yield


def gpu_queue(names: paper.Names, name: str, *, gpus: int = GPUS, **spec: object) -> Object:
    """Return a ClusterQueue of the paper's GPUs, or without quota for any."""
    quota = {"cpu": "1000", "memory": "4000Gi"} if gpus else {"cpu": "0", "memory": "0"}
    found = paper.cluster_queue(
        name, flavor=names.gpu_flavor, quota={**quota, paper.GPU: str(gpus)}
    )
    found["spec"] |= spec
    return found


def take_all(client: ApiClient, names: paper.Names, jobs: int) -> None:
    """Create Jobs of its own that use all quota; return when the webhook sees that none is free."""
    created = [_job(f"other-{number}", names) for number in range(jobs)]
    client.create_all(created)
    known = {job["metadata"]["name"] for job in created}
    wait_for(lambda: len(reserving(client, names)) == GPUS, "all quota is used")
    wait_for(lambda: known <= set(courses.workloads(client, names.namespace)), "all others wait")
    wait_for(lambda: not options(probe(client, names) or {})["gpu"]["fits"], "the webhook sees it")


def reserving(client: ApiClient, names: paper.Names) -> set[str]:
    """Name the Jobs that have quota."""
    found = courses.workloads(client, names.namespace)
    return {name for name, each in found.items() if has_condition(each, "QuotaReserved")}


def end_one(client: ApiClient, names: paper.Names) -> None:
    """Delete a Job that has quota."""
    ended = min(reserving(client, names))
    client.delete("batch/v1", "Job", ended, namespace=names.namespace)


def _policy(names: paper.Names, run_time: str) -> Object:
    found = finish_time(names, runTime=run_time)
    found["metadata"]["name"] = f"other-{names.namespace}"
    found["spec"]["match"]["jobSelector"] = {"matchLabels": dict(LABELS)}
    found["spec"]["options"] = [{"name": "gpu", "queue": QUEUE}]
    return found


def _job(name: str, names: paper.Names) -> Object:
    run = {"gpu-run": paper.LIGHT_SECONDS / SLOW}
    job = paper.gpu_job(name, names, labels=LABELS, run=run)
    job["metadata"]["labels"][paper.QUEUE_LABEL] = QUEUE
    return job
