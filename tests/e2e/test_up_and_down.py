"""`make up` and `make down`: one cluster that stays, and nothing that stays without being asked."""

import json
import os
import select
import signal
import subprocess
import urllib.request

import pytest

from hack.cluster import ROOT
from hack.processes import end_leftovers
from tests.e2e.clusters import command, run


def test_a_cluster_stays_and_after_a_crash_up_starts_anew_and_down_ends_all(cluster):
    first = run("up", cluster)
    endpoints = json.loads(cluster.endpoints.read_text())
    with urllib.request.urlopen(f"{endpoints['metrics']}/readyz") as ready:
        assert ready.status == 200
    own, words = (
        subprocess.run(
            [cluster.programs / name, *given], capture_output=True, text=True, check=False
        )
        for name, given in (
            ("kubectl-fallback", ["--version"]),
            ("kubectl_complete-fallback", ["sta"]),
        )
    )
    second = run("up", cluster, "--bare")
    nodes = subprocess.run(
        [cluster.programs / "kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"],
        capture_output=True,
        text=True,
        check=False,
    )
    _kill(_pid_of("hack.keeper", cluster))
    anew = run("up", cluster, "--bare")
    _kill(_pid_of("hack.keeper", cluster))
    down = run("down", cluster)

    assert (first.returncode, first.stderr) == (0, "")
    assert f"make down NAME={cluster.name}" in first.stdout
    assert (second.returncode, second.stdout.splitlines()[0]) == (0, "Already running.")
    assert "gpu-0" in nodes.stdout
    assert sorted(endpoints) == ["console", "metrics", "webhook"]
    assert own.stdout.startswith("kueue-fallback, version ")
    assert words.stdout.startswith("status\t")
    assert anew.returncode == 0
    assert anew.stdout.startswith(f"Clearing what a crash left in {cluster.folder.name}.")
    assert down.returncode == 0
    assert not cluster.folder.exists()
    assert end_leftovers(cluster.state) == 0


@pytest.mark.parametrize(
    ("lines", "how"), [(0, signal.SIGINT), (1, signal.SIGHUP), (2, signal.SIGTERM)]
)
def test_an_interrupted_up_leaves_nothing(cluster, lines, how):
    with subprocess.Popen(
        command("up", cluster, "--bare"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_signals,  # noqa: PLW1509 - no thread is about to fork here
    ) as up:
        for _ in range(lines):
            up.stdout.readline()
        up.send_signal(how)
        up.wait()

    assert up.returncode != 0
    assert not cluster.folder.exists()
    assert end_leftovers(cluster.state) == 0


def _heed_signals():
    """A shell that runs the tests in the background makes its children ignore Ctrl-C."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


def _kill(pid):
    """Kill a process, and wait until it is gone: until then it holds its cluster's lock."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


def _pid_of(module, cluster):
    found = subprocess.run(
        ["pgrep", "-f", f"{module} {cluster.name}"], capture_output=True, text=True, check=True
    )
    return int(found.stdout)
