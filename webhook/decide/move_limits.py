"""Lists what of a policy keeps its Jobs from being sent or moved, whatever the queues hold.

This judges a policy and must not know its Jobs: what depends on them, the decision or the refusal
of a move says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from webhook.adapt import movable_env
from webhook.decide.undo_limits import sample_edit
from webhook.jobs import BY_NAME, JobKind
from webhook.jobs.job_kind import REPLICAS
from webhook.model.edits import Edit, Path
from webhook.model.job import ENV_PREFIX
from webhook.model.policy.fallback_policy import (
    Adaptation,
    FallbackPolicy,
    Option,
    StrategyType,
)
from webhook.model.reasons import Obstacle

_CONTAINER: Path = ("spec", "containers", "main")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimit:
    path: str
    """The field of the policy."""
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def of_policy(policy: FallbackPolicy) -> Iterator[MoveLimit]:
    """List the limits that follow from the policy alone."""
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        if index and _waits_for_runs(policy, option):
            why = "FinishTime sends no Job there until some have run there, as it has no slowdown"
            yield MoveLimit(path=path, why=why)
        uncounted = [name for name in policy.spec.match.kinds if not BY_NAME[name].carries_marks]
        if option.guests is not None and uncounted:
            why = f"it is refused to each {_listed(uncounted)}, which are not counted as guests"
            yield MoveLimit(path=f"{path}.guests", why=why)
    if policy.spec.reconsider is not None:
        yield from _of_reconsidering(policy)


def _waits_for_runs(policy: FallbackPolicy, option: Option) -> bool:
    return policy.spec.strategy.type is StrategyType.FINISH_TIME and option.slowdown is None


def _of_reconsidering(policy: FallbackPolicy) -> Iterator[MoveLimit]:
    kinds = []
    for index, name in enumerate(policy.spec.match.kinds):
        if why := _never_moved(BY_NAME[name]):
            path = f"spec.match.kinds[{index}]"
            yield MoveLimit(path=path, why=f"reconsider moves no {name}: {why}")
        else:
            kinds.append(BY_NAME[name])
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        if option.only is not None and (option.only.users or option.only.groups):
            why = "reconsider moves no Job there, because the Job's creator is unknown"
            yield MoveLimit(path=f"{path}.only", why=why)
        others = policy.spec.options[:index]
        for (obstacle, names), concerned in _between(option, others, kinds).items():
            what = f"no {_listed(concerned)} between it and {', '.join(names)}"
            yield MoveLimit(path=path, why=f"reconsider moves {what}: {obstacle.meaning}")


def _never_moved(kind: JobKind) -> str:
    """Return why the controller moves no Job of a kind; empty: it may."""
    if not kind.is_movable:
        return Obstacle.CREATION_ONLY.meaning
    if not kind.is_whole:
        return "its pods are defined in other objects, which the controller does not read"
    # A run that has a length is what moves are judged by.
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
