"""Reads what Jobs of every kind have in common: their metadata, and pod sets from templates.

Equal pod sets are the same object, so that work on them is done once. It must not know any kind.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.jobs import template
from webhook.model import fields
from webhook.model.edits import Path
from webhook.model.fields import FieldError, child
from webhook.model.job import MOST_REPLICAS, Job, Owner, PodSet, PodSets, Replicas
from webhook.model.pods import Container, Memo, read_template
from webhook.model.words import clip

_WITHOUT_REFERENCES = 2
"""The version of ``marshal`` that writes equal values as equal bytes."""
_shared: Memo[PodSets] = Memo(most=512, most_bytes=192 * 1024)
"""A template of a few lines takes 1 to 2 kB: so many recur that at least a hundred are kept."""
_LONGEST_SHARED = 32 * 1024
"""Bytes of a Job's templates that are kept; larger ones would put many others out."""
_LONGEST_UNCHECKED = 16 * 1024
"""Bytes of a template that is too small to have too many entries, containers excepted."""
_LONGEST_LABEL = 63
GENERATED_SUFFIX = "abcde"
"""As long as what the API server appends to ``generateName``."""
MOST_POD_SETS = 18
"""Kueue's ``MaxPodSets``: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/constants.go#L21
"""


class ServedPodSet(NamedTuple):
    """A pod set as Kueue counts it, whose template is not read yet."""

    name: str
    pods: int
    path: Path | None
    """The template's place in the object; None: its controller makes it."""
    template: Mapping[str, Any]
    added: tuple[Container, ...] = ()
    replicas: Replicas | None = None
    limit_seconds: int | None = None
    """After how long the Job that makes its pods is ended, if that is another; None: never."""
    rounds: int = 1
    """How often each of its places runs a pod to its end, one after the other."""


def read_served(
    source: Mapping[str, Any],
    *,
    kind: str,
    pod_sets: tuple[PodSet, ...],
    managed_by: str | None = None,
    active_deadline_seconds: int | None = None,
    unmodelled: str = "",
) -> Job:
    """Return a Job with the metadata that the API server sends.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    metadata = fields.mapping(source, "metadata", "")
    return Job(
        kind=kind,
        namespace=fields.text(metadata, "namespace", "metadata"),
        name=fields.text(metadata, "name", "metadata"),
        generate_name=fields.text(metadata, "generateName", "metadata"),
        # Copies, because the review's own object is patched to prove that the patch applies.
        labels=dict(fields.texts(metadata, "labels", "metadata")),
        annotations=dict(fields.texts(metadata, "annotations", "metadata")),
        owner=_read_owner(metadata),
        managed_by=managed_by,
        active_deadline_seconds=active_deadline_seconds,
        pod_sets=pod_sets,
        # It may name what the Job's author called something, at any length.
        unmodelled=clip(unmodelled),
    )


def read_pod_sets(served: Sequence[ServedPodSet]) -> PodSets:
    """Read pod sets; equal ones are the very same object.

    Raises:
        FieldError: one of them has a wrong type, or would take long to decide.

    """
    check_pod_sets(served)
    written = [marshal.dumps(dict(pod_set.template), _WITHOUT_REFERENCES) for pod_set in served]
    size = sum(map(len, written))
    if size > _LONGEST_SHARED:
        _check(served, written)
        return PodSets(map(_pod_set, served))
    key = (
        *written,
        *[
            (pod_set.name, pod_set.pods, pod_set.path, pod_set.replicas, repr(pod_set.added))
            for pod_set in served
        ],
    )

    def work() -> PodSets:
        _check(served, written)
        # Read from the bytes, because the review's own object is patched later (decision 0007).
        unshared = (marshal.loads(text) for text in written)  # noqa: S302 - written above
        pairs = zip(served, unshared, strict=True)
        return PodSets(_pod_set(pod_set._replace(template=pods)) for pod_set, pods in pairs)

    return _shared.recall(key, size, work)


def ends_after(seconds: int | None, served: Iterable[ServedPodSet]) -> int | None:
    """Return after how many seconds a Job is ended by its own limit or by those of its pods.

    *seconds* is its own. None: nothing ends it. A pod beyond its limit fails, and so does each that
    takes its place:
    https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup

    Raises:
        FieldError: a limit is no whole number.

    """
    limits = [seconds]
    for pod_set in served:
        here = child(".".join(pod_set.path or ()), "spec")
        spec = fields.mapping(pod_set.template, "spec", ".".join(pod_set.path or ()))
        of_pods = fields.integer(spec, "activeDeadlineSeconds", here)
        limits += [pod_set.limit_seconds, of_pods and of_pods * pod_set.rounds]
    return min((limit for limit in limits if limit is not None), default=None)


def most_by_name(prefix: str, suffix: str = "", *, now: int) -> int:
    """Return how many pods may be numbered from 0 on between two texts in a name.

    *now*: how many there are, which are what the submitter wanted. Names of pods are labels, of at
    most 63 characters: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
    """
    digits = _LONGEST_LABEL - len(prefix) - len(suffix)
    # As many digits as the largest number has are always enough.
    most = int("1" + "0" * min(max(digits, 0), len(str(MOST_REPLICAS))))
    return max(now, min(most, MOST_REPLICAS))


def check_pod_sets(served: Sequence[ServedPodSet]) -> None:
    """Refuse more pod sets than Kueue takes.

    Raises:
        FieldError: there are more.

    """
    if len(served) > MOST_POD_SETS:
        raise FieldError("spec", f"{len(served)} pod sets, more than Kueue takes ({MOST_POD_SETS})")


def name_of(source: Mapping[str, Any]) -> str:
    """Return a Job's name, or one as long as that which the API server will generate."""
    metadata = fields.mapping(source, "metadata", "")
    generated = fields.text(metadata, "generateName", "metadata")
    name = fields.text(metadata, "name", "metadata")
    return name or (f"{generated}{GENERATED_SUFFIX}" if generated else "")


def forget() -> None:
    """Empty the cache of shared templates."""
    _shared.clear()


def _check(served: Sequence[ServedPodSet], written: Sequence[bytes]) -> None:
    """Refuse a Job with containers that no patch could name, or one that takes long to decide."""
    places = [".".join(pod_set.path or ()) for pod_set in served]
    count = 0
    for pod_set, here in zip(served, places, strict=True):
        count += template.check_containers(pod_set.template, here, others=count)
    for pod_set, here, text in zip(served, places, written, strict=True):
        if len(text) > _LONGEST_UNCHECKED:
            template.check_entries(dict(pod_set.template), here)


def _pod_set(served: ServedPodSet) -> PodSet:
    return PodSet(
        name=served.name,
        count=max(0, served.pods),
        template=read_template(served.template, ".".join(served.path or ())),
        path=served.path,
        added=served.added,
        replicas=served.replicas,
    )


def _read_owner(metadata: Mapping[str, Any]) -> Owner | None:
    here = "metadata.ownerReferences"
    # Of several owners, Kubernetes lets at most one be the controller.
    for reference in fields.mappings(metadata, "ownerReferences", "metadata"):
        if fields.flag(reference, "controller", here):
            return Owner(
                api_version=fields.text(reference, "apiVersion", here),
                kind=fields.text(reference, "kind", here),
            )
    return None
