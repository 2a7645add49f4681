"""Write examples/snapshot.json: what kubectl prints of a control plane whose GPU queue is full.

usage: python -m hack.snapshot
Run it again when the examples, the policy's schema or Kueue change.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from hack import crd
from hack.controlplane import ControlPlane
from hack.plane import Plane
from hack.waiting import wait_for

ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = ROOT / "examples"
KINDS: Final = (
    "clusterqueues,localqueues,cohorts,resourceflavors,workloads,fallbackpolicies,namespaces,"
    "workloadpriorityclasses,priorityclasses"
)
RUNNING: Final = 4
WAITING: Final = 11


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder), report=print) as plane,
    ):
        for path in (*(each.target for each in crd.DEFINITIONS), EXAMPLES / "queues.yaml"):
            _checked(plane.kubectl("create", "-f", str(path)))
        wait = ("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        _checked(plane.kubectl(*wait))
        # Created, not applied: kubectl would write the whole manifest into an annotation.
        _checked(plane.kubectl("create", "-f", str(EXAMPLES / "policy.yaml")))
        for number in range(RUNNING + WAITING):
            plane.client.create(_job(number))
        (EXAMPLES / "snapshot.json").write_text(_when_judged(plane))


def _job(number: int) -> dict[str, Any]:
    """Alternate heavy and light Jobs, all in the GPU queue, that run for as long as we look."""
    kind = ("heavy", "light")[number % 2]
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{kind}-job.yaml").read_text())
    del job["metadata"]["generateName"]
    job["metadata"]["name"] = f"{kind}-{number // 2 + 1}"
    job["spec"]["template"]["metadata"] = {"annotations": {"sim.example.com/gpu-run": "1h"}}
    return job


def _when_judged(plane: Plane) -> str:
    """Return the state once Kueue has judged every Workload and has written what it counted."""

    def judged() -> str | None:
        text = _checked(plane.kubectl("get", KINDS, "--all-namespaces", "--output", "json"))
        counts = [item.get("status", {}) for item in json.loads(text)["items"]]
        wanted = {"admittedWorkloads": RUNNING, "pendingWorkloads": WAITING}
        return text if any(wanted.items() <= status.items() for status in counts) else None

    return wait_for(judged, "Kueue has judged every Workload")


def _checked(result: "subprocess.CompletedProcess[str]") -> str:
    if result.returncode:
        raise RuntimeError(result.stderr)
    return result.stdout


if __name__ == "__main__":
    main()
