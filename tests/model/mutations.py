"""Policies with random mistakes: a valid one in which a few places get a value from elsewhere."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

FULL: dict[str, Any] = {
    "apiVersion": "kueue-fallback.dev/v1alpha1",
    "kind": "FallbackPolicy",
    "metadata": {"name": "full"},
    "spec": {
        "mode": "Advise",
        "priority": 7,
        "jobClassLabel": "example.com/model",
        "jobClassArgs": ["--steps"],
        "jobClassEnv": ["STEPS"],
        "match": {
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            "jobSelector": {"matchLabels": {"type": "light"}},
            "maxRequests": {"nvidia.com/gpu": 1, "cpu": "64"},
            "minRequests": {"nvidia.com/gpu": 1},
            "users": ["alice", "system:serviceaccount:ci:runner"],
            "groups": ["ml-research"],
            "priorityClasses": ["high"],
            "args": [{"flag": "--steps", "atMost": 30}],
            "env": [{"name": "STEPS", "atLeast": 1}, {"name": "MODE", "equals": "light"}],
            "queues": ["gpu-lq", ""],
            "withoutQueue": True,
        },
        "message": "Questions? #gpu-help, https://wiki.example.com/gpu",
        "warn": False,
        "options": [
            {
                "name": "gpu",
                "queue": "gpu-lq",
                "priorityClass": "high",
                "only": {"users": ["alice"], "groups": ["ml"], "priorityClasses": ["high"]},
                "adaptation": {
                    "accelerator": "Replace",
                    "by": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": "8000"},
                },
            },
            {
                "name": "cpu",
                "clusterQueue": "cpu-cq",
                "slowdown": 3.5,
                "startDelay": "1m30s",
                "guests": {"maxJobs": 3, "priorityClass": "low"},
                "adaptation": {
                    "accelerator": "Remove",
                    "perRemoved": {"cpu": "4", "memory": "6Gi"},
                    "containers": ["main", "side"],
                    "resources": {
                        "remove": ["example.com/fpga"],
                        "requests": {"cpu": 4},
                        "limits": {"cpu": "8", "memory": "1.5Gi"},
                    },
                    "env": {"RUN_ENV": "cpu"},
                    "image": "busybox:1",
                    "nodeSelector": {"remove": ["pool"], "set": {"pool": "cpu"}},
                    "tolerations": {
                        "remove": [{"key": "gpu", "effect": "NoSchedule"}],
                        "add": [{"key": "cpu", "operator": "Exists"}],
                    },
                    "affinity": "Remove",
                    "topology": {"mode": "Auto", "level": "nvidia.com/gpu.clique"},
                    "runtimeClassName": "runc",
                    "labels": {"a": "b"},
                    "annotations": {"a": "b c"},
                },
            },
        ],
        "strategy": {
            "type": "Threshold",
            "threshold": [
                {"option": "gpu", "orPendingBelow": 10},
                {"option": "cpu", "andReservingBelow": 3},
            ],
        },
        "slices": {"pods": True, "unknown": "Allow", "isolation": "None"},
        "reconsider": {"after": "30s", "minimumGain": {"time": "60s"}, "maxMoves": 2},
    },
}
_VALUES: tuple[Any, ...] = (
    *("", "none", "gpu", "a b", "Remove", "Equal", "In", "FinishTime", "4", "-1", "4x", "0s", "1h"),
    *(0, 1, -1, 0.5, 5000, 2**40, True, False, None, [], {}, [None], ["a", "a"], [{"a": 1}]),
    *({"a": "b"}, {"cpu": 4}, {"cpu": "9"}, {"kueue.x-k8s.io/a": "b"}, {"x y": "z"}, {"key": "a"}),
)


def policies(count: int, *, seed: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    for _ in range(count):
        policy = copy.deepcopy(FULL)
        for _ in range(chance.choice((1, 1, 2, 3))):
            _spoil(policy["spec"], chance)
        yield policy


def _spoil(spec: Any, chance: random.Random) -> None:
    holder, key = chance.choice(list(_places(spec)))
    match chance.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(("foo", "name", "queue", "runTime", "finishTime", "key"))] = (
                copy.deepcopy(chance.choice(_VALUES))
            )
        case 2 if isinstance(holder[key], list):
            holder[key].extend(copy.deepcopy(holder[key]))
        case _:
            holder[key] = copy.deepcopy(chance.choice(_VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])
