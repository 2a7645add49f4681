"""A simulated week: what a cluster would show of it afterwards, and what enforcing came to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bench.experiment.arms import SCENARIOS
from webhook.simulate.replay import replay
from webhook.simulate.results import totals
from webhook.simulate.scenario_file import read_scenario

EXAMPLES = SCENARIOS.parent
BEGAN = 1_795_240_800
FLAVORS = {"gpu-lq": "gpu", "cpu-lq": "cpu"}
POLICY = {
    "apiVersion": "kueue-fallback.dev/v1alpha1",
    "kind": "FallbackPolicy",
    "metadata": {"name": "light"},
    "spec": {
        "mode": "Enforce",
        "match": {"jobSelector": {"matchLabels": {"workload-type": "light-gpu"}}},
        "options": [
            {"name": "gpu", "queue": "gpu-lq"},
            {
                "name": "cpu",
                "queue": "cpu-lq",
                "slowdown": 2.5,
                "adaptation": {"accelerator": "Remove", "env": {"RUN_ENV": "cpu"}},
            },
        ],
        "strategy": {"type": "FinishTime", "finishTime": {"runTime": "80m"}},
    },
}
DAY = [0.4] * 7 + [1.0, 1.6, 2.0, 2.0, 1.8, 1.4, 1.6, 1.8, 1.8, 1.6, 1.2, 0.8] + [0.5] * 5


def week(seed: int, duration: str = "168h"):
    document = {
        "name": "A week",
        "cluster": {"files": ["queues.yaml"]},
        "policies": {"objects": [POLICY]},
        "jobs": {
            "heavy": {"file": "heavy-job.yaml", "runTimes": {"gpu": spread("4h")}},
            "light": {
                "file": "light-job.yaml",
                "runTimes": {"gpu": spread("80m"), "cpu": spread("200m")},
            },
        },
        "arrivals": [
            {
                "poisson": {
                    "rate": "1.6/h",
                    "duration": duration,
                    "byHour": DAY,
                    "jobs": {"heavy": 0.4, "light": 0.6},
                }
            }
        ],
    }
    return read_scenario(
        document,
        read_text=lambda file: (EXAMPLES / file).read_text(encoding="utf-8"),
        seed=seed,
    )


def spread(median: str):
    return {"median": median, "sigma": 0.25}


def ran(given, strategy: str):
    (arm,) = given.arms([strategy])
    return replay(given, arm)


def gpu_hours(result) -> float:
    return totals(result.jobs).device_hours["gpu"]


def saved(path: Path, given, result) -> str:
    """Write what `kubectl get` would print of this week: queues, Workloads and Jobs that ended."""
    queues = list(yaml.safe_load_all((EXAMPLES / "queues.yaml").read_text(encoding="utf-8")))
    manifests = {each.name: given.manifest(each) for each in given.submissions}
    items = [*queues]
    for job in result.jobs:
        items += _objects(job, manifests[job.name])
    path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    return str(path)


def _objects(job, manifest):
    name = job.name.lower().replace("/", "-")
    created = _time(job.arrival)
    metadata = {
        **manifest["metadata"],
        "name": name,
        "uid": f"job-{name}",
        "creationTimestamp": created,
    }
    template = manifest["spec"]["template"]
    usage = {resource: _quantity(resource, n) for (_, resource), n in job.held.items()}
    flavor = FLAVORS[job.queue]
    conditions = [
        _condition("QuotaReserved", job.start),
        _condition("Admitted", job.start),
        {**_condition("Finished", job.finish), "reason": "Succeeded"},
    ]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": metadata["uid"],
        "controller": True,
    }
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": metadata["namespace"],
            "uid": f"workload-{name}",
            "creationTimestamp": created,
            "ownerReferences": [owner],
        },
        "spec": {
            "queueName": job.queue,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": {
            "conditions": conditions,
            "admission": {
                "clusterQueue": job.queue.replace("-lq", "-cq"),
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": 1,
                        "flavors": dict.fromkeys(usage, flavor),
                        "resourceUsage": usage,
                    }
                ],
            },
        },
    }
    return [{**manifest, "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}, workload]


def _quantity(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


def _condition(name: str, at: float):
    return {"type": name, "status": "True", "reason": name, "lastTransitionTime": _time(at)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(BEGAN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
