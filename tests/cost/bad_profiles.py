"""AcceleratorProfiles that the API server and `check` refuse."""

from typing import Any

_GPU: dict[str, Any] = {"flavors": ["gpu"]}
_SLICE = {"resource": "nvidia.com/mig-1g.10gb", "memory": "9856Mi", "compute": 1, "of": 7}


def slices(**changes):
    return {**_GPU, "slices": [{**_SLICE, **changes}]}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "neither flavors nor labels": ({"like": "NVIDIA-L40S"}, "spec"),
    "a flavor twice": ({"flavors": ["gpu", "gpu"]}, "spec.flavors[1]"),
    "a flavor that is no name": ({"flavors": ["GPU"]}, "spec.flavors[0]"),
    "more than 16 flavors": ({"flavors": [f"f-{n}" for n in range(17)]}, "spec.flavors"),
    "memory that is no quantity": ({**_GPU, "memory": "80 GB"}, "spec.memory"),
    "negative memory": ({**_GPU, "memory": "-80Gi"}, "spec.memory"),
    "speed as a number with a point": ({**_GPU, "bandwidth": 2039.5}, "spec.bandwidth"),
    "an unknown data type": ({**_GPU, "compute": {"fp7": "1"}}, "spec.compute.fp7"),
    "watts without a maximum": ({**_GPU, "watts": {"busy": "280"}}, "spec.watts.maximum"),
    "busier than its maximum": (
        {**_GPU, "watts": {"busy": "500", "maximum": "400"}},
        "spec.watts.busy",
    ),
    "idle above busy": (
        {**_GPU, "watts": {"idle": "300", "busy": "280", "maximum": "400"}},
        "spec.watts.idle",
    ),
    "a link without its domain": ({**_GPU, "link": {"kind": "NVLink"}}, "spec.link.domain"),
    "an unknown isolation": ({**_GPU, "isolation": "Some"}, "spec.isolation"),
    "no replica": ({**_GPU, "replicas": 0}, "spec.replicas"),
    "a slice larger than the device": (slices(compute=8), "spec.slices[0].compute"),
    "a slice of nothing": (slices(compute=0), "spec.slices[0].compute"),
    "a slice without memory": (
        {**_GPU, "slices": [{key: _SLICE[key] for key in ("resource", "compute", "of")}]},
        "spec.slices[0].memory",
    ),
    "more than 16 slices": ({**_GPU, "slices": [_SLICE] * 17}, "spec.slices"),
    "a misspelt field": ({**_GPU, "bandwith": "2039"}, "spec.bandwith"),
}
"""What it is, to the spec and the path at which it is refused."""
