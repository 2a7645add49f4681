"""A scenario's objects for one arm on a shared control plane: under names of its own. Pure."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from bench.experiment.arms import RECONSIDER, Arm
from hack import kwok
from hack.kwok import ACCELERATOR_LABEL
from webhook.model.policy.fallback_policy import seconds
from webhook.simulate.scenario import STATIC, Scenario, Submission

Object = dict[str, Any]

PART_OF: Final = {"app.kubernetes.io/part-of": "kueue-fallback-experiment"}
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
RUN_ANNOTATION: Final = "sim.example.com/{}-run"
_PRIORITY: Final = "WorkloadPriorityClass"
_PRICING: Final = ("AcceleratorProfile", "Tariff")


def namespace_of(arm: Arm) -> str:
    return f"experiment-{arm.key}"


def queues(scenario: Scenario, arm: Arm) -> list[Object]:
    """Return namespace, flavors with what they cost, priorities and queues, in order of creation.

    Priorities are every arm's; their names stand on Jobs.
    """
    order = ("Namespace", "ResourceFlavor", *_PRICING, _PRIORITY, "ClusterQueue", "LocalQueue")
    found = [_renamed(item, arm) for item in scenario.objects if item["kind"] in order]
    return sorted(found, key=lambda item: order.index(item["kind"]))


def nodes(scenario: Scenario) -> list[Object]:
    """Return a node for each kind of device that a flavor of the scenario selects."""
    flavors = (item for item in scenario.objects if item["kind"] == "ResourceFlavor")
    labels = (item.get("spec", {}).get("nodeLabels", {}) for item in flavors)
    devices = {each[ACCELERATOR_LABEL] for each in labels if ACCELERATOR_LABEL in each}
    return [kwok.node_of(device) for device in sorted(devices)]


def policies(scenario: Scenario, arm: Arm, *, time_scale: float) -> list[Object]:
    """Return the arm's own policies, for its namespace alone."""
    if arm.strategy == STATIC:
        return []
    (decided,) = scenario.arms([arm.strategy])
    names = {policy.name for policy in decided.policies}
    wanted = (item for item in scenario.policy_objects if item["metadata"]["name"] in names)
    return [_policy(item, arm, time_scale) for item in wanted]


def job(scenario: Scenario, submission: Submission, arm: Arm, *, round_name: str) -> Object:
    """Return the Job as one round submits it; its pod runs as long as the scenario says.

    Classes of Jobs are told apart by their image: an arm that must not learn gets new ones.
    """
    item: Object = copy.deepcopy(dict(scenario.manifest(submission)))
    metadata, template = item["metadata"], item["spec"]["template"]
    metadata["namespace"] = namespace_of(arm)
    metadata["name"] = f"{round_name}-{submission.name}"
    metadata["labels"] = {**metadata.get("labels", {}), **PART_OF}
    annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
    for device, seconds_there in submission.run_seconds.items():
        annotations[RUN_ANNOTATION.format(device)] = f"{seconds_there * 1000:.0f}ms"
    for container in template["spec"]["containers"]:
        base = container["image"].partition(":")[0]
        container["image"] = f"{base}:{arm.key if arm.learns else f'{arm.key}-{round_name}'}"
    return item


def _renamed(item: Mapping[str, Any], arm: Arm) -> Object:
    found = copy.deepcopy(dict(item))
    metadata = found["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), **PART_OF}
    if found["kind"] == "Namespace":
        metadata["name"] = namespace_of(arm)
        metadata["labels"].pop(NAMESPACE_NAME, None)
    elif found["kind"] == "LocalQueue":
        metadata["namespace"] = namespace_of(arm)
        found["spec"]["clusterQueue"] += f"-{arm.key}"
    elif found["kind"] != _PRIORITY:
        metadata["name"] += f"-{arm.key}"
    if found["kind"] == "ClusterQueue" and "cohortName" in found["spec"]:
        found["spec"]["cohortName"] += f"-{arm.key}"
    for named in (found.get("spec", {}), *found.get("spec", {}).get("rates", ())):
        if "flavors" in named:
            named["flavors"] = [f"{flavor}-{arm.key}" for flavor in named["flavors"]]
    for group in found.get("spec", {}).get("resourceGroups", ()):
        for flavor in group["flavors"]:
            flavor["name"] += f"-{arm.key}"
    return found


def _policy(item: Mapping[str, Any], arm: Arm, time_scale: float) -> Object:
    found = _renamed({**item, "kind": "FallbackPolicy"}, arm)
    spec = found["spec"]
    spec["match"]["namespaceSelector"] = {"matchLabels": {NAMESPACE_NAME: namespace_of(arm)}}
    spec["mode"] = arm.mode
    finish_time = spec.get("strategy", {}).get("finishTime", {})
    for holder, key in ((finish_time, "runTime"), (finish_time.get("minimumGain", {}), "time")):
        if key in holder:
            holder[key] = f"{seconds(holder[key]) / time_scale:.3f}s"
    if arm.reconsiders and len(spec["options"]) > 1:
        spec["reconsider"] = copy.deepcopy(RECONSIDER)
    return found
