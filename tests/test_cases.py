"""Runs tests/cases/*.yaml through the very function that admission runs."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from tests.learn.served import points_of
from tests.manifest_places import look
from webhook.admission import patch
from webhook.cost.congestion import by_queue
from webhook.decide.applicant import Moment
from webhook.flow import create
from webhook.jobs import KINDS, JobKind
from webhook.learn import device_runs, job_class
from webhook.learn.device_runs import UNKNOWN_BOUND, UNKNOWN_PART, UNKNOWN_WATTS, DeviceRun
from webhook.learn.job_class import Mark
from webhook.learn.run_records import ClassRecord, config_map, shard_of
from webhook.model.decision import CreateOutcome, Decided, Skipped
from webhook.model.forecasts import JobClass
from webhook.model.job import DECIDED_BY, JOB_CLASS, OPTION_LABEL, read_requester
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.state import forecast_input
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import Snapshot, updated
from webhook.state.snapshot_file import read_state

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.yaml"))
MOMENT = Moment(now=0.0, unix=1795240800.0, time="2026-11-21T06:00:00Z", uid="5f0c")
TIME = "2026-11-21T05:00:00Z"
NOW = "2026-11-21T06:00:00Z"
ASKED = {"cpu": "4", "memory": "6Gi"}
GPU = "nvidia.com/gpu"
PENDING = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "observedGeneration": 1,
}
OTHER = JobClass("other", "~other")
OTHERS = {"annotations": {JOB_CLASS: job_class.mark_text(Mark(OTHER, 0))}}
UNKNOWN = {"part": UNKNOWN_PART, "watts": UNKNOWN_WATTS, "bound": UNKNOWN_BOUND}

Object = dict[str, Any]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_case(path, tmp_path):
    case = yaml.safe_load(path.read_text())
    known = known_of(case, tmp_path, ())
    shared = {"job": case["job"], "decided": case.get("decided")}
    clusters = {
        name: occupancy_of(in_worker(known, name, {**shared, **cluster}, tmp_path))
        for name, cluster in case.get("clusters", {}).items()
    }
    occupancy = replace(occupancy_of(known), clusters=clusters)

    moment = replace(MOMENT, requester=read_requester(case.get("by", {}), "by"))
    outcome = create.consider(case["job"], kind_of(case["job"]), occupancy, moment, create.Rules())

    patched = apply(outcome, case["job"])
    assert found(outcome, patched, case["want"]) == case["want"]


def kind_of(job: Object) -> JobKind:
    group, _, version = job["apiVersion"].rpartition("/")
    return KINDS[group, version, job["kind"]]


def known_of(case: Object, folder: Path, policies: tuple[FallbackPolicy, ...]) -> Snapshot:
    """Read a state, which was so *age* seconds ago, and forecast what *policies* ask for."""
    path = folder / "snapshot.json"
    path.write_text(json.dumps({"kind": "List", "items": objects_of(case)}))
    state = read_state(str(path))
    snapshot = state.snapshot(-float(case.get("age", 0)), MOMENT.unix)
    snapshot = updated(snapshot, policies=policies or snapshot.fallback.policies)
    return forecast_input.with_forecasts(state, snapshot, MOMENT.unix)


def in_worker(manager: Snapshot, name: str, case: Object, folder: Path) -> Snapshot:
    """Read the state of a worker cluster, with what is scarce there."""
    known = known_of(case, folder, manager.fallback.policies)
    scarce = by_queue(manager.costs.scarcity, known.setup, None, MOMENT.unix, name)
    return updated(known, congestion=scarce)


def objects_of(case: Object) -> list[Object]:
    world = yaml.safe_load((CASES / "worlds" / f"{case['world']}.yaml").read_text())
    items = {identity(item): item for item in world}
    for item in case.get("objects", ()):
        items[identity(item)] = item
    kept = [item for item in items.values() if not item.get("absent")]
    return [
        *kept,
        *workloads(case, kept),
        *crowds(case, kept),
        *ended(case, kept),
        *dispatching(case, kept),
        *measured(case),
    ]


def identity(item: Object) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def workloads(case: Object, items: list[Object]) -> list[Object]:
    """Make as many Workloads as the case counts in each LocalQueue."""
    queues = {i["metadata"]["name"]: i["spec"] for i in items if i["kind"] == "LocalQueue"}
    specs = {i["metadata"]["name"]: i["spec"] for i in items if i["kind"] == "ClusterQueue"}
    marks = marks_of(items) if case.get("decided") else {}
    return [
        workload(
            name, f"{stage}-{number}", queues[name]["clusterQueue"], specs, stage, marks.get(name)
        )
        for stage in ("pending", "reserving")
        for name, count in case.get(stage, {}).items()
        for number in range(count)
    ]


def marks_of(items: list[Object]) -> Object:
    """Tell what decisions leave on pods: LocalQueue to their metadata."""
    return {
        option["queue"]: {
            "labels": {"kueue-fallback.dev/option": option["name"]},
            "annotations": {"kueue-fallback.dev/decided-by": item["metadata"]["name"]},
        }
        for item in items
        if item["kind"] == "FallbackPolicy"
        for option in item["spec"]["options"]
    }


def workload(
    queue: str, name: str, target: str, specs: Object, stage: str, marks: Object | None
) -> Object:
    (group, *_) = specs[target]["resourceGroups"]
    asked = ASKED | ({GPU: "1"} if GPU in group["coveredResources"] else {})
    flavor = group["flavors"][0]["name"]
    container = {"name": "main", "resources": {"requests": asked}}
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": dict.fromkeys(asked, flavor),
        "resourceUsage": asked,
    }
    reserved: Object = {"type": "QuotaReserved", "status": "False", "reason": "Pending"}
    status: Object = {"conditions": [reserved]}
    if stage == "reserving":
        reserved["status"] = "True"
        status["admission"] = {"clusterQueue": target, "podSetAssignments": [assigned]}
        status["conditions"] += [{"type": "Admitted", "status": "True", "lastTransitionTime": NOW}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"{queue}-{name}",
            "namespace": "research",
            "creationTimestamp": TIME,
        },
        "spec": {
            "queueName": queue,
            "active": True,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {"metadata": marks or {}, "spec": {"containers": [container]}},
                }
            ],
        },
        "status": status,
    }


def crowds(case: Object, items: list[Object]) -> list[Object]:
    """Make the Workloads that the case describes by how they differ from one of its Job."""
    return [
        like_the_job(one_of(crowd, f"crowd-{place}-{number}", number), case["job"], items)
        for place, crowd in enumerate(case.get("workloads", ()))
        for number in range(crowd.get("times", 1))
    ]


def one_of(crowd: Object, name: str, number: int) -> Object:
    """Name one of a crowd: of those that run each began a bit before the last one, of those that
    wait each came a second after.
    """
    running = crowd.get("running")
    if running is not None:
        return {**crowd, "name": name, "running": running + number * crowd.get("apart", 0)}
    return {**crowd, "name": name, "age": crowd.get("age", 7200) - number}


def like_the_job(crowd: Object, job: Object, items: list[Object]) -> Object:
    template = copy.deepcopy(job["spec"]["template"])
    template["metadata"] = crowd.get("template") or (OTHERS if crowd.get("other") else {})
    if "decided" in crowd:
        template["metadata"] = decided(crowd["decided"], job)
    resources = template["spec"]["containers"][0]["resources"]
    if "asks" in crowd:
        resources.update(requests=crowd["asks"], limits={})
    pods = {"name": "main", "count": 1, "template": template, **crowd.get("podSet", {})}
    status: Object = {"conditions": [PENDING]}
    if "running" in crowd:
        status = admitted(crowd, resources["requests"], pods["count"], items)
    status["conditions"] += crowd.get("conditions", ())
    if "counted" in crowd:
        status["resourceRequests"] = [{"name": "main", "resources": crowd["counted"]}]
    metadata = {
        "name": crowd["name"],
        "namespace": "research",
        "uid": crowd["name"],
        "creationTimestamp": ago(crowd.get("age", 7200)),
        "generation": 1,
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata | crowd.get("metadata", {}),
        "spec": {
            "queueName": crowd["queue"],
            "active": True,
            "priority": crowd.get("priority", 0),
            "podSets": [pods],
        },
        "status": status,
    }


def decided(by: Object, job: Object) -> Object:
    """Tell what a decision leaves on pods, with the seconds that their owner said they run."""
    mark = Mark(job_class.of_job(kind_of(job).read(job)), 1, by.get("said", 0))
    return {
        "labels": {OPTION_LABEL: by["option"]},
        "annotations": {DECIDED_BY: by["policy"], JOB_CLASS: job_class.mark_text(mark)},
    }


def admitted(crowd: Object, asked: Object, count: int, items: list[Object]) -> Object:
    """Make the status of a Workload that runs, in the first flavor unless the case names one."""
    target, first = place_of(crowd["queue"], items)
    assigned = {
        "name": "main",
        "count": count,
        "flavors": dict.fromkeys(asked, crowd.get("flavor", first)),
        "resourceUsage": {resource: many(amount, count) for resource, amount in asked.items()},
    }
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "lastTransitionTime": ago(crowd["running"]),
        }
        for kind in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": target, "podSetAssignments": [assigned]}
    return {"admission": admission, "conditions": conditions}


def many(amount: str, count: int) -> str:
    """Multiply a quantity: 4 times `6Gi` are `24Gi`."""
    digits, unit = re.fullmatch(r"(\d+)(\D*)", amount).groups()
    return f"{int(digits) * count}{unit}"


def ended(case: Object, items: list[Object]) -> list[Object]:
    """Make a Workload for each run of the Job's class that the case tells of."""
    own = job_class.of_job(kind_of(case["job"]).read(case["job"]))
    return [
        finished(run, f"ended-{group}-{number}", OTHER if other else own, items)
        for group, run in enumerate(case.get("ended", ()))
        for number in range(run.get("times", 1))
        for other in (run.get("other", False),)
    ]


def measured(case: Object) -> list[Object]:
    """Make the records of runs of the Job's class that were measured on the models of devices."""
    own = job_class.of_job(kind_of(case["job"]).read(case["job"]))
    runs = {
        model: device_runs.pack(
            DeviceRun(int(MOMENT.unix) - number, number, **{**UNKNOWN, **run})
            for number, run in enumerate(of_model)
        )
        for model, of_model in case.get("measured", {}).items()
    }
    served = {place: points_of(**speed) for place, speed in case.get("served", {}).items()}
    if not runs and not served:
        return []
    record = config_map(shard_of(own.key), {own.key: ClassRecord(measured=runs, served=served)})
    record["metadata"]["namespace"] = "kueue-fallback"
    return [record]


def dispatching(case: Object, items: list[Object]) -> list[Object]:
    """Make Workloads that have quota, and wait for AdmissionChecks for so many seconds."""
    return [
        finished({"queue": queue, "reserved": ago(seconds)}, f"{queue}-{number}", OTHER, items)
        for queue, waits in case.get("dispatching", {}).items()
        for number, seconds in enumerate(waits)
    ]


def ago(seconds: float) -> str:
    return datetime.fromtimestamp(MOMENT.unix - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def finished(run: Object, name: str, found: JobClass, items: list[Object]) -> Object:
    annotations = {JOB_CLASS: job_class.mark_text(Mark(found, run.get("generation", 0)))}
    labels = {}
    if "option" in run:
        annotations[DECIDED_BY], labels[OPTION_LABEL] = run["policy"], run["option"]
    queue = run.get("queue", "cpu-lq")
    target, first = place_of(queue, items)
    moments = {
        "QuotaReserved": ("QuotaReserved", run.get("reserved")),
        "Admitted": ("Admitted", run.get("began")),
        "PodsReady": ("Started", run.get("ready")),
        "Finished": (run.get("reason", ""), run.get("at")),
    }
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": run.get("flavor", first)}}
    template = {
        "metadata": {"annotations": annotations, "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
    }
    status = {
        "admission": {"clusterQueue": target, "podSetAssignments": [assigned]},
        "admissionChecks": [{"name": "any"}] if "reserved" in run else [],
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at}
            for kind, (reason, at) in moments.items()
            if at
        ],
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "research",
            "uid": name,
            "creationTimestamp": run.get("reserved") or run["began"],
        },
        "spec": {
            "queueName": queue,
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": status,
    }


def place_of(queue: str, items: list[Object]) -> tuple[str, str]:
    """Find a LocalQueue's ClusterQueue, and the flavor that it tries first."""
    named = {
        (item["kind"], item["metadata"]["name"]): item["spec"] for item in items if "spec" in item
    }
    target = named["LocalQueue", queue]["clusterQueue"]
    return target, named["ClusterQueue", target]["resourceGroups"][0]["flavors"][0]["name"]


def apply(outcome: CreateOutcome, job: Object) -> Object:
    # Verifying a patch applies it to the very object that it is given.
    allowed = kind_of(job).allowed
    operations = patch.operations(outcome.edits, copy.deepcopy(job), allowed)
    return jsonpatch.apply_patch(copy.deepcopy(job), operations)


def found(outcome: CreateOutcome, patched: Object, want: Object) -> Object:
    """Answer each question that the case asks."""
    decision = outcome.decision if isinstance(outcome, Decided) else None
    options = decision.options if decision else ()
    answers: Object = {
        "skip": str(outcome.skip) if isinstance(outcome, Skipped) else None,
        "policy": decision.policy if decision else None,
        "option": decision.option if decision else None,
        "leftAlone": str(decision.left_alone) if decision and decision.left_alone else None,
        "reason": decision.reason if decision else None,
        "cluster": {o.option: o.cluster for o in options if o.cluster},
        "rejected": {o.option: str(o.rejection) for o in options if o.rejection},
        "untouched": not outcome.edits,
        "warnings": list(outcome.warnings),
        "patched": {path: look(patched, path) for path in want.get("patched", {})},
    }
    return {question: answers[question] for question in want}
