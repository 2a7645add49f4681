"""What is kept of a table of Kueue's tests: what a replay needs to build the case and judge it.

Times, messages, events and Kueue's internal state are left out. Of the Workloads that Kueue ends
with, only which hold quota and which were preempted is kept.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

JsonObject = dict[str, Any]

TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "pkg/scheduler": (
        "TestSchedule",
        "TestScheduleForFairSharing",
        "TestScheduleForAFS",
        "TestScheduleRecomputePreemptionTargets",
        "TestScheduleConcurrentAdmission",
        "TestEntryOrdering",
        "TestEntryComparerLess",
        "TestResourcesToReserve",
    ),
    "pkg/scheduler/flavorassigner": (
        "TestAssignFlavors",
        "TestHierarchical",
        "TestReclaimBeforePriorityPreemption",
        "TestIsPreferred",
    ),
    "pkg/scheduler/preemption": (
        "TestPreemption",
        "TestHierarchicalPreemptions",
        "TestFairPreemptions",
        "TestCandidatesOrdering",
    ),
    "pkg/cache/scheduler": (
        "TestAvailable",
        "TestDominantResourceShare",
        "TestFindTopologyAssignments",
    ),
}
"""Kueue's package to its tests that are replayed."""

_META: Final = ("kueue", "package", "source", "test", "featureGates")
_SETUP: Final = (
    "fairSharing",
    "flavorInformation",
    "flavorName",
    "flvs",
    "preemptionFairSharing",
    "testCq",
)
_DROPPED: Final = frozenset(
    {
        "DelayedTopologyRequest",
        "FlavorAssignmentAttempts",
        "LastAssignment",
        "LastEvaluatedGeneration",
        "LastState",
        "NoFitReason",
        "NominationMapping",
        "Requests",
        "SchedulingHash",
        "SecondPassIteration",
        "TAS",
        "TotalRequests",
        "TriedFlavorIdx",
        "admissionError",
        "cfg",
        "clk",
        "eventCmpOpts",
        "fakeClock",
        "generation",
        "ignoreEventMessageCmpOpts",
        "line",
        "message",
        "observedGeneration",
        "quotaCheckStrategy",
        "restartPolicy",
        "scenarios",
        "schedulingStats",
        "schedulingTimeout",
        "wantEvents",
        "wantPreempted",
        "wantSkippedPreemptions",
        "wantWorkloadUseMergePatch",
        "wlInfo",
    }
)
"""What no replay reads, wherever it stands; "wantPreempted" is the number of victims, or a list."""
_COUNTS: Final = frozenset({"admittedWorkloads", "pendingWorkloads", "reservingWorkloads"})
_MEANT_EMPTY: Final = frozenset({"namespaceSelector"})
"""What selects everything while it is empty, and nothing without it."""
_BUILDING_BLOCKS: Final = ("base", "binaryTrees", "default", "input", "multipod", "scattered")
"""Kueue's names of what cases are made of begin so."""
_WORTH_A_NAME: Final = 200
"""Characters of a value from which on a case names it instead of repeating it."""


def pruned(table: Mapping[str, Any]) -> JsonObject:
    """Return what is kept of a table as the Go program wrote it."""
    common = _kept(table["common"])
    names = {
        text: name
        for name, value in common.items()
        if name.startswith(_BUILDING_BLOCKS) and len(text := compact(value)) > _WORTH_A_NAME
    }
    cases = [_case(record, names) for record in table["cases"]]
    used = {value["common"] for case in cases for value in case.values() if _is_named(value)}
    return {
        "meta": {name: table["meta"][name] for name in _META if name in table["meta"]},
        "common": {
            name: value
            for name, value in common.items()
            if name in used or not name.startswith(_BUILDING_BLOCKS)
        },
        "cases": cases,
    }


def resolved(case: Mapping[str, Any], common: Mapping[str, Any]) -> JsonObject:
    """Return a case with the values that it only names."""
    return {
        name: common[value["common"]] if _is_named(value) else value for name, value in case.items()
    }


def lines(table: Mapping[str, Any]) -> str:
    """Write a pruned table as JSON with one case a line."""
    cases = ",\n".join(map(compact, table["cases"]))
    meta, common = compact(table["meta"]), compact(table["common"])
    return f'{{"meta":{meta},\n"common":{common},\n"cases":[\n{cases}\n]}}\n'


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"common"}


def _case(record: Mapping[str, Any], names: Mapping[str, str]) -> JsonObject:
    case = record["case"]
    kept = {
        **_kept(case),
        **_kept({name: record.get("setup", {}).get(name) for name in _SETUP}),
        "name": record["name"],
        "line": record["line"],
        "objects": _kept([*record.get("objects", ()), *(case.get("objects") or ())]),
        "featureGates": (case.get("featureGates") or {}) | (record.get("featureGates") or {}),
    }
    if replaced := case.get("preemptWorkloadSlice"):
        kept["preemptWorkloadSlice"] = replaced["TotalRequests"]
    if "wantWorkloads" in kept:
        after = kept.pop("wantWorkloads")
        before = kept.get("workloads", []) + kept.get("admitted", [])
        kept["wantVictims"] = dict(_victims(after).items() - _victims(before).items())
        # What the preemption tests admit is not the question there.
        if "admitted" not in kept:
            kept.setdefault("wantAssignments", _reserved(after))
    elif isinstance(case.get("wantPreempted"), list):
        pairs = (victim.rsplit(":", 1) for victim in case["wantPreempted"])
        kept["wantVictims"] = dict(pairs)
    return {
        name: {"common": names[text]} if (text := compact(value)) in names else value
        for name, value in kept.items()
        if value not in (None, [], {})
    }


def _victims(workloads: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Map the preempted of some Workloads to Kueue's reason."""
    return {
        _key(workload): condition["reason"]
        for workload in workloads
        for condition in workload.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("Preempted", "True")
    }


def _reserved(workloads: Iterable[Mapping[str, Any]]) -> JsonObject:
    """Map those of some Workloads that hold quota to their admission."""
    return {
        _key(workload): workload["status"]["admission"]
        for workload in workloads
        if "admission" in workload.get("status", {})
    }


def _key(workload: Mapping[str, Any]) -> str:
    metadata = workload["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _kept(value: Any) -> Any:
    """Return a value without what no replay reads and without what is empty."""
    if isinstance(value, dict):
        return dict(_members(value))
    if isinstance(value, list):
        return [_kept(member) for member in value]
    return value


def _members(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, member in value.items():
        kept = None if name in _DROPPED or name in _COUNTS else _kept(member)
        if kept not in (None, {}, [], "") or (kept == {} and name in _MEANT_EMPTY):
            yield name, kept
