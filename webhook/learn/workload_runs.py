"""What a Workload shows of its run: its class, where it ran, since when, and how it ended.

Marks count only if they are signed; what is learned from a run is not known here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple, TypeAlias

from webhook.learn import job_class
from webhook.learn.job_class import NO_MARK, Mark
from webhook.learn.run_records import Run, WorkloadRun
from webhook.model import fields, marks
from webhook.model.faults import attempted
from webhook.model.fields import child
from webhook.model.job import DECIDED_BY, DECISION_ID, JOB_CLASS, OPTION_LABEL, PLAIN, PodSet
from webhook.model.pods import Memo, read_template
from webhook.model.signatures import SigningKeys, are_own_marks

NOT_SAID: Final = ("", "", "")
SUCCEEDED: Final = "Succeeded"
"""Reason of the condition Finished, as Kueue writes it; other reasons than these two end no run."""
FAILED: Final = "Failed"

_RECOVERED: Final = "Recovered"
"""Reason of the condition PodsReady if its pods were ready before."""
REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
"""Annotation of an elastic slice: which Workload it takes the place of."""
USED_OF_CONTAINERS = ("image", "command", "args", "resources", "restartPolicy")
USED_OF_SPEC = ("overhead", "resources")
"""Fields of containers, and of pods, that a class depends on."""
_LONGEST_USED = 65_536
"""Characters of what a class depends on, beyond which a Workload has none: reading it takes memory
many times its length, in each process that follows Workloads."""

_NODE_FAILURES: Final = "NodeFailures"
_PODS_LOST: Final = ("PodsReadyTimeout", "WaitForRecovery")
"""Why Kueue evicts, and the underlying cause: the pods were ready once, and did not come back."""
_MOST_EVICTIONS: Final = 255

_MARKS: Final = frozenset({DECISION_ID, DECIDED_BY, JOB_CLASS})

Conditions: TypeAlias = Mapping[str, tuple[str, str, str]]
"""Type to status, reason and last transition."""


class WorkloadPodSet(NamedTuple):
    """One of a Workload's pod sets, as it is written; read once, as many parts depend on it."""

    path: str
    name: str
    pod_count: int
    source: Mapping[str, Any]
    pod_metadata: Mapping[str, Any]
    """``metadata`` of its pod template."""
    pod_spec: Mapping[str, Any]
    """``spec`` of its pod template."""


def read_pod_sets(spec: Mapping[str, Any]) -> tuple[WorkloadPodSet, ...]:
    return tuple(_pod_set(entry, here) for entry, here in fields.objects(spec, "podSets", "spec"))


def _pod_set(source: Mapping[str, Any], here: str) -> WorkloadPodSet:
    template, path = fields.mapping(source, "template", here), f"{here}.template"
    return WorkloadPodSet(
        here,
        fields.text(source, "name", here),
        read_count(source, here),
        source,
        fields.mapping(template, "metadata", path),
        fields.mapping(template, "spec", path),
    )


def read_count(item: Mapping[str, Any], path: str) -> int:
    """Read a number of pods; Kubernetes takes 1 where none is written."""
    count = fields.integer(item, "count", path)
    return 1 if count is None else count


def read_conditions(status: Mapping[str, Any]) -> Conditions:
    return {
        fields.text(condition, "type", here): (
            fields.text(condition, "status", here),
            fields.text(condition, "reason", here),
            fields.text(condition, "lastTransitionTime", here),
        )
        for condition, here in fields.objects(status, "conditions", "status")
    }


def is_true(conditions: Conditions, name: str) -> bool:
    return conditions.get(name, NOT_SAID)[0] == "True"


def is_finished(source: Mapping[str, Any]) -> bool:
    return is_true(read_conditions(fields.mapping(source, "status", "")), "Finished")


def since(conditions: Conditions, name: str) -> int:
    """Return since when a condition is True, in seconds since 1970; 0: it is not."""
    status, _, time = conditions.get(name, NOT_SAID)
    return _seconds(time, "status.conditions") if status == "True" else 0


def admitted_at(conditions: Conditions) -> int:
    """Return the time of its last admission, in seconds since 1970; 0: it is not admitted."""
    return since(conditions, "Admitted")


def read_run(
    source: Mapping[str, Any], conditions: Conditions, mark: Mark | None
) -> WorkloadRun | None:
    """Return its run as far as it has come; None: it has no quota, or there is nothing to learn.

    It has ended if it succeeded or failed while it was admitted. Whose decision it ran by, and in
    which domains, is for the caller to add. *mark*: None if its class cannot be read.
    PodsReady exists unless the feature gate of Kueue's ``waitForPodsReady`` is off.
    """
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    admission = fields.mapping(status, "admission", "status")
    if not admission:
        return None
    checked = fields.sequence(status, "admissionChecks", "status")
    ready = since(conditions, "PodsReady")
    admitted = admitted_at(conditions)
    if conditions.get("PodsReady", NOT_SAID)[1] == _RECOVERED or ready < admitted:
        ready = 0
    begun = WorkloadRun(
        run=Run(0, zlib.crc32(str(metadata.get("uid")).encode()) & 0xFFFF),
        cluster_queue=intern(fields.text(admission, "clusterQueue", "status.admission")),
        flavors=read_flavors(admission),
        cluster=intern(fields.text(status, "clusterName", "status")),
        reserved=since(conditions, "QuotaReserved") if checked else 0,
        admitted=admitted,
        ready=ready,
        mark=mark or NO_MARK,
    )
    if mark is not None and (run := _ended(begun, metadata, conditions)) is not None:
        name = _name(fields.mapping(source, "spec", ""))
        return begun._replace(run=run, name=name, evicted=evictions_of(status))
    return begun if begun.reserved or (admitted and ready) else None


def _ended(begun: WorkloadRun, metadata: Mapping[str, Any], conditions: Conditions) -> Run | None:
    """Return a run that succeeded or failed while it was admitted; None: it is no such run.

    A Workload that replaces another slice has run longer than it shows, and is left out.
    """
    finished, reason, ended = conditions.get("Finished", NOT_SAID)
    if finished != "True" or reason not in (SUCCEEDED, FAILED):
        return None
    end = _seconds(ended, "status.conditions")
    if not begun.admitted or not begun.flavors or not end >= begun.admitted:
        return None
    if fields.mapping(metadata, "annotations", "metadata").get(REPLACES):
        return None
    return begun.run._replace(
        finished=end,
        seconds=end - begun.admitted,
        generation=begun.mark.generation,
        succeeded=reason == SUCCEEDED,
    )


def seconds_of(source: Mapping[str, Any], key: str, path: str) -> int:
    """Read a time as seconds since 1970; 0: there is none."""
    return _seconds(fields.text(source, key, path), child(path, key))


def read_mark(
    pod_sets: Sequence[WorkloadPodSet], annotations: Mapping[str, Any], namespace: str, kind: str
) -> Mark | None:
    """Return the mark that a decision wrote, or else one with the class of the pod sets.

    *kind* is that of the Job that owns the Workload, in any case of letters; empty: it is not
    known. None: the resources of the pod sets cannot be read, or they are too large.
    """
    if mark := job_class.parse_mark(marks.mark_of(annotations, JOB_CLASS), namespace):
        return mark
    used = [(pod_set.pod_count, _used(pod_set)) for pod_set in pod_sets]
    key = repr((kind or PLAIN, namespace, used))
    if len(key) > _LONGEST_USED:
        return None
    return _marks.recall(key, len(key), lambda: _mark_of(kind or PLAIN, used, namespace))


def own_marks(
    metadata: Mapping[str, Any], pod_sets: Sequence[WorkloadPodSet], keys: SigningKeys | None
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the annotations and labels by which a decision marked the first pod template it could.

    Both are empty if the marks are not signed with one of the *keys*, as whoever may create Jobs
    can write any (docs/decisions/0024-proof.md). None: there are no keys, and all marks count.
    """
    annotations, labels = _of_marked_template(pod_sets)
    if OPTION_LABEL not in labels and _MARKS.isdisjoint(annotations):
        return fields.EMPTY, fields.EMPTY
    texts = annotations.get(DECIDED_BY), labels.get(OPTION_LABEL), annotations.get(JOB_CLASS)
    signed = tuple(str(text or "") for text in texts)
    decision_id = str(annotations.get(DECISION_ID) or "")
    if not (decision_id or any(signed)):
        return fields.EMPTY, fields.EMPTY
    is_own = are_own_marks(
        decision_id,
        fields.text(metadata, "namespace", "metadata"),
        signed,
        keys,
        created=seconds_of(metadata, "creationTimestamp", "metadata"),
    )
    return (annotations, labels) if is_own else (fields.EMPTY, fields.EMPTY)


def _of_marked_template(
    pod_sets: Sequence[WorkloadPodSet],
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return annotations and labels of the first pod template that has a decision's id.

    Templates that are not in the Job, as those of a TrainJob's initializers, come without marks.
    """
    first: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    for pod_set in pod_sets:
        path = f"{pod_set.path}.template.metadata"
        annotations = fields.mapping(pod_set.pod_metadata, "annotations", path)
        texts = annotations, fields.mapping(pod_set.pod_metadata, "labels", path)
        if DECISION_ID in annotations:
            return texts
        first = first or texts
    return first or (fields.EMPTY, fields.EMPTY)


def read_flavors(admission: Mapping[str, Any]) -> str:
    """Return the flavors of its reservation, sorted, unique, joined by commas."""
    names = {
        name
        for assignment, here in fields.objects(admission, "podSetAssignments", "status.admission")
        for name in fields.texts(assignment, "flavors", here).values()
    }
    return intern(",".join(sorted(names)))


def evictions_of(status: Mapping[str, Any]) -> int:
    """Return how often a Workload was evicted as its Nodes or pods were lost."""
    stats = fields.mapping(status, "schedulingStats", "status")
    count = sum(
        fields.integer(eviction, "count", here) or 0
        for eviction, here in fields.objects(stats, "evictions", "status.schedulingStats")
        if (cause := _cause(eviction, here)) == _PODS_LOST or cause[0] == _NODE_FAILURES
    )
    return min(count, _MOST_EVICTIONS)


def _cause(eviction: Mapping[str, Any], path: str) -> tuple[str, str]:
    """Return the reason of an eviction, and its underlying cause."""
    return fields.text(eviction, "reason", path), fields.text(eviction, "underlyingCause", path)


@lru_cache(maxsize=4096)
def _seconds(written: str, path: str) -> int:
    # Times are whole seconds, and the times of Workloads that change together are one number.
    return int(fields.seconds_since_1970(written, path)) if written else 0


def _used(pod_set: WorkloadPodSet) -> Mapping[str, Any]:
    """Keep what a class depends on, as thousands of Workloads are of a few classes."""
    spec, path = pod_set.pod_spec, f"{pod_set.path}.template.spec"
    kept = {key: spec[key] for key in USED_OF_SPEC if key in spec}
    for key in ("containers", "initContainers"):
        kept[key] = [
            {name: container[name] for name in USED_OF_CONTAINERS if name in container}
            for container in fields.mappings(spec, key, path)
        ]
    return kept


_marks: Memo[Mark | None] = Memo(most=4096, most_bytes=4 << 20, longest=4096)
"""By what they depend on; Workloads of a namespace and class share one."""


def _mark_of(
    kind: str, used: Sequence[tuple[int, Mapping[str, Any]]], namespace: str
) -> Mark | None:
    """Return the mark of pods of one class; None: what they ask for cannot be read."""
    pods_class, _ = attempted(
        lambda: job_class.of_pods(
            tuple(
                PodSet(
                    name="",
                    count=count,
                    template=read_template({"spec": spec}, f"spec.podSets[{index}].template"),
                )
                for index, (count, spec) in enumerate(used)
            ),
            kind,
        )
    )
    return None if pods_class is None else Mark(pods_class.at(namespace), 0)


def _name(spec: Mapping[str, Any]) -> str:
    for pod_set, _ in fields.objects(spec, "podSets", "spec"):
        template = fields.mapping(pod_set, "template", "spec.podSets")
        pods = fields.mapping(template, "spec", "spec.podSets")
        for container, here in fields.objects(pods, "containers", "spec.podSets"):
            command = fields.sequence(container, "command", here)
            return intern(job_class.name_of(fields.text(container, "image", here), command))
    return ""
