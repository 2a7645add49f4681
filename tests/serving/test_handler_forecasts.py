"""Decisions by forecasts that are older than the last placements."""

from tests import builders
from tests.reviews import light_job
from tests.servers import CPU_CELL, GPU_CELL, Server
from webhook.decide import decision_record
from webhook.state.pipe import Update, changes
from webhook.state.snapshot import Snapshot
from webhook.state.workload import SeenWorkload

POLICY = builders.policy(
    builders.GPU_OPTION,
    {**builders.CPU_OPTION, "slowdown": 3.5},
    strategy={"finishTime": {"runTime": "20s", "minimumGain": {"time": "0s", "percent": 0}}},
)
QUEUES = (
    builders.cluster_queue("gpu-cq", {"t4": GPU_CELL}),
    builders.cluster_queue("cpu-cq", {"default": CPU_CELL}),
)
BURST = ["gpu"] * 8 + ["cpu"] * 6 + ["gpu"]
"""Four GPUs are free in 21 s and serve four Jobs each 20 s; six Jobs on CPU end after 70 s."""


def forecasts(at):
    """Four runs of 20 s have just begun on the GPUs."""
    used = {"t4": {"nvidia.com/gpu": "1", "cpu": "4", "memory": "6Gi"}}
    known = builders.snapshot(*QUEUES)
    return builders.foreseen(known, *[("gpu-cq", used, 20.0)] * 4, now=at).forecasts


def served():
    """A server that leaves for any gain: what is tested here is what it counts."""
    return Server(snapshot(), min_gain_probability=0.5)


def snapshot(taken=(), **rest):
    """The queues with what was decided so far, as Workloads."""
    on_cpu = taken.count("cpu")
    used = {"nvidia.com/gpu": "4", "cpu": "16", "memory": "24Gi"}
    cpu_used = {"cpu": str(4 * on_cpu), "memory": f"{6 * on_cpu}Gi"}
    return builders.snapshot(
        *QUEUES,
        held={
            "gpu-cq": builders.held({"t4": used}, pending=taken.count("gpu"), reserving=4),
            "cpu-cq": builders.held({"default": cpu_used}, reserving=on_cpu),
        },
        policies=(POLICY,),
        **{"as_of": 100.0, "forecasts": forecasts(100.0), **rest},
    )


def create(server, number):
    job, _ = server.create(light_job(f"job-{number}"))
    found = decision_record.parsed(job["metadata"]["annotations"])
    return found["option"], found


def show(server, found, seen=(), profiled=()):
    server.handler.update(
        Update(
            changed=changes(Snapshot(), found),
            seen=tuple(map(SeenWorkload, seen)),
            profiled=tuple(map(SeenWorkload, profiled)),
            as_of=found.as_of,
            synced=True,
        )
    )


def test_a_burst_counts_its_own_placements_in_the_forecast():
    server = served()

    assert [create(server, number)[0] for number in range(15)] == BURST


def test_placements_stay_in_the_forecast_until_it_contains_their_workloads():
    server, taken = served(), []
    for number in range(15):
        option, found = create(server, number)
        taken.append(option)
        # Its Workload is seen at once, and the forecasts are those from before the burst.
        server.now += 2.0 / 15
        show(server, snapshot(taken, as_of=server.now), seen=[found["id"]])

    assert taken == BURST
    assert server.handler.placements() == 0


def test_a_placement_leaves_the_forecast_with_one_that_contains_it():
    server = served()
    ids = [create(server, number)[1]["id"] for number in range(8)]
    before = create(server, 8)[0]

    # Forecasts of a cluster in which all of it has ended.
    show(server, snapshot(forecasts=forecasts(100.5)), seen=ids, profiled=ids)

    assert (before, create(server, 9)[0]) == ("cpu", "gpu")


def test_the_decision_has_start_run_and_finish_of_every_option():
    server = Server(snapshot())
    _, found = create(server, 0)

    gpu, cpu = found["options"]
    assert gpu["startsIn"] == 21.0
    assert (gpu["runs"], gpu["runsBy"], gpu["finishesIn"]) == (20.0, "the policy", 41.0)
    assert cpu["startsIn"] == 0.0
    assert (cpu["runs"], cpu["runsBy"], cpu["finishesIn"]) == (70.0, "the policy", 70.0)
    (line,) = server.logged()
    logged = line["decision"]["options"][0]
    assert logged["runsBetween"][0] < 20.0 < logged["runsBetween"][1]
    assert logged["finishesBetween"][0] < 41.0 < logged["finishesBetween"][1]
