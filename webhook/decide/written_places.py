"""Lists the places of a Job's manifest that decisions by some policies may change.

What only we ever write is left out, as no manifest holds it. It judges policies and a kind, and
must not know Jobs: of these places a decision changes some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from webhook.jobs import JobKind
from webhook.kueue import topology_requests
from webhook.model.edits import Path
from webhook.model.holds import GATE
from webhook.model.job import ALL_OURS, PRIORITY_LABEL, QUEUE_LABEL
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Adaptation,
    Affinity,
    FallbackPolicy,
    ResourceChanges,
    TolerationChanges,
    TopologyMode,
)

_ALL: Final = "*"
_Keys: TypeAlias = Iterable[str] | bool
"""Keys of a mapping or names of a list's elements; True: any, or the field as a whole."""


def of_kind(kind: JobKind, policies: Iterable[FallbackPolicy]) -> tuple[Path, ...]:
    """Return the places in Jobs of a kind, as patterns; ``*`` at the end: all that is there.

    Empty: no policy is for this kind.
    """
    meant = [policy for policy in policies if kind.kind in policy.spec.match.kinds]
    places = [
        place
        for pattern in kind.allowed
        for policy in meant
        for place in _of(pattern, kind, policy)
    ]
    whole = {place[:-1] for place in places if place[-1] == _ALL}
    kept = (place for place in places if place[-1] == _ALL or place[:-1] not in whole)
    return tuple(dict.fromkeys(kept))


def _of(pattern: Path, kind: JobKind, policy: FallbackPolicy) -> Iterator[Path]:
    """Yield the places of a pattern of paths that a policy's decisions write."""
    ours = next((index for index, part in enumerate(pattern) if part.startswith(ALL_OURS)), None)
    if ours is None:
        yield from (
            (*pattern[:-1], key) if pattern[-1] == _ALL else pattern
            for key in _written(pattern, kind, policy)
        )
    elif ours + 1 < len(pattern):
        # An element of our own, which is always there once we have decided. Tools pass over keys
        # of mappings that no manifest has, but not over elements of lists.
        yield pattern[: ours + 1]


def _written(pattern: Path, kind: JobKind, policy: FallbackPolicy) -> Iterable[str]:
    fields = [part for part in pattern if part != _ALL]
    if fields[-1] in _OF_THE_OBJECT:
        return [_ALL] if _OF_THE_OBJECT[fields[-1]](policy) else []
    write = _replicas if pattern in kind.replicas else _FIELDS[fields[-1]]
    written = (write(option.adaptation) for option in policy.spec.options)
    return [key for keys in written for key in ((_ALL,) if keys is True else keys or ())]


_OF_THE_OBJECT: Final[Mapping[str, Callable[[FallbackPolicy], bool]]] = {
    QUEUE_LABEL: lambda _: True,
    PRIORITY_LABEL: lambda policy: any(option.given_priority for option in policy.spec.options),
    GATE: lambda policy: policy.spec.strategy.hold is not None,
}
"""A label or annotation of the Job itself to whether a policy writes it."""


def _takes_devices(adaptation: Adaptation) -> bool:
    """Return whether what pins pods to devices goes, whatever its names are."""
    return adaptation.accelerator is not Accelerator.KEEP


def _replicas(adaptation: Adaptation) -> _Keys:
    return bool(adaptation.replicas)


def _annotations(adaptation: Adaptation) -> _Keys:
    asks_otherwise = _takes_devices(adaptation) or adaptation.topology.mode is not TopologyMode.KEEP
    topology = sorted(topology_requests.ANNOTATIONS) if asks_otherwise else ()
    return (*adaptation.annotations, *topology)


def _node_selector(adaptation: Adaptation) -> _Keys:
    changes = adaptation.node_selector
    return _takes_devices(adaptation) or (*changes.remove, *changes.set)


def _tolerations(adaptation: Adaptation) -> _Keys:
    return _takes_devices(adaptation) or adaptation.tolerations != TolerationChanges()


def _affinity(adaptation: Adaptation) -> _Keys:
    return _takes_devices(adaptation) or adaptation.affinity is Affinity.REMOVE


def _runtime_class(adaptation: Adaptation) -> _Keys:
    removes = adaptation.accelerator is Accelerator.REMOVE
    return removes or adaptation.runtime_class_name != "Keep"


def _resources(adaptation: Adaptation) -> _Keys:
    """Return the names of resources, requests and limits alike."""
    changes = adaptation.resources
    return _takes_devices(adaptation) or (*changes.remove, *changes.requests, *changes.limits)


def _any_resource(adaptation: Adaptation) -> _Keys:
    return _takes_devices(adaptation) or adaptation.resources != ResourceChanges()


_FIELDS: Final[Mapping[str, Callable[[Adaptation], _Keys]]] = {
    "labels": lambda adaptation: adaptation.labels,
    "annotations": _annotations,
    "nodeSelector": _node_selector,
    "tolerations": _tolerations,
    "affinity": _affinity,
    "runtimeClassName": _runtime_class,
    "image": lambda adaptation: bool(adaptation.image),
    "env": lambda adaptation: adaptation.env,
    "requests": _resources,
    "limits": _resources,
    # A SparkApplication has a field for each resource.
    **dict.fromkeys(("coreLimit", "coreRequest", "gpu", "memory", "memoryLimit"), _any_resource),
}
"""Name of a field of pods to what an adaptation writes there."""
