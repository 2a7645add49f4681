"""A valid policy of a namespace's own."""

from pathlib import Path
from typing import Any

import yaml

OPTION: dict[str, Any] = {"queue": "gpu-lq"}


def team_policy(*, name="light", namespace="research", options=(OPTION,), **spec):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "TeamFallbackPolicy",
        "metadata": {"name": name, "namespace": namespace, "generation": 2},
        "spec": {"match": {"jobSelector": {}}, "options": list(options), **spec},
    }


FULL = team_policy(
    namespace="default",
    mode="Enforce",
    priority=3,
    message="ask us",
    warn=False,
    match={
        "kinds": ["Job", "JobSet"],
        "jobSelector": {"matchLabels": {"team": "a"}},
        "maxRequests": {"nvidia.com/gpu": 4},
        "minRequests": {"cpu": "500m"},
        "queues": ["gpu-lq"],
    },
    options=[
        OPTION,
        {
            "name": "cpu",
            "queue": "cpu-lq",
            "slowdown": 1.5,
            "startDelay": "30s",
            "maxWait": "1h",
            "adaptation": {
                "accelerator": "Remove",
                "perRemoved": {"cpu": 4},
                "containers": ["main"],
                "resources": {"remove": ["a/b"], "requests": {"cpu": 1}, "limits": {"cpu": 2}},
            },
        },
        {
            "queue": "mig-lq",
            "adaptation": {"accelerator": "Replace", "by": {"nvidia.com/mig-1g.10gb": 1}},
        },
    ],
    strategy={
        "type": "FinishTime",
        "finishTime": {"minimumGain": {"time": "1m", "percent": 5}, "runTime": "2h"},
    },
)
"""Each field that a team's policy has, but the rules of Threshold."""


BROKEN = [
    (case["path"], case["spec"])
    for case in yaml.safe_load(Path(__file__).with_name("broken_team_policies.yaml").read_text())
]
"""What a team's policy has no field for: its path in the spec, and a spec with it."""
