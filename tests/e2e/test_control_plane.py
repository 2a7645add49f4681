"""The control plane itself: Kueue admits, pods run as long as they say, nothing is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from hack import kueue, paper
from hack.waiting import wait_for
from tests.e2e.plane import container_of, has_condition, wait_until_complete, wait_until_reserved

ROOT = Path(__file__).resolve().parents[2]


def test_a_job_in_the_gpu_queue_is_admitted_runs_for_its_annotation_and_completes(plane, queues):
    created = plane.client.create(paper.light_job("light", queues, faster=10))

    workload = wait_until_reserved(plane.client, created)
    complete = wait_until_complete(plane.client, queues.namespace, "light")

    assert created["spec"]["suspend"] is True
    assert workload["status"]["admission"]["clusterQueue"] == queues.gpu_cluster_queue
    assert container_of(complete)["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_the_fifth_job_of_four_gpus_waits(plane, queues):
    jobs = [paper.heavy_job(f"heavy-{number}", queues) for number in range(4)]
    for job in plane.client.create_all(jobs):
        wait_until_reserved(plane.client, job)

    fifth = plane.client.create(paper.heavy_job("fifth", queues))

    def pending():
        status = plane.client.get(paper.KUEUE, "ClusterQueue", queues.gpu_cluster_queue)["status"]
        return (status["pendingWorkloads"], status["reservingWorkloads"]) == (1, 4)

    wait_for(pending, "one Workload is pending behind four")
    assert not has_condition(fifth, "Complete")


def test_kueues_config_map_holds_the_configuration_that_it_runs_with(plane):
    stored = plane.client.get("v1", "ConfigMap", kueue.CONFIG_MAP, namespace=kueue.NAMESPACE)

    running = yaml.safe_load((plane.state / "kueue.yaml").read_text())
    assert yaml.safe_load(stored["data"][kueue.CONFIG_KEY]) == running
    assert running["integrations"] == {"frameworks": ["batch/job"]}


def test_kubectl_speaks_to_the_plane_as_its_administrator(plane):
    done = plane.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")

    assert (done.returncode, done.stdout, done.stderr) == (0, "admin", "")


def test_nothing_outlives_a_starter_that_was_killed(tmp_path):
    script = (
        "import pathlib, sys, time; from hack.controlplane import ControlPlane\n"
        "ControlPlane(pathlib.Path(sys.argv[1])).__enter__(); print('up', flush=True)\n"
        "time.sleep(600)"
    )
    state = tmp_path / "state"
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(state)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"

        os.kill(starter.pid, signal.SIGKILL)
        starter.wait()

    wait_for(lambda: not _processes_with(str(state)), "all programs have ended")


def _processes_with(text):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found
