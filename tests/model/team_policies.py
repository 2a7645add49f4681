"""A valid policy of a namespace's own."""

from typing import Any

OPTION: dict[str, Any] = {"queue": "gpu-lq"}


def team_policy(*, name="light", namespace="research", options=(OPTION,), **spec):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "TeamFallbackPolicy",
        "metadata": {"name": name, "namespace": namespace, "generation": 2},
        "spec": {"match": {"jobSelector": {}}, "options": list(options), **spec},
    }


BROKEN = [
    ("match.namespaceSelector", {"match": {"jobSelector": {}, "namespaceSelector": {}}}),
    ("match.users", {"match": {"jobSelector": {}, "users": ["a"]}}),
    ("match.env", {"match": {"jobSelector": {}, "env": [{"name": "A", "equals": "b"}]}}),
    ("match.withoutQueue", {"match": {"jobSelector": {}, "withoutQueue": True}}),
    ("sharedNamespaces", {"sharedNamespaces": {}}),
    ("jobClassEnv", {"jobClassEnv": ["STEPS"]}),
    ("reconsider", {"reconsider": {"adopt": True}}),
    ("slices", {"slices": {"pods": True}}),
    ("strategy.cost", {"strategy": {"cost": {"timeValue": 1}}}),
    *(
        (f"options[0].{name}", {"options": [{**OPTION, name: value}]})
        for name, value in {
            "clusterQueue": "gpu-cq",
            "guests": {"maxJobs": 1},
            "only": {"users": ["a"]},
            "priorityClass": "high",
        }.items()
    ),
    *(
        (f"options[0].adaptation.{name}", {"options": [{**OPTION, "adaptation": {name: value}}]})
        for name, value in {
            "affinity": "Remove",
            "annotations": {"a": "b"},
            "env": {"LD_PRELOAD": "b"},
            "image": "a",
            "labels": {"a": "b"},
            "nodeSelector": {"remove": ["a"]},
            "podSets": ["main"],
            "replicas": {"main": 1},
            "runtimeClassName": "Remove",
            "tolerations": {"add": [{"operator": "Exists"}]},
            "topology": {"mode": "Remove"},
        }.items()
    ),
]
"""What a team's policy has no field for: its path in the spec, and a spec with it."""
