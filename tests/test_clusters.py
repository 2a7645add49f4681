"""Decisions between a manager and a worker cluster behind it, whose state arrives apart."""

import json
from dataclasses import replace

from tests import builders
from tests.builders import cluster_queue, held
from tests.reviews import light_job
from tests.servers import CPU_CELL, GPU_CELL, Server
from webhook.cluster.pipe import Update, changes
from webhook.cluster.seen import Seen
from webhook.model.clusters import WorkerCluster
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, Snapshot

POLICY = builders.policy(
    builders.GPU_OPTION,
    builders.CPU_OPTION,
    strategy={"type": "Threshold", "threshold": [{"option": "gpu"}, {"option": "cpu"}]},
)
MANY = {**GPU_CELL, "nvidia.com/gpu": "40"}


def manager(*names, **rest):
    """The manager's quota is ten times a worker's."""
    return builders.snapshot(
        cluster_queue("gpu-cq", {"remote": MANY}, checks=("remote",)),
        cluster_queue("cpu-cq", {"default": CPU_CELL}),
        checks={"remote": AdmissionCheck(name="remote", controller=MULTIKUEUE, parameters="all")},
        multikueue_configs={"all": names},
        worker_clusters={name: WorkerCluster(name=name) for name in names},
        policies=(POLICY,),
        **{"as_of": 100.0, **rest},
    )


def worker(*, used="0", **counts):
    return builders.snapshot(
        cluster_queue("gpu-cq", {"t4": GPU_CELL}),
        held={"gpu-cq": held({"t4": {"nvidia.com/gpu": used}}, **counts)},
        as_of=100.0,
    )


def show(server, *, seen=(), watched=None, **clusters):
    """Publish states of clusters, with the Workloads that they are the first to contain."""
    news = {
        name: Update(
            changed=changes(None, found),
            seen=tuple(map(Seen, seen)),
            as_of=found.as_of,
            synced=found is not NOTHING,
        )
        for name, found in clusters.items()
    }
    names = tuple(clusters) if watched is None else watched
    server.handler.update(
        Update(as_of=server.now, synced=True, clusters=news, watched_clusters=names)
    )


NOTHING = Snapshot()


def create(server, number):
    """Create a light Job; returns the decision."""
    job, _ = server.create(light_job(f"job-{number}"))
    return json.loads(job["metadata"]["annotations"]["kueue-fallback.dev/decision"])


def taken(decision):
    found = next(each for each in decision["options"] if each["name"] == decision["option"])
    return decision["option"], found.get("cluster")


def test_placements_fill_the_worker_before_its_workloads_have_come():
    server = Server(manager("a"))
    show(server, a=worker())

    found = [taken(create(server, number)) for number in range(6)]

    assert found == [("gpu", "a")] * 4 + [("cpu", None)] * 2


def test_a_placement_is_not_counted_beside_its_workload():
    server = Server(manager("a"))
    show(server, a=worker())
    ids = [create(server, number)["id"] for number in range(4)]

    show(server, seen=ids, a=worker(used="3", reserving=3))

    assert taken(create(server, 5)) == ("gpu", "a")
    assert taken(create(server, 6)) == ("cpu", None)


def test_the_next_cluster_is_taken_when_one_is_full():
    server = Server(manager("a", "b"))
    show(server, a=worker(used="3", reserving=3), b=worker())

    found = [taken(create(server, number)) for number in range(6)]

    assert {name for _, name in found[:5]} == {"a", "b"}
    assert found[5] == ("cpu", None)


def test_what_multikueue_sent_elsewhere_than_expected_is_counted_where_it_is():
    server = Server(manager("a", "b"))
    show(server, a=worker(used="3", reserving=3), b=worker(used="4", reserving=4, pending=1))
    expected = create(server, 1)

    show(server, watched=("a", "b"), seen=[expected["id"]], b=worker(used="4", pending=2))

    assert taken(expected) == ("gpu", "a")
    assert taken(create(server, 2)) == ("gpu", "a")


def test_a_cluster_that_is_no_longer_watched_is_judged_by_the_managers_quota():
    server = Server(manager("a"))
    show(server, a=worker(used="4", reserving=4))
    full = taken(create(server, 1))

    show(server)

    assert full == ("cpu", None)
    assert taken(create(server, 2)) == ("gpu", None)


def test_a_cluster_that_is_not_synced_yet_stays_what_it_was():
    server = Server(manager("a"))
    show(server, a=worker(used="4", reserving=4))

    show(server, a=NOTHING)

    assert taken(create(server, 1)) == ("cpu", None)


def test_one_that_was_never_heard_of_is_counted_on_for_as_long_as_one_that_fell_silent():
    server = Server(manager("a", "b"))
    show(server, watched=("a", "b"), a=worker(used="4", reserving=4))
    at_first = create(server, 1)

    server.now += 16.0
    server.show(manager("a", "b", as_of=server.now))
    show(server, watched=("a", "b"), a=replace(worker(used="4", reserving=4), as_of=server.now))
    later = create(server, 2)

    assert taken(at_first) == ("gpu", None)
    assert taken(later) == ("cpu", None)
    assert later["options"][0]["clusters"][1] == {
        "name": "b",
        "rejected": "stale: its queues were not seen in 16 s (limit 15 s)",
    }
    assert server.handler.cluster_ages() == {"a": 0.0, "b": 16.0}


def test_jobs_that_nobody_decides_on_take_their_places_on_the_worker_too():
    server = Server(manager("a"))
    show(server, a=worker())
    heavy = light_job("heavy")
    heavy["metadata"]["labels"]["workload-type"] = "heavy-gpu"

    for number in range(4):
        server.create({**heavy, "metadata": {**heavy["metadata"], "name": f"heavy-{number}"}})

    assert taken(create(server, 1)) == ("cpu", None)


def test_placements_that_never_came_are_forgotten_there_too():
    server = Server(manager("a"))
    show(server, a=worker())
    for number in range(4):
        create(server, number)

    server.now += 31.0
    server.show(manager("a", as_of=server.now))
    show(server, a=replace(worker(), as_of=server.now))

    assert taken(create(server, 5)) == ("gpu", "a")


def test_each_cluster_has_an_age_of_its_own():
    server = Server(manager("a", "b"))
    show(server, a=worker(), b=replace(worker(), as_of=98.0))

    server.now += 7.0

    assert server.handler.cluster_ages() == {"a": 7.0, "b": 9.0}
