"""A Deployment that serves on one of three GPUs: an hour costs 6 on the H100, and 5 on the L40S."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from webhook.jobs import BY_NAME
from webhook.model.job import Pending, Rollout
from webhook.reconsider.service_moves import choose_service_moves
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot_file import snapshot_of

WORLD = Path(__file__).parents[1] / "cases/worlds/serving.yaml"
NOW = 1795240800.0
RULES = {"after": "30s", "minimumSaving": {"percent": 10}}
PERIOD = 86_400.0


def chat(**annotations):
    """A Deployment of which two H100s or five L40S hold the latency, and no T4 does."""
    said = {"request-rate": "60", "target-latency": "300ms", **annotations}
    asked = {"cpu": "4", "memory": "6Gi", "nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "chat", "resources": {"requests": asked}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "chat",
            "namespace": "research",
            "labels": {"kueue.x-k8s.io/queue-name": "h100-lq"},
            "annotations": {f"kueue-fallback.dev/{name}": text for name, text in said.items()},
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
    }


def service(option="h100", *, changed=NOW - 3600, name="chat", source=None, **rollout):
    job = BY_NAME["Deployment"].read(source or chat())
    return Pending(
        uid=f"uid-{name}",
        version="1",
        created=NOW - 10 * PERIOD,
        job=replace(job, name=name),
        queue=f"{option}-lq",
        policy="serving",
        option=option,
        changed=changed,
        rollout=Rollout(**{"is_done": True, **rollout}),
    )


def known(*, reconsider=RULES, without=(), **spec):
    """What is known of the cluster, under a policy that reconsiders."""
    items = [item for item in yaml.safe_load(WORLD.read_text()) if item["kind"] not in without]
    for item in items:
        if item["kind"] == "FallbackPolicy":
            item["spec"] |= {"reconsider": reconsider, **spec}
    return snapshot_of([(item, "world") for item in items])


def chosen(*services, unix=NOW, **given):
    """Return the moves as (service, option, why), and the obstacles."""
    found = choose_service_moves(services, occupancy_of(known(**given)), now=0.0, unix=unix)
    moves = [(move.service.job.name, move.option, move.why) for move in found.moves]
    return moves, {str(obstacle): count for (_, obstacle), count in found.obstacles.items()}
