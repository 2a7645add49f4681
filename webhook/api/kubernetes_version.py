"""What the version of an API server, as ``/version`` tells it, lets change in a suspended Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_RESOURCES_CHANGE: Final = (1, 36)
"""https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/features/kube_features.go,
MutablePodResourcesForSuspendedJobs"""


def lets_resources_change(version: Mapping[str, object]) -> bool:
    """Tell whether the resources of a suspended Job may change; an emulated version counts."""
    written = (
        str(version.get(f"emulation{part.title()}") or version.get(part, "")).rstrip("+")
        for part in ("major", "minor")
    )
    return tuple(int(each) if each.isdigit() else 0 for each in written) >= _RESOURCES_CHANGE
