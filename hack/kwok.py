"""What KWOK simulates: the nodes, and pods that run and fail as their annotations say. Pure."""

import copy
from collections.abc import Iterable
from typing import Any, Final

Object = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
ACCELERATOR_LABEL: Final = "accelerator"
STAGES: Final = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)

# By the kind of device that its flavor selects, if it says that; else a pod with a GPU limit on any
# container ran on a GPU.
RUN_TIME: Final = """
.metadata.annotations["sim.example.com/" + (.spec.nodeSelector["accelerator"] // "") + "-run"] //
if ([.spec.containers[].resources.limits["nvidia.com/gpu"] // "0"] | any(. != "0"))
then .metadata.annotations["sim.example.com/gpu-run"]
else .metadata.annotations["sim.example.com/cpu-run"]
end // "1s"
"""


def with_run_times(stages: Iterable[Object]) -> list[Object]:
    """Make the stage that ends a Job's pod wait for the duration in the pod's annotations."""
    changed = copy.deepcopy(list(stages))
    for stage in changed:
        if stage["metadata"]["name"] == "pod-complete":
            stage["spec"]["delay"] = {
                "durationFrom": {"expressionFrom": RUN_TIME.strip()},
                "durationMilliseconds": 1000,
            }
    return changed


CPU_FAILS: Final = "sim.example.com/cpu-fails"
"""Pods with this annotation fail at their end, unless they have a GPU."""
FAILS: Final = """
{{ $fails := false }}
{{ with .metadata.annotations }}{{ with index . "sim.example.com/cpu-fails" }}
{{ $fails = true }}
{{ end }}{{ end }}
{{ range .spec.containers }}{{ with .resources }}{{ with .limits }}
{{ with index . "nvidia.com/gpu" }}{{ $fails = false }}{{ end }}
{{ end }}{{ end }}{{ end }}
"""
_ENDS: Final = {
    "exitCode: 0": "exitCode: {{ if $fails }}1{{ else }}0{{ end }}",
    "reason: Completed": "reason: {{ if $fails }}Error{{ else }}Completed{{ end }}",
    "phase: Succeeded": "phase: {{ if $fails }}Failed{{ else }}Succeeded{{ end }}",
}


def with_failures(stages: Iterable[Object]) -> list[Object]:
    """Let the stage that ends a Job's pod make those fail that say they cannot do without a GPU."""
    changed = copy.deepcopy(list(stages))
    for stage in changed:
        if stage["metadata"]["name"] == "pod-complete":
            template = stage["spec"]["next"]["statusTemplate"]
            for well, either in _ENDS.items():
                template = template.replace(well, either)
            stage["spec"]["next"]["statusTemplate"] = FAILS.lstrip() + template
    return changed


def node_of(device: str) -> Object:
    """Return a node with room for any number of one kind of GPU."""
    return _node(f"gpu-{device}", labels={ACCELERATOR_LABEL: device}, gpus="1k")


def nodes() -> list[Object]:
    """Return more room than any test needs: what limits a Job is Kueue's quota."""
    plain = [_node(f"cpu-{number}", labels={}, gpus="0") for number in range(2)]
    gpu = [
        _node(f"gpu-{number}", labels={ACCELERATOR_LABEL: "t4"}, gpus="1k") for number in range(2)
    ]
    return plain + gpu


def _node(name: str, *, labels: dict[str, str], gpus: str) -> Object:
    allocatable = {
        "cpu": "100k",
        "memory": "1000Ti",
        "ephemeral-storage": "1000Ti",
        "pods": "100k",
        GPU: gpus,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }
