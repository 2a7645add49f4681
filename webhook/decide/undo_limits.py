"""Lists where a policy's decisions cannot be undone in place, even on pending Jobs, and why.

Such a Job has to be deleted and created anew. This judges a policy and must not know its Jobs: for
each of them ``JobKind.obstacle_to`` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.adapt import movable_env
from webhook.jobs import BY_NAME, JobKind
from webhook.jobs.job_kind import REPLICAS
from webhook.kueue import multikueue
from webhook.model.edits import ABSENT, Edit, Path
from webhook.model.fields import Json
from webhook.model.job import PLAIN
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Adaptation,
    Affinity,
    FallbackPolicy,
    NodeSelectorChanges,
    ResourceChanges,
    TolerationChanges,
)
from webhook.model.queues import ClusterQueue, Snapshot
from webhook.model.reasons import Obstacle

_CONTAINERS: Final = ("spec", "containers")
_AT_CREATION = "Kubernetes takes {} at creation only"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoLimit:
    path: str
    """The field of the policy."""
    why: str
    """Which Jobs it concerns, if not all, and why."""

    def __str__(self) -> str:
        return f"{self.path}: undo needs --recreate {self.why}"


def of_policy(policy: FallbackPolicy) -> Iterator[UndoLimit]:
    """List the limits that follow from the policy alone."""
    # Put back without a queue, the Job would stay suspended for ever.
    if policy.spec.match.without_queue:
        yield UndoLimit(path="spec.match.withoutQueue", why="for Jobs that name no queue")
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        if option.given_priority:
            why = "for Jobs without a priority class, as Kueue lets none be taken off"
            field = "priorityClass" if option.priority_class else "guests.priorityClass"
            yield UndoLimit(path=f"{path}.{field}", why=why)
        if PLAIN in policy.spec.match.kinds:
            for field, why in _of_adaptation(option.adaptation):
                yield UndoLimit(path=f"{path}.adaptation{field}", why=why)
    for index, name in enumerate(policy.spec.match.kinds):
        if name != PLAIN and (why := _of_kind(BY_NAME[name], policy)):
            yield UndoLimit(path=f"spec.match.kinds[{index}]", why=why)


def of_older_kubernetes(policy: FallbackPolicy) -> Iterator[UndoLimit]:
    """List the further limits where Kubernetes lets no resources of a suspended Job change."""
    why = "on this Kubernetes, which takes resources at creation only (1.36 does not)"
    for index, option in enumerate(policy.spec.options):
        if _changes_resources(option.adaptation):
            yield UndoLimit(path=f"spec.options[{index}].adaptation", why=why)


def of_cluster_queues(
    path: str, queues: Iterable[ClusterQueue], snapshot: Snapshot
) -> Iterator[UndoLimit]:
    """List the further limit if a ClusterQueue of the option at *path* is MultiKueue's."""
    if any(multikueue.is_multikueue(queue, snapshot) for queue in queues):
        why = "for Jobs that it takes or gives away, as MultiKueue fixes at creation who runs them"
        yield UndoLimit(path=path, why=why)


def _of_kind(kind: JobKind, policy: FallbackPolicy) -> str:
    """Return for which Jobs of a kind other than batch an undo needs a new Job; empty: none."""
    if not kind.is_movable:
        return f"for each {kind.kind}, as {Obstacle.CREATION_ONLY.meaning}"
    what = _immutable_of(kind, policy)
    if not what:
        return ""
    return f"for each {kind.kind} of which it changes {', '.join(what)}: taken at creation only"


def _immutable_of(kind: JobKind, policy: FallbackPolicy) -> list[str]:
    """Return what options change that a Job of a kind takes at its creation only, in words."""
    changed = [_changed(option.adaptation) for option in policy.spec.options]
    words = dict.fromkeys(word for each in changed for word in each)
    edits = {word: sample_edit(kind, _BELOW[word], {"podAffinity": {}}) for word in words}
    return [word for word, edit in edits.items() if kind.immutable(_BELOW[word], edit)]


def sample_edit(kind: JobKind, below: Path, value: Json) -> Edit:
    """Return an edit to a Job of a kind, at a path *below* the template of some of its pods."""
    if below == REPLICAS:
        return Edit(path=_some(kind.replicas[0]), value=value, was=ABSENT)
    # What trains in a TrainJob has its container in the last template, all else in the first.
    template = kind.templates[-1 if below[:2] == _CONTAINERS else 0]
    return Edit(path=(*_some(template), *below), value=value, was=ABSENT)


def _some(pattern: Path) -> Path:
    return tuple("main" if part == "*" else part for part in pattern)


def _changed(adaptation: Adaptation) -> Iterator[str]:
    """Yield the fields of pods that an adaptation changes, in words."""
    for word, changes in (
        ("resources", _changes_resources(adaptation)),
        ("replicas", bool(adaptation.replicas)),
        ("image", bool(adaptation.image)),
        ("env", bool(adaptation.env)),
        ("runtime class", adaptation.runtime_class_name != "Keep"),
        ("affinity", adaptation.affinity is Affinity.REMOVE),
    ):
        if changes:
            yield word


_BELOW: Final[Mapping[str, Path]] = {
    "resources": ("spec", "containers", "main", "resources", "requests", "cpu"),
    "replicas": REPLICAS,
    "image": ("spec", "containers", "main", "image"),
    "env": ("spec", "containers", "main", "env", "A"),
    "runtime class": ("spec", "runtimeClassName"),
    "affinity": ("spec", "affinity"),
}
"""Paths of these below a pod template."""


def _of_adaptation(adaptation: Adaptation) -> Iterator[tuple[str, str]]:
    """List (field below ``adaptation``, why)."""
    if adaptation.image:
        yield ".image", f"as {_AT_CREATION.format('an image')}"
    if adaptation.runtime_class_name != "Keep":
        yield ".runtimeClassName", f"where it changes: {_AT_CREATION.format('it')}"
    if adaptation.affinity is Affinity.REMOVE:
        what = _AT_CREATION.format("that")
        yield ".affinity", f"for Jobs with affinity between pods: {what}"
    for name, value in adaptation.env.items():
        # Variables are immutable, so an undo changes the annotation that they are read from.
        if movable_env.can_be_read(name, value):
            why = f"for Jobs that do not set {name} to one value in all their containers"
        else:
            why = f"as {_AT_CREATION.format('variables')}, and no annotation can hold this one"
        yield f".env.{name}", why
    # Kueue notices a changed pod template only by the resources of its containers; of any other
    # change it would write the old state back.
    is_noticed = _changes_resources(adaptation) or adaptation.replicas
    if _changes_pods(adaptation) and not is_noticed:
        yield "", "where it changes something, as Kueue takes note of changed resources only"


def _changes_resources(adaptation: Adaptation) -> bool:
    changes = adaptation.accelerator is not Accelerator.KEEP
    return changes or adaptation.resources != ResourceChanges()


def _changes_pods(adaptation: Adaptation) -> bool:
    """Return whether an adaptation changes what Kubernetes allows to change and Kueue ignores."""
    return any(
        (
            adaptation.node_selector != NodeSelectorChanges(),
            adaptation.tolerations != TolerationChanges(),
            adaptation.affinity is Affinity.REMOVE,
            adaptation.labels,
            adaptation.annotations,
            adaptation.env,
        )
    )
