"""A small good cluster, and of every watched kind an object that somebody makes hostile.

The tenant's namespace has queues of its own under the names of the team's, whose ClusterQueues no
one else uses: what happens there is nobody else's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.values import (
    decisions,
    digits,
    mutated,
    odd_json,
    quantities,
    scalars,
    texts,
    times,
)
from tests.reviews import light_job
from tests.state.kueue import configuration, deployment
from tests.state.objects import condition
from webhook.api import resources as kinds
from webhook.hindsight.journal import JournalEntry, Slot
from webhook.hindsight.journal import config_map as journal_map
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.job_class import Mark
from webhook.learn.run_records import Run, WorkloadRun
from webhook.learn.run_records import config_map as records_map
from webhook.model.forecasts import JobClass
from webhook.model.signatures import SigningKey, SigningKeys
from webhook.state.signing_keys import to_secret

Object = dict[str, Any]

TEAM: Final = "team"
TENANT: Final = "tenant"
OURS: Final = "kueue-fallback"
NOON: Final = 1_795_262_400
"""2026-11-21T12:00:00Z."""
_BEGAN, _ENDED = "2026-11-21T11:50:00Z", "2026-11-21T11:59:00Z"
ENFORCED: Final = {"light-gpu": "threshold", "forecast": "forecast"}
"""Policy to the value of the label workload-type of the Jobs that it matches."""


def _named(kind: str, name: str, namespace: str = "", **rest: Any) -> Object:
    metadata = {
        "name": name,
        "uid": f"uid-{kind}-{name}",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-11-21T06:00:00Z",
        "labels": {},
        "annotations": {},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"kind": kind, "metadata": metadata, **rest}


def _cluster_queue(name: str, flavor: str, **quotas: str) -> Object:
    resources = [
        {"name": resource, "nominalQuota": quota, "borrowingLimit": "0", "lendingLimit": "0"}
        for resource, quota in quotas.items()
    ]
    group = {
        "coveredResources": list(quotas),
        "flavors": [{"name": flavor, "resources": resources}],
    }
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "preemption": {"withinClusterQueue": "Never", "borrowWithinCohort": {"policy": "Never"}},
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch"},
        "resourceGroups": [group],
    }
    active = {**condition("Active"), "message": "fine"}
    return _named("ClusterQueue", name, spec=spec, status={"conditions": [active]})


def workload(
    name: str,
    namespace: str,
    cluster_queue: str,
    *conditions: Mapping[str, str],
    gpus: str = "1",
    marks: Mapping[str, str] | None = None,
) -> Object:
    container = {
        "name": "main",
        "image": f"{namespace}/trainer",
        "command": ["run"],
        "args": ["--steps", "20"],
        "resources": {"requests": {"cpu": "4", "nvidia.com/gpu": gpus}},
    }
    template = {
        "metadata": {"annotations": dict(marks or {}), "labels": {}},
        "spec": {"containers": [container], "activeDeadlineSeconds": 36_000},
    }
    pod_set = {"name": "main", "count": 1, "template": template}
    used = {"cpu": "4", "nvidia.com/gpu": gpus}
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": dict.fromkeys(used, f"{cluster_queue}-flavor"),
        "resourceUsage": used,
    }
    is_pending = any(each["status"] == "False" for each in conditions)
    found = _named("Workload", name, namespace)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name.removeprefix("job-")}
    found["metadata"]["ownerReferences"] = [{**owner, "uid": f"uid-{name}", "controller": True}]
    queue = "cpu-lq" if "cpu" in cluster_queue else "gpu-lq"
    found["spec"] = {"queueName": queue, "priority": 0, "active": True, "podSets": [pod_set]}
    found["status"] = {"conditions": [dict(each) for each in conditions]}
    if not is_pending:
        admission = {"clusterQueue": cluster_queue, "podSetAssignments": [assignment]}
        found["status"]["admission"] = admission
    return found


def _at(name: str, time: str, reason: str = "") -> dict[str, str]:
    return {**condition(name, reason=reason), "lastTransitionTime": time}


PENDING: Final = (condition("QuotaReserved", "False", "Pending"),)
RUNNING: Final = (_at("QuotaReserved", _BEGAN), _at("Admitted", _BEGAN), _at("PodsReady", _BEGAN))
OVER: Final = (*RUNNING, _at("Finished", _ENDED, "Succeeded"))
FAILED: Final = (*RUNNING, _at("Finished", _ENDED, "Failed"))


def policy(name: str, strategy: Mapping[str, Any]) -> Object:
    options = [
        {"name": "gpu", "queue": "gpu-lq", "guests": {"maxJobs": 3}},
        {
            "name": "cpu",
            "queue": "cpu-lq",
            "slowdown": 1.1,
            "guests": {"maxJobs": 3},
            "adaptation": {
                "accelerator": "Remove",
                "perRemoved": {"cpu": "4", "memory": "6Gi"},
                "env": {"RUN_ENV": "cpu"},
                "nodeSelector": {"remove": ["zone"], "set": {"pool": "cpu"}},
                "tolerations": {"remove": [{"key": "gpu"}], "add": [{"operator": "Exists"}]},
            },
        },
    ]
    match = {"jobSelector": {"matchLabels": {"workload-type": ENFORCED.get(name, name)}}}
    found = _named("FallbackPolicy", name)
    found["apiVersion"] = "kueue-fallback.dev/v1alpha1"
    found["spec"] = {
        "mode": "Enforce",
        "match": match,
        "options": options,
        "strategy": dict(strategy),
        "reconsider": {"after": "1m", "maxMoves": 3},
    }
    return found


KEYS: Final = SigningKeys(
    keys=(SigningKey(id="a", made=1, secret=b"1" * 32),), signing="a", since=1
)
"""Older than every object: nothing is believed without a signature."""
THRESHOLD: Final = {
    "type": "Threshold",
    "threshold": [
        {"option": "gpu", "orPendingBelow": 2},
        {"option": "cpu", "andReservingBelow": 3},
    ],
}
FORECAST: Final = {"type": "FinishTime", "finishTime": {"runTime": "20m"}}
_LIMITS: Final = {"type": "Container", "default": {"cpu": "4"}, "max": {"cpu": "64"}}
_OUR_WEBHOOK: Final = {"name": "create.kueue-fallback.dev", "namespaceSelector": {}}


def good() -> Mapping[str, list[Object]]:
    """Return, by kind, what every example begins with."""
    queues = [("gpu-cq", {"cpu": "64", "nvidia.com/gpu": "4"}), ("cpu-cq", {"cpu": "64"})]
    quotas = [*queues, *((f"tenant-{name}", quota) for name, quota in queues)]
    running = [workload(f"job-run-{n}", TEAM, "gpu-cq", *RUNNING) for n in range(4)]
    waiting = [workload(f"job-wait-{n}", TEAM, "gpu-cq", *PENDING) for n in range(9)]
    ended = [workload("job-over", TEAM, "gpu-cq", *OVER)]
    return {
        kinds.CLUSTER_QUEUES: [
            _cluster_queue(name, f"{name}-flavor", memory="256Gi", **quota)
            for name, quota in quotas
        ],
        kinds.LOCAL_QUEUES: [
            _named("LocalQueue", f"{name}-lq", space, spec={"clusterQueue": f"{prefix}{name}-cq"})
            for space, prefix in ((TEAM, ""), (TENANT, "tenant-"))
            for name in ("gpu", "cpu")
        ],
        kinds.FLAVORS: [_named("ResourceFlavor", f"{name}-flavor", spec={}) for name, _ in quotas],
        kinds.WORKLOADS: [*running, *waiting, *ended],
        kinds.NAMESPACES: [_named("Namespace", name) for name in (TEAM, TENANT)],
        kinds.POLICIES: [policy("light-gpu", THRESHOLD), policy("forecast", FORECAST)],
        kinds.KUEUE_CONFIG: [configuration("")],
        kinds.KUEUE_DEPLOYMENT: [deployment()],
        kinds.WEBHOOKS: [_named("Webhook", "ours", webhooks=[_OUR_WEBHOOK])],
        kinds.SIGNING_KEYS: [_named("Secret", kinds.SIGNING_KEYS, OURS, data=to_secret(KEYS))],
    }


def probes() -> Mapping[str, Object]:
    """Return Jobs of the team, one for each policy; the other one goes first under none."""
    labels = {"kueue.x-k8s.io/queue-name": "gpu-lq"}
    return {
        name: light_job("probe", labels={**labels, "workload-type": value})
        for name, value in {**ENFORCED, "none": "heavy"}.items()
    }


def _marks() -> dict[str, str]:
    prefix = "kueue-fallback.dev/"
    return {
        f"{prefix}class": "0123456789abcdef ~0123456789abcdef 1",
        f"{prefix}decision-id": "abc-0123abcd",
        f"{prefix}decided-by": "forecast",
    }


def _hostile_workloads() -> list[Object]:
    found = [
        workload(f"job-bad-{n}", TENANT, f"tenant-{name}-cq", *state, gpus=gpus, marks=_marks())
        for n, (name, state, gpus) in enumerate(
            [("gpu", PENDING, "1"), ("cpu", RUNNING, "0"), ("gpu", OVER, "1"), ("cpu", FAILED, "0")]
        )
    ]
    for each in found:
        each["metadata"]["uid"] = f"uid-{each['metadata']['name']}"
        metadata = each["spec"]["podSets"][0]["template"]["metadata"]
        metadata["labels"]["kueue-fallback.dev/option"] = "cpu"
    return found


def records() -> Object:
    """Return a shard of the records of runs."""
    runs = RunTimeLearner()
    for number in range(3):
        ended = WorkloadRun(
            run=Run(NOON - 100 * number, number, 60, generation=1, succeeded=number != 1),
            mark=Mark(JobClass("0123456789abcdef", "~0123456789abcdef"), 1),
            name="trainer",
            flavors="tenant-gpu-cq-flavor",
            policy="forecast",
            option="cpu",
        )
        runs.add(ended)
    return _placed(records_map(0, runs.records))


def journal() -> Object:
    """Return one hour of the journal."""
    entry = JournalEntry(
        key="w-1",
        uid="j-1",
        namespace=TENANT,
        name="bad",
        created=NOON - 100.0,
        admitted=NOON - 60,
        finished=NOON - 10,
        outcome="Succeeded",
        queue="gpu-lq",
        submitted="{}",
        ran="{}",
    )
    return _placed(journal_map(Slot(number=NOON // 3600, entries={"w-1": entry})))


def _placed(source: Mapping[str, Any]) -> Object:
    metadata = {**source["metadata"], "namespace": OURS, "resourceVersion": "3"}
    return {**source, "metadata": metadata}


def hostile_bases() -> Mapping[str, list[Object]]:
    """Return, by kind, what is made hostile: valid, and under names that nothing good has."""
    limits = [{"type": kind, **_LIMITS} for kind in ("Container", "Pod")]
    expression = {"key": "a", "operator": "In", "values": ["b"]}
    config = configuration("manageJobsWithoutQueueName: false\nfairSharing: {}\n")
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    check = {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"kind": "MultiKueueConfig", "name": "bad"},
    }
    return {
        kinds.CLUSTER_QUEUES: [_cluster_queue("bad-cq", "bad", cpu="4", memory="1Gi")],
        kinds.LOCAL_QUEUES: [_named("LocalQueue", "bad", TENANT, spec={"clusterQueue": "bad-cq"})],
        kinds.COHORTS: [
            _named("Cohort", "bad", spec={"parentName": "worse", "fairSharing": {"weight": "1"}})
        ],
        kinds.FLAVORS: [
            _named("ResourceFlavor", "bad", spec={"nodeLabels": {"a": "b"}, "nodeTaints": [taint]})
        ],
        kinds.WORKLOADS: _hostile_workloads(),
        kinds.CHECKS: [_named("AdmissionCheck", "bad", spec=check, status={"conditions": []})],
        kinds.MULTIKUEUE_CONFIGS: [_named("MultiKueueConfig", "bad", spec={"clusters": ["a"]})],
        kinds.MULTIKUEUE_CLUSTERS: [
            _named("MultiKueueCluster", "bad", spec={}, status={"conditions": []})
        ],
        kinds.PRIORITY_CLASSES: [_named("WorkloadPriorityClass", "bad", value=1000)],
        kinds.POD_PRIORITIES: [_named("PriorityClass", "bad", value=1000, globalDefault=False)],
        kinds.DEVICE_CLASSES: [
            _named("DeviceClass", "bad", spec={"extendedResourceName": "nvidia.com/gpu"})
        ],
        kinds.NAMESPACES: [_named("Namespace", "bad")],
        kinds.LIMIT_RANGES: [_named("LimitRange", "bad", TENANT, spec={"limits": limits})],
        kinds.RUNTIME_CLASSES: [
            _named("RuntimeClass", "bad", overhead={"podFixed": {"cpu": "250m"}})
        ],
        kinds.POLICIES: [policy("bad", THRESHOLD), policy("worse", FORECAST)],
        kinds.KUEUE_CONFIG: [config],
        kinds.KUEUE_DEPLOYMENT: [deployment()],
        kinds.OFF_SWITCH: [
            _named("ConfigMap", "kueue-fallback-off", OURS, data={"namespaces": "a, b"})
        ],
        kinds.WEBHOOKS: [
            _named(
                "Webhook",
                "bad",
                webhooks=[
                    {**_OUR_WEBHOOK, "namespaceSelector": {"matchExpressions": [expression]}}
                ],
            )
        ],
        kinds.RUN_TIMES: [records()],
    }


OF_A_TENANT: Final = (kinds.WORKLOADS, kinds.LOCAL_QUEUES, kinds.LIMIT_RANGES)
"""Kinds whose objects in one namespace are nobody else's business while they are there, too."""


@st.composite
def hostile(draw: st.DrawFn, kind: str) -> Object:
    """Draw an object of a kind; its place is its own, whatever else it says."""
    base = draw(st.sampled_from(hostile_bases()[kind]))
    found: Object = draw(mutated(_without_place(base), st.one_of(digits, quantities, times)))
    metadata = found.get("metadata")
    if isinstance(metadata, dict):
        found["metadata"] = {**metadata, **_place(base)}
        if draw(st.booleans()):
            found["metadata"] |= {"annotations": draw(texts()), "labels": draw(texts())}
    _mark_pods(draw, found)
    return found


def _place(base: Object) -> Object:
    return {key: base["metadata"][key] for key in ("name", "namespace") if key in base["metadata"]}


def _without_place(base: Object) -> Object:
    metadata = {k: v for k, v in base["metadata"].items() if k not in ("name", "namespace")}
    return {**base, "metadata": metadata}


def _mark_pods(draw: st.DrawFn, found: Object) -> None:
    """Let the pod templates of some say more than they were drawn to say."""
    templates = list(_templates(found))
    if templates and draw(st.integers(0, 3)):
        marks = {"annotations": draw(texts()), "labels": draw(texts())}
        for template in templates:
            template["metadata"] = marks
        for container in _containers(templates):
            if draw(st.booleans()):
                container["args"] = draw(st.lists(st.one_of(digits, decisions), max_size=2))


def _templates(found: Any) -> list[Object]:
    if isinstance(found, list):
        return [each for item in found for each in _templates(item)]
    if not isinstance(found, dict):
        return []
    here = found.get("template")
    return [here] if isinstance(here, dict) else _templates(list(found.values()))


def _containers(templates: list[Object]) -> list[Object]:
    specs = [each.get("spec") for each in templates]
    lists = [spec.get("containers") for spec in specs if isinstance(spec, dict)]
    return [item for each in lists if isinstance(each, list) for item in each if type(item) is dict]


def stored_job(name: str = "bad") -> Object:
    """Return a decided Job of the tenant, as it is in the cluster."""
    found = light_job(name, namespace=TENANT)
    found["metadata"] |= {
        "uid": f"uid-{name}",
        "resourceVersion": "5",
        "creationTimestamp": "2026-11-21T05:58:00Z",
        "annotations": {},
        "ownerReferences": [],
    }
    found["spec"]["suspend"] = True
    found["status"] = {"conditions": [], "ready": 0, "startTime": _BEGAN}
    return found


@st.composite
def hostile_jobs(draw: st.DrawFn, *, is_whole: bool = False) -> Object:
    """Draw a Job of the tenant; unless it *is_whole*, half are none that the API server takes."""
    found = stored_job()
    metadata = found["metadata"]
    metadata["annotations"] = draw(texts(6))
    metadata["labels"] |= draw(texts(2))
    metadata["labels"]["workload-type"] = draw(st.sampled_from([*ENFORCED.values(), "heavy"]))
    if draw(st.booleans()):
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = "gpu-lq"
    template = found["spec"]["template"]
    template["metadata"] = {"annotations": draw(texts(4)), "labels": draw(texts(2))}
    container = template["spec"]["containers"][0]
    container["resources"] = draw(mutated(container["resources"], quantities))
    container["args"] = draw(st.lists(st.one_of(digits, times, decisions), max_size=3))
    container["image"] = draw(st.sampled_from(["stable-diffusion", "", "a:b@c/d", "x" * 5_000]))
    found["spec"]["suspend"] = draw(st.booleans())
    if not is_whole and draw(st.booleans()):
        found["spec"] = draw(mutated(found["spec"], st.one_of(scalars, odd_json)))
    return found
