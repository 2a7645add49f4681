"""Texts and shapes on which a careless expression or loop takes more than their size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.reviews import light_job, review
from tests.servers import Server, paper_snapshot
from webhook.jobs import BY_NAME, KINDS
from webhook.model.queues import KueueConfig
from webhook.state.snapshot import Snapshot

OURS = "kueue-fallback.dev/"
UNITS = (
    *("a-", "f1", "1.", "12g-", "aaaaaaaaz", "a1-z", "a:", "- ", "; ", ": ", ".", "/", "mi1", "\\"),
    *("metadata.annotations[", "1h", "1e9", "$(", "\u2026", "\u00e9", "{[", '"', "\n", "deadline"),
)
"""Repeated up to a size, each is bad for one kind of expression: numbers, words, places, times."""


def answer_all(size: int) -> int:
    """Let a server answer reviews of all of them; returns how many it admitted."""
    server = Server(all_kinds())
    answers = [server.post(json.dumps(asked(job))) for _, job in jobs(size)]
    server.lines.close()
    return sum(answer.status_code == 200 for answer in answers)


def all_kinds() -> Snapshot:
    """Give the paper's queues, with a policy for Jobs of every kind."""
    frameworks = tuple(kind.framework for kind in KINDS.values())
    return paper_snapshot(kinds=sorted(BY_NAME), kueue=KueueConfig(frameworks=frameworks))


def asked(job: dict[str, Any]) -> dict[str, Any]:
    """Give the review of a Job of any kind."""
    kind = BY_NAME[job["kind"]]
    return review(job, kind={"group": kind.group, "version": kind.version, "kind": kind.kind})


def jobs(size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give a Job for each unit and each place that holds a text, and for each shape."""
    for unit in UNITS:
        text = unit * (size // len(unit))
        for place, job in _with_text(text):
            yield f"{place} of {unit!r}", job
    yield from _shapes(size // 40)
    yield from _of_other_kinds(size // 40)


def _with_text(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for place in ("args", "command"):
        yield place, _with_container({place: [text]})
    yield "image", _with_container({"image": text})
    yield "variable", _with_container({"env": [{"name": "RUN_ENV", "value": text}]})
    yield "variable's name", _with_container({"env": [{"name": text, "value": "gpu"}]})
    yield "amount", _with_container({"resources": {"requests": {"cpu": text}}})
    yield "resource", _with_container({"resources": {"requests": {text: "1"}}})
    yield "container", _with_container({"name": text})
    for key in ("run-time", "deadline", "max-wait", "max-slowdown", "allow", "decision", "policy"):
        yield key, _with_metadata({"annotations": {OURS + key: text}})
    yield "our key", _with_metadata({"annotations": {OURS + text: "x"}})
    yield "our label", _with_metadata({"labels": {OURS + text: "x"}})
    yield "queue", _with_metadata({"labels": {"kueue.x-k8s.io/queue-name": text}})
    yield "name", light_job(text)
    for key, value in (
        ("nodeSelector", {text: text}),
        ("tolerations", [{"key": text, "value": text, "operator": "Equal"}]),
        ("affinity", _affinity([{"key": text, "operator": "In", "values": [text]}])),
        ("runtimeClassName", text),
        ("priorityClassName", text),
    ):
        yield key, _with_pods({key: value})


def _shapes(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    keys = [f"nvidia.com/{number}" for number in range(count)]
    each = dict.fromkeys(keys, "1")
    container = light_job()["spec"]["template"]["spec"]["containers"][0]
    yield "many arguments", _with_container({"args": keys})
    yield "many variables", _with_container({"env": [{"name": key, "value": "1"} for key in keys]})
    yield "many resources", _with_container({"resources": {"requests": each, "limits": each}})
    for place in ("containers", "initContainers"):
        yield f"many {place}", _with_pods({place: [{**container, "name": key} for key in keys]})
    yield "many selectors", _with_pods({"nodeSelector": each})
    yield "many tolerations", _with_pods({"tolerations": [{"key": key} for key in keys]})
    expressions = [{"key": key, "operator": "Exists"} for key in keys]
    yield "many expressions", _with_pods({"affinity": _affinity(expressions)})
    values = [{"key": "gpu", "operator": "In", "values": keys}]
    yield "many values", _with_pods({"affinity": _affinity(values)})
    for place in ("labels", "annotations"):
        yield f"many {place}", _with_metadata({place: each})
        ours = {f"{OURS}{key.partition('/')[2]}": "x" for key in keys}
        yield f"many {place} of ours", _with_metadata({place: ours})
    owners = [{"kind": "Job", "apiVersion": "batch/v1", "name": key} for key in keys]
    yield "many owners", _with_metadata({"ownerReferences": owners})


def _of_other_kinds(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give Jobs of many pod sets, of large ones, and of more pods than anybody could run."""
    pods = light_job()["spec"]["template"]
    container = pods["spec"]["containers"][0]
    crowded = {"spec": {"containers": [{**container, "name": f"{n}"} for n in range(100)]}}
    wordy = {"spec": {"containers": [{**container, "args": ["a-" * count]}]}}
    for kind in sorted(BY_NAME.keys() - {"Job"}):
        for what, template, sets, pods_each in (
            ("many pod sets", {"spec": {"containers": [{"name": "a"}]}}, count // 10, 1),
            ("many containers", crowded, 16, 1),
            ("long arguments", wordy, 8, 1),
            ("many pods", pods, 1, (1 << 31) - 1),
            ("more pods than a double holds", pods, 1, 10**399),
        ):
            yield (
                f"{what} of a {kind}",
                of_kind(kind, spec_of(kind, template, sets=sets, pods=pods_each)),
            )
    empty = {"template": {"apiVersion": "batch/v1", "kind": "Job"}}
    paths = {"podSets": [{"path": "template" + ".spec" * count}] * 3}
    yield "long paths", of_kind("AppWrapper", {"components": [{**empty, **paths}]})
    names = {"pytorchReplicaSpecs": {"x" * count: {}}}
    yield "a long replica type", of_kind("PyTorchJob", names)


def of_kind(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    job = light_job()
    return {**job, "apiVersion": BY_NAME[kind].api_version, "kind": kind, "spec": spec}


def spec_of(kind: str, template: dict[str, Any], *, sets: int, pods: int) -> dict[str, Any]:
    """Give a spec of a kind, with as many pod sets as it can have."""
    replica = {"replicas": pods, "template": template}
    job = {"spec": {"parallelism": pods, "template": template}}
    groups = [{"groupName": f"{n}", "numOfHosts": pods, **replica} for n in range(sets)]
    ray = {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}
    replicated = [{"name": f"{n}", "replicas": pods, "template": job} for n in range(sets)]
    wrapped = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    wrapped |= {"spec": {"replicatedJobs": replicated[:18]}}
    trained = dict.fromkeys(("Launcher", "Chief", "Master", "PS", "Worker", "Evaluator"), replica)
    group = {"size": pods, "leaderTemplate": template, "workerTemplate": template}
    specs = {
        "AppWrapper": {"components": [{"template": wrapped}] * max(1, sets // 18)},
        "JobSet": {"replicatedJobs": replicated},
        "LeaderWorkerSet": {"replicas": pods, "leaderWorkerTemplate": group},
        "RayCluster": ray,
        "RayJob": {"rayClusterSpec": ray},
    }
    framework = "xgb" if kind == "XGBoostJob" else kind.removesuffix("Job").lower()
    served = {f"{framework}ReplicaSpecs": trained} if kind.endswith("Job") else replica
    return specs.get(kind, served)


def _affinity(expressions: list[Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _with_container(more: dict[str, Any]) -> dict[str, Any]:
    job = light_job()
    job["spec"]["template"]["spec"]["containers"][0] |= more
    return job


def _with_pods(more: dict[str, Any]) -> dict[str, Any]:
    job = light_job()
    job["spec"]["template"]["spec"] |= more
    return job


def _with_metadata(more: dict[str, Any]) -> dict[str, Any]:
    job = light_job()
    metadata = job["metadata"]
    for key, value in more.items():
        merged = isinstance(value, dict)
        metadata[key] = {**metadata.get(key, {}), **value} if merged else value
    return job
