"""Run times are learned from what ran, and outlive servers and finished Workloads."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, finish_time, options, probe
from tests.e2e.plane import wait_until_complete
from webhook.learn.run_records import read_shard, unpack_runs

NAMES = paper.names_with("learn", namespace="default")
COUNT = 4
FASTER = 20.0


def test_run_times_are_learned_and_outlive_servers_and_workloads(plane, webhook):
    client, names = plane.client, NAMES
    client.apply_all(paper.queues(names))
    with applied_policy(client, finish_time(names), names):
        unknown = probe(client, names)
        jobs = [paper.light_job(f"run-{n}", names, faster=FASTER) for n in range(COUNT)]
        client.create_all(jobs)
        for job in jobs:
            wait_until_complete(client, names.namespace, job["metadata"]["name"])
        learned = wait_for(lambda: _learned(client, names), "the runs are learned")

        wait_for(lambda: _recorded(client, names), "the runs are on record")
        for job in jobs:
            client.delete("batch/v1", "Job", job["metadata"]["name"], namespace=names.namespace)
        webhook.stop()
        webhook.start()
        again = wait_for(lambda: _learned(client, names), "they are known after a restart")

    assert unknown["option"] == "gpu"
    assert "no run time is known yet, so the first option is kept" in unknown["reason"]
    gpu, cpu = options(learned)["gpu"], options(learned)["cpu"]
    assert gpu["runsBy"] == f"learned from {COUNT} runs"
    assert gpu["runs"] > 0
    assert cpu["runsBy"] == f"the first option's {COUNT} runs and the policy's slowdown"
    assert cpu["runs"] == pytest.approx(3.5 * gpu["runs"], abs=0.3)
    assert options(again)["gpu"]["runs"] == pytest.approx(gpu["runs"], abs=0.2)


def _learned(client, names):
    decision = probe(client, names)
    runs_by = options(decision)["gpu"].get("runsBy", "") if decision else ""
    return decision if f"{COUNT} runs" in runs_by else None


def _recorded(client, names):
    """Tell whether all runs on the test's own flavor are on record, whatever others are."""
    shards = client.list("v1", "ConfigMap", namespace="kueue-fallback")
    packed = [
        runs
        for shard in shards
        if "classes" in shard.get("data", {})
        for record in read_shard(shard).values()
        for place, runs in record.runs.items()
        if names.gpu_flavor in place
    ]
    return any(len(unpack_runs(runs)) == COUNT for runs in packed)
