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
STARTS_IN: Final = "sim.example.com/starts-in"
"""Pods with this annotation are ready after that duration; others at once."""
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


_ADDRESS: Final = "{{ $podIPs :="


def played(stages: Iterable[Object]) -> list[Object]:
    """Return the stages that our control planes play: these of KWOK's own, two of them changed."""
    changed = copy.deepcopy(list(stages))
    for stage in changed:
        if stage["metadata"]["name"] == "pod-ready":
            _let_begin(stage["spec"])
        if stage["metadata"]["name"] == "pod-complete":
            _let_last_and_fail(stage["spec"])
    return changed


def _let_begin(ready: Object) -> None:
    """Let a pod be ready when its annotations say, and be made so twice.

    KWOK does so twice where it lists the pods of a node that it takes over. The pod gets no
    address, as each time draws another and the API server refuses to change it. What comes next is
    looked for at once, as a patch that changes nothing is followed by no event.
    """
    ready["delay"] = {
        "durationFrom": {"expressionFrom": f'.metadata.annotations["{STARTS_IN}"] // "0s"'},
        "durationMilliseconds": 0,
    }
    template = ready["next"]["statusTemplate"]
    before, _, after = template.partition(_ADDRESS)
    _, phase, rest = after.partition("phase:")
    ready["next"]["statusTemplate"] = before + phase + rest
    ready["immediateNextStage"] = True


def _let_last_and_fail(complete: Object) -> None:
    """Let the pod of a Job run as long as its annotations say, and fail if they say so."""
    complete["delay"] = {
        "durationFrom": {"expressionFrom": RUN_TIME.strip()},
        "durationMilliseconds": 1000,
    }
    template = complete["next"]["statusTemplate"]
    for well, either in _ENDS.items():
        template = template.replace(well, either)
    complete["next"]["statusTemplate"] = FAILS.lstrip() + template


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
