"""Reviews of what serves: every Workload of it takes a place, until it is seen."""

from dataclasses import replace

import pytest

from tests import builders
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from tests.state.objects import workload
from webhook.flow.ledger import MOST_UNSEEN
from webhook.jobs import BY_NAME
from webhook.model.queues import KueueConfig, Preemption
from webhook.state.snapshot import updated
from webhook.state.workload import SeenWorkload, read_workload

SERVING = ("Deployment", "StatefulSet", "LeaderWorkerSet")
QUEUE = "kueue.x-k8s.io/queue-name"


def server(*options, preemption=None):
    shown = paper_snapshot()
    if preemption is not None:
        queues = {
            name: replace(queue, preemption=preemption)
            for name, queue in shown.setup.cluster_queues.items()
        }
        shown = updated(shown, cluster_queues=queues)
    policy = builders.policy(
        *options,
        match={"kinds": [*SERVING, "Job"], "jobSelector": {}},
        threshold=builders.PAPER_THRESHOLD,
    )
    frameworks = ("batch/job", *(BY_NAME[name].framework for name in SERVING))
    return Server(
        updated(shown, policies=(policy,), kueue=KueueConfig(frameworks=frameworks)), now=100.0
    )


def create(server, name, *, kind="Deployment", replicas=1, requests=None):
    known = BY_NAME[kind]
    job = light_job(name)
    pods = job["spec"]["template"]
    if requests is not None:
        pods["spec"]["containers"][0]["resources"] = {"requests": requests}
    spec = {"replicas": replicas, "template": pods}
    if kind == "LeaderWorkerSet":
        spec = {"replicas": replicas, "leaderWorkerTemplate": {"workerTemplate": pods}}
    served = {**job, "apiVersion": known.api_version, "kind": kind, "spec": spec}
    named = {"group": known.group, "version": known.version, "kind": kind}
    created, _ = server.create(served, kind=named)
    return created["metadata"]["labels"][QUEUE]


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("Deployment", ["gpu-lq"]),
        ("LeaderWorkerSet", ["gpu-lq"]),
        ("StatefulSet", ["cpu-lq"]),
    ],
)
def test_each_workload_of_it_counts_for_those_that_come_next(kind, others):
    shown = server()
    first = create(shown, "first", kind=kind, replicas=3)

    assert [first, create(shown, "next")] == ["cpu-lq", *others]


def test_a_statefulset_gives_its_place_up_when_its_workload_is_seen():
    shown = server()
    create(shown, "web", kind="StatefulSet")
    before = shown.handler.placements()
    source = workload("statefulset-web-1", job="")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
    source["metadata"]["ownerReferences"] = [owner]
    owned = read_workload(source)

    shown.show(paper_snapshot(), seen=[SeenWorkload(key=f"job:{owned.namespace}/{owned.job}")])

    assert (before, shown.handler.placements()) == (1, 0)


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet"])
def test_more_replicas_than_anybody_could_run_count_as_few_and_keep_nobody_waiting(kind):
    # Where Kueue may preempt, each Workload that would start is remembered by itself.
    shown = server(preemption=Preemption(within_cluster_queue="LowerPriority"))
    create(shown, "huge", kind=kind, replicas=(1 << 31) - 1, requests={"cpu": "1m"})
    cut = shown.count("kueue_fallback_placements_expired_total", reason="tooMany")

    assert (cut, create(shown, "next")) == (1, "gpu-lq")
    counted = shown.considered[-1].outcome.decision.options
    assert sum(queue.reserving + queue.pending for queue in counted) == 4 + 10 + MOST_UNSEEN


@pytest.mark.parametrize(
    ("kind", "queue"), [("LeaderWorkerSet", "cpu-lq"), ("StatefulSet", "gpu-lq")]
)
def test_an_option_for_guests_takes_none_whose_workload_does_not_tell(kind, queue):
    shown = server(builders.GPU_OPTION, {**builders.CPU_OPTION, "guests": {"maxJobs": 3}})

    assert create(shown, "web", kind=kind) == queue
