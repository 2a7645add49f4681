"""Lists what of a policy keeps its Jobs from being sent, moved, or put back in place.

A Job whose decision cannot be undone in place has to be deleted and created anew. This judges a
policy and must not know its Jobs: what depends on them, the decision or the refusal of a move says,
and ``JobKind.obstacle_to`` of each of them. Each limit is a sentence after the policy's field.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.adapt import movable_env
from webhook.jobs import BY_NAME, JobKind
from webhook.jobs.job_kind import REPLICAS
from webhook.kueue import multikueue
from webhook.model.edits import ABSENT, Edit, Path
from webhook.model.fields import Json
from webhook.model.job import ENV_PREFIX, PLAIN
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Adaptation,
    Affinity,
    FallbackPolicy,
    NodeSelectorChanges,
    Option,
    ResourceChanges,
    StrategyType,
    TolerationChanges,
)
from webhook.model.policy.rules import SERVICES
from webhook.model.queues import ClusterQueue
from webhook.model.reasons import Obstacle
from webhook.state.snapshot import Snapshot

_CONTAINERS: Final = ("spec", "containers")
_AT_CREATION = "Kubernetes takes {} at creation only"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLimit:
    path: str
    """The field of the policy."""
    why: str
    """Which Jobs it concerns, if not all, and why."""

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def _undo(path: str, why: str) -> PolicyLimit:
    return PolicyLimit(path=path, why=f"undo needs --recreate {why}")


def of_undo(policy: FallbackPolicy) -> Iterator[PolicyLimit]:
    """List the limits that follow from the policy alone."""
    # Put back without a queue, the Job would stay suspended for ever.
    if policy.spec.match.without_queue:
        yield _undo("spec.match.withoutQueue", "for Jobs that name no queue")
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        if option.given_priority:
            why = "for Jobs without a priority class, as Kueue lets none be taken off"
            field = "priorityClass" if option.priority_class else "guests.priorityClass"
            yield _undo(f"{path}.{field}", why)
        if PLAIN in policy.spec.match.kinds:
            for field, why in _of_adaptation(option.adaptation):
                yield _undo(f"{path}.adaptation{field}", why)
    for index, name in enumerate(policy.spec.match.kinds):
        if name != PLAIN and (why := _of_kind(BY_NAME[name], policy)):
            yield _undo(f"spec.match.kinds[{index}]", why)


def of_autoscale(policy: FallbackPolicy, *, is_on: bool = True) -> Iterator[PolicyLimit]:
    """List which services are not scaled; *is_on*: the controller keeps autoscalers."""
    if policy.spec.autoscale is None:
        return
    if not is_on:
        why = "nothing is autoscaled, as controller.autoscale is off in the chart"
        yield PolicyLimit(path="spec.autoscale", why=why)
    for index, name in enumerate(policy.spec.match.kinds):
        if not BY_NAME[name].resizes:
            why = f"no {name} is autoscaled, as Kueue lets its replicas change only from and to 0"
            yield PolicyLimit(path=f"spec.match.kinds[{index}]", why=why)


def of_older_kubernetes(policy: FallbackPolicy) -> Iterator[PolicyLimit]:
    """List the further limits where Kubernetes lets no resources of a suspended Job change."""
    why = "on this Kubernetes, which takes resources at creation only (1.36 does not)"
    for index, option in enumerate(policy.spec.options):
        if _changes_resources(option.adaptation):
            yield _undo(f"spec.options[{index}].adaptation", why)


def of_cluster_queues(
    path: str, queues: Iterable[ClusterQueue], snapshot: Snapshot
) -> Iterator[PolicyLimit]:
    """List the further limit if a ClusterQueue of the option at *path* is MultiKueue's."""
    if any(multikueue.is_multikueue(queue, snapshot.setup) for queue in queues):
        why = "for Jobs that it takes or gives away, as MultiKueue fixes at creation who runs them"
        yield _undo(path, why)


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


_CONTAINER: Path = ("spec", "containers", "main")


def of_moves(policy: FallbackPolicy) -> Iterator[PolicyLimit]:
    """List what keeps Jobs from being sent to options, or moved between them."""
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        by_finish = policy.spec.strategy.type is StrategyType.FINISH_TIME
        if index and by_finish and option.slowdown is None:
            why = "FinishTime sends no Job there until some have run there, as it has no slowdown"
            yield PolicyLimit(path=path, why=why)
        uncounted = [name for name in policy.spec.match.kinds if not BY_NAME[name].carries_marks]
        if option.guests is not None and uncounted:
            why = f"it is refused to each {_listed(uncounted)}, which are not counted as guests"
            yield PolicyLimit(path=f"{path}.guests", why=why)
    yield from _of_services(policy)
    if policy.spec.reconsider is not None:
        yield from _of_reconsidering(policy)


def _of_services(policy: FallbackPolicy) -> Iterator[PolicyLimit]:
    services = [name for name in policy.spec.match.kinds if name in SERVICES]
    told = policy.spec.serving or any(option.serving for option in policy.spec.options)
    if services and policy.spec.strategy.least_cost is not None and not told:
        why = f"each {_listed(services)} with a request-rate is refused, as no option has `serving`"
        yield PolicyLimit(path="spec.options", why=why)


def _of_reconsidering(policy: FallbackPolicy) -> Iterator[PolicyLimit]:
    kinds = []
    for index, name in enumerate(policy.spec.match.kinds):
        if why := _never_moved(BY_NAME[name], policy):
            path = f"spec.match.kinds[{index}]"
            yield PolicyLimit(path=path, why=f"reconsider moves no {name}: {why}")
        else:
            kinds.append(BY_NAME[name])
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        if option.only is not None and (option.only.users or option.only.groups):
            why = "reconsider moves no Job there, because the Job's creator is unknown"
            yield PolicyLimit(path=f"{path}.only", why=why)
        others = policy.spec.options[:index]
        for (obstacle, names), concerned in _between(option, others, kinds).items():
            what = f"no {_listed(concerned)} between it and {', '.join(names)}"
            yield PolicyLimit(path=path, why=f"reconsider moves {what}: {obstacle.meaning}")


def _never_moved(kind: JobKind, policy: FallbackPolicy) -> str:
    """Return why the controller moves no Job of a kind; empty: it may."""
    if not kind.is_movable:
        return Obstacle.CREATION_ONLY.meaning
    if not kind.is_whole:
        return "its pods are defined in other objects, which the controller does not read"
    if kind.rolls and policy.spec.strategy.least_cost is not None:
        return ""
    # A run that has a length is what moves are judged by, or what a service costs an hour.
    return "" if kind.finishes else "it never ends, so no run of it is known"


def _between(
    option: Option, others: Iterable[Option], kinds: Iterable[JobKind]
) -> Mapping[tuple[Obstacle, tuple[str, ...]], list[str]]:
    """Return what rules moves out between an option and others: (obstacle, others) to kinds."""
    found: defaultdict[tuple[Obstacle, tuple[str, ...]], list[str]] = defaultdict(list)
    for kind in kinds:
        of_kind: defaultdict[Obstacle, list[str]] = defaultdict(list)
        for other in others:
            edits = tuple(_edits(kind, option.adaptation, other.adaptation))
            if obstacle := kind.obstacle_to(edits):
                of_kind[obstacle].append(other.name)
        for obstacle, names in of_kind.items():
            found[obstacle, tuple(names)].append(kind.kind)
    return found


def _edits(kind: JobKind, one: Adaptation, other: Adaptation) -> Iterator[Edit]:
    """Yield an edit for each part of a Job that differs between two adaptations of it."""
    for below, differs in (
        ((*_CONTAINER, "resources", "requests", "cpu"), _resources(one) != _resources(other)),
        ((*_CONTAINER, "image"), one.image != other.image),
        (REPLICAS, one.replicas != other.replicas),
        (("spec", "runtimeClassName"), one.runtime_class_name != other.runtime_class_name),
        (("spec", "nodeSelector", "a"), one.node_selector != other.node_selector),
        (("spec", "tolerations"), one.tolerations != other.tolerations),
        (("metadata", "labels", "a"), one.labels != other.labels),
        (("metadata", "annotations", "a"), _annotations(one) != _annotations(other)),
    ):
        if differs:
            yield sample_edit(kind, below, "1")
    if one.affinity != other.affinity:
        yield sample_edit(kind, ("spec", "affinity"), {"nodeAffinity": {}})
    for name in {**one.env, **other.env}:
        values = [adaptation.env.get(name) for adaptation in (one, other)]
        if values[0] != values[1]:
            yield sample_edit(kind, _of_variable(kind, name, values), "1")


def _resources(adaptation: Adaptation) -> tuple[object, ...]:
    return adaptation.accelerator, adaptation.by, adaptation.per_removed, adaptation.resources


def _annotations(adaptation: Adaptation) -> tuple[object, ...]:
    return adaptation.annotations, adaptation.topology


def _of_variable(kind: JobKind, name: str, values: Iterable[str | None]) -> Path:
    """Return where a variable of some value is changed: where it is immutable, in an annotation."""
    readable = all(movable_env.can_be_read(name, value or "") for value in values)
    if kind.can_change_env or not readable:
        return (*_CONTAINER, "env", name)
    return ("metadata", "annotations", ENV_PREFIX + name)


def _listed(names: Iterable[str]) -> str:
    return " or ".join(names)
