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


BROKEN = [
    (case["path"], case["spec"])
    for case in yaml.safe_load(Path(__file__).with_name("broken_team_policies.yaml").read_text())
]
"""What a team's policy has no field for: its path in the spec, and a spec with it."""
