"""Decisions between a manager and a worker cluster behind it, whose state arrives apart."""

import json
from dataclasses import replace

from tests import builders
from tests.builders import NAMESPACE, cluster_queue, held
from tests.reviews import light_job
from tests.servers import CPU_CELL, GPU_CELL, Server
from tests.simulate.shipped import shipped
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, WorkerCluster
from webhook.simulate.replay import replay
from webhook.state.pipe import Update, changes
from webhook.state.snapshot import Snapshot, updated
from webhook.state.workload import SeenWorkload

POLICY = builders.policy(
    builders.GPU_OPTION,
    builders.CPU_OPTION,
    strategy={"type": "Threshold", "threshold": [{"option": "gpu"}, {"option": "cpu"}]},
)
PAPERS = builders.policy(
    builders.GPU_OPTION, builders.CPU_OPTION, threshold=builders.PAPER_THRESHOLD
)
MANY = {**GPU_CELL, "nvidia.com/gpu": "40"}


def manager(*names, quota=MANY, **rest):
    """The manager's quota is ten times a worker's."""
    return builders.snapshot(
        cluster_queue("gpu-cq", {"remote": quota}, checks=("remote",)),
        cluster_queue("cpu-cq", {"default": CPU_CELL}),
        checks={"remote": AdmissionCheck(controller=MULTIKUEUE, parameters="all")},
        multikueue_configs={"all": names},
        worker_clusters={name: WorkerCluster() for name in names},
        **{"as_of": 100.0, "policies": (POLICY,), **rest},
    )


def worker(*, used="0", **counts):
    return builders.snapshot(
        cluster_queue("gpu-cq", {"t4": GPU_CELL}),
        held={"gpu-cq": held({"t4": {"nvidia.com/gpu": used}}, **counts)},
        as_of=100.0,
    )


def show(server, *, seen=(), watched=None, here=None, come=(), reserved=(), **clusters):
    """Publish states of clusters, with the Workloads that they are the first to contain.

    *here* is what the manager is now, the first to contain the Workloads of *come*, and to show
    those of *reserved* with quota.
    """
    news = {
        name: Update(
            changed=changes(None, found),
            seen=tuple(map(SeenWorkload, seen)),
            as_of=found.as_of,
            synced=found is not NOTHING,
        )
        for name, found in clusters.items()
    }
    names = tuple(clusters) if watched is None else watched
    server.handler.update(
        Update(
            changed=changes(None, here) if here is not None else {},
            seen=tuple(map(at_manager, come)),
            reserved=tuple(map(at_manager, reserved)),
            as_of=server.now,
            synced=True,
            clusters=news,
            watched_clusters=names,
        )
    )


def at_manager(key):
    return SeenWorkload(key, NAMESPACE, key.rpartition("/")[2], "gpu-lq")


NOTHING = Snapshot()


def decided(server, job):
    """Create a Job; returns the option taken."""
    admitted, _ = server.create(job, namespace=job["metadata"]["namespace"])
    return admitted["metadata"]["labels"].get("kueue-fallback.dev/option", "")


def create(server, number):
    """Create a light Job; returns the decision."""
    job, _ = server.create(light_job(f"job-{number}"))
    return json.loads(job["metadata"]["annotations"]["kueue-fallback.dev/decision"])


def full(*names, reserving=4, waiting=0, **rest):
    """The manager's quota is the worker's, and all of it is held."""
    lent = held({"remote": {"nvidia.com/gpu": str(reserving)}}, reserving=reserving)
    many = replace(builders.arrival("w", {"nvidia.com/gpu": "1"}), count=waiting)
    found = {"held": {"gpu-cq": lent}, "competing": {"gpu-cq": (many,)} if waiting else {}}
    return manager(*names, **{"quota": GPU_CELL, "policies": (PAPERS,), **found, **rest})


def foreseen(snapshot, *runs):
    """Forecast from now on; *runs*: (flavor, GPUs, seconds left)."""
    used = [("gpu-cq", {flavor: {"nvidia.com/gpu": gpus}}, left) for flavor, gpus, left in runs]
    return builders.foreseen(snapshot, *used, now=100.0)


def starts_in(decision):
    return next(each["startsIn"] for each in decision["options"] if each["name"] == "gpu")


def pending(decision):
    return next(each["pending"] for each in decision["options"] if each["name"] == "gpu")


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
        "rejected": "stale: its queues were not seen in 16s (limit 15s)",
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


def test_jobs_leave_at_ten_pending_though_two_queues_count_them():
    server = Server(full("a", reserving=0))
    show(server, a=worker())

    found = [create(server, number) for number in range(16)]

    assert [pending(each) for each in found] == [0] * 4 + [*range(11), 10]
    assert [each["option"] for each in found] == ["gpu"] * 14 + ["cpu"] * 2


def test_jobs_leave_at_ten_pending_while_their_workloads_come():
    server = Server(full("a"))
    show(server, a=worker(used="4", reserving=4))
    found = []
    for number in range(12):
        found.append(create(server, number))
        here = full("a", waiting=min(10, number + 1))
        show(server, here=here, come=[found[-1]["id"]], a=worker(used="4", reserving=4))

    assert [pending(each) for each in found] == [*range(11), 10]
    assert [each["option"] for each in found] == ["gpu"] * 10 + ["cpu"] * 2


def test_who_gets_the_managers_quota_counts_in_the_worker_until_it_has_come_there():
    server = Server(full("a"))
    show(server, a=worker(used="3", reserving=3))
    key = create(server, 1)["id"]
    show(server, here=full("a", waiting=1), come=[key], a=worker(used="4", reserving=4))
    waiting = pending(create(server, 2))

    larger = full("a", reserving=5, quota=MANY)
    show(server, here=larger, reserved=[key], a=worker(used="4", reserving=4))
    sent = pending(create(server, 3))
    show(server, seen=[key], a=worker(used="4", reserving=4, pending=1))

    # The second and the third one are still to be seen.
    assert (waiting, sent, pending(create(server, 4))) == (1, 1, 2)


def test_a_job_that_is_named_later_counts_once_too():
    server = Server(full("a"))
    show(server, a=worker(used="4", reserving=4))
    server.create(light_job("", annotations={"kueue-fallback.dev/policy": "none"}))
    key = f"job:{NAMESPACE}/light-x7k2p"

    show(server, here=full("a", waiting=1), come=[key], a=worker(used="4", reserving=4))
    larger = full("a", reserving=5, quota=MANY)
    show(server, here=larger, reserved=[key], a=worker(used="4", reserving=4))
    sent = pending(create(server, 1))
    show(server, seen=[key], a=worker(used="4", reserving=4, pending=1))

    assert (sent, pending(create(server, 2))) == (1, 2)


def test_forecasts_of_a_worker_hold_only_those_that_are_sent_there():
    by_finish = builders.policy(
        builders.GPU_OPTION,
        {**builders.CPU_OPTION, "slowdown": 100},
        strategy={"type": "FinishTime", "finishTime": {"runTime": "10s"}},
    )
    here = full("a", policies=(by_finish,))
    server = Server(foreseen(here))
    there = foreseen(worker(used="4", reserving=4), ("t4", "4", 10.0))
    show(server, a=there)
    ids = [create(server, number)["id"] for number in range(4)]

    waiting = starts_in(create(server, 5))
    here = foreseen(full("a", reserving=8, quota=MANY, policies=(by_finish,)))
    show(server, here=here, reserved=ids, a=there)

    assert (waiting, starts_in(create(server, 6))) == (11.0, 22.0)


def test_a_server_decides_a_burst_as_a_replay_does():
    scenario = shipped("clusters")
    (arm,) = scenario.arms(["Threshold"])
    light = next(each for each in scenario.submissions if each.template == "light")
    burst = tuple(replace(light, at=0.0, name=f"light-{number}") for number in range(20))
    scenario = replace(scenario, submissions=burst)
    server = Server(updated(scenario.snapshot, policies=arm.policies, as_of=100.0, generation=1))
    show(server, worker=replace(scenario.workers["worker"].snapshot, as_of=100.0))

    options = [job.option for job in replay(scenario, arm).jobs]

    assert options == ["gpu"] * 14 + ["cpu"] * 3 + ["gpu"] * 3
    assert [decided(server, scenario.manifest(each)) for each in burst] == options


def test_a_cluster_that_is_not_synced_yet_stays_what_it_was():
    server = Server(manager("a"))
    show(server, a=worker(used="4", reserving=4))

    show(server, a=NOTHING)

    assert taken(create(server, 1)) == ("cpu", None)
