"""JSON of both Kueue versions to model values."""

import pytest

from webhook.api import resources as kinds
from webhook.api.resources import ReadObject
from webhook.model.pods import (
    EVERYTHING,
    NOTHING,
    Expression,
    Operator,
    Selector,
    Taint,
    Toleration,
)
from webhook.model.queues import (
    BORROWING_OVER_PREEMPTION,
    MULTIKUEUE,
    PREEMPTION_OVER_BORROWING,
    AdmissionCheck,
    AdmissionFairSharing,
    ClusterQueue,
    Cohort,
    ConsumedResources,
    KueueConfig,
    LimitRangeItem,
    LocalQueue,
    Preemption,
    Queueing,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Transformation,
    WorkerCluster,
)
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.readers import read_by_kind

CELL = ("a100", "nvidia.com/gpu")
RESOURCE = {"name": "nvidia.com/gpu", "nominalQuota": "4", "borrowingLimit": 0, "lendingLimit": "2"}
GROUP_JSON = {
    "coveredResources": ["nvidia.com/gpu"],
    "flavors": [{"name": "a100", "resources": [RESOURCE]}],
}
GROUP = ResourceGroup(
    resources=("nvidia.com/gpu",),
    flavors=("a100",),
    quotas={CELL: Quota(nominal=4, borrowing_limit=0, lending_limit=2)},
)
COMMON = {
    "resourceGroups": [GROUP_JSON],
    "namespaceSelector": {},
    "queueingStrategy": "StrictFIFO",
    "stopPolicy": "HoldAndDrain",
    "preemption": {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
    },
    "fairSharing": {"weight": "500m"},
}
NEWER = COMMON | {
    "cohortName": "all",
    "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
    "admissionChecksStrategy": {"admissionChecks": [{"name": "provision"}]},
}
OLDER = COMMON | {
    "cohort": "all",
    "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "Preempt"},
    "admissionChecks": ["provision"],
}
INACTIVE = {"conditions": [{"type": "Active", "status": "False", "message": "no flavor a100"}]}


def value(kind, name="x", **source):
    return read_by_kind(kind, {"metadata": {"name": name, "namespace": ""}, **source}).value


@pytest.mark.parametrize("spec", [NEWER, OLDER], ids=["v1beta2", "v1beta1"])
def test_a_cluster_queue_is_read_from_both_versions(spec):
    assert value(kinds.CLUSTER_QUEUES, "gpu-cq", spec=spec, status=INACTIVE) == ClusterQueue(
        name="gpu-cq",
        cohort="all",
        groups=(GROUP,),
        queueing=Queueing.STRICT,
        namespaces=EVERYTHING,
        stop_policy=StopPolicy.HOLD_AND_DRAIN,
        active=False,
        inactive_because="no flavor a100",
        preemption=Preemption(
            within_cluster_queue="LowerPriority",
            reclaim_within_cohort="Any",
            borrow_within_cohort="LowerPriority",
            max_priority_threshold=100,
        ),
        when_can_borrow="TryNextFlavor",
        when_can_preempt="MayStopSearch",
        checks=("provision",),
        fair_sharing=True,
        fair_weight=0.5,
    )


@pytest.mark.parametrize("weight", [True, [], "x", "9" * 65])
def test_a_weight_that_is_no_quantity_is_a_problem_of_its_object(weight):
    entry = read_by_kind(
        kinds.COHORTS, {"metadata": {"name": "a"}, "spec": {"fairSharing": {"weight": weight}}}
    )

    assert entry.value is None
    assert entry.problem.startswith("cohorts a: spec.fairSharing.weight: expected a quantity")


def test_what_a_cluster_queue_prefers_and_the_weight_of_a_cohort():
    both = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
    fungibility = both | {"preference": "PreemptionOverBorrowing"}

    preferring = value(kinds.CLUSTER_QUEUES, spec={"flavorFungibility": fungibility})
    assert (preferring.preference, preferring.fair_weight) == (PREEMPTION_OVER_BORROWING, 1.0)
    assert value(kinds.CLUSTER_QUEUES, spec={}).preference == BORROWING_OVER_PREEMPTION
    assert value(kinds.COHORTS, spec={"fairSharing": {"weight": 0}}).fair_weight == 0.0


def test_an_admission_check_may_hold_for_some_flavors_only():
    rules = [{"name": "provision", "onFlavors": ["spot"]}, {"name": "budget"}]
    spec = {"admissionChecksStrategy": {"admissionChecks": rules}}

    found = value(kinds.CLUSTER_QUEUES, spec=spec)

    assert found.checks_on(["t4"]) == ("budget",)
    assert found.checks_on(["t4", "spot"]) == ("provision", "budget")


def test_a_local_queue_has_a_weight_and_what_it_has_consumed():
    spec = {"clusterQueue": "gpu-cq", "fairSharing": {"weight": "2"}}
    usage = {"consumedResources": {"cpu": "1500m", "memory": "1Ki"}}
    usage["lastUpdate"] = "1970-01-01T00:01:00Z"
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": usage}}

    assert value(kinds.LOCAL_QUEUES, spec=spec, status=status) == (
        LocalQueue(namespace="", name="x", cluster_queue="gpu-cq", fair_weight=2.0),
        ConsumedResources(amounts={"cpu": 1.5, "memory": 1024.0}, updated=60),
    )
    assert value(kinds.LOCAL_QUEUES, spec=spec).consumed is None


def test_a_cluster_queue_without_a_namespace_selector_takes_nothing():
    found = value(kinds.CLUSTER_QUEUES, spec={})

    assert (found.namespaces, found.active, found.when_can_preempt) == (
        NOTHING,
        True,
        "TryNextFlavor",
    )


def test_cohorts_flavors_checks_and_priorities():
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    flavor = {
        "nodeLabels": {"zone": "a"},
        "nodeTaints": [taint],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "topologyName": "racks",
    }

    assert value(kinds.COHORTS, spec={"parentName": "p", "resourceGroups": [GROUP_JSON]}) == Cohort(
        name="x", parent="p", groups=(GROUP,)
    )
    assert value(kinds.FLAVORS, spec=flavor) == ResourceFlavor(
        name="x",
        node_labels={"zone": "a"},
        taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),),
        tolerations=(Toleration(key="gpu", operator="Exists"),),
        topology="racks",
    )
    assert value(kinds.CHECKS, spec={"controllerName": "c"}) == AdmissionCheck(controller="c")
    assert value(kinds.PRIORITY_CLASSES, value=1000) == 1000


def test_which_clusters_are_behind_a_check_and_why_one_is_not_used():
    spec = {"controllerName": MULTIKUEUE, "parameters": {"kind": "MultiKueueConfig", "name": "all"}}

    assert value(kinds.CHECKS, spec=spec) == AdmissionCheck(controller=MULTIKUEUE, parameters="all")
    assert value(kinds.MULTIKUEUE_CONFIGS, spec={"clusters": ["b", "a"]}) == ("b", "a")
    assert value(kinds.MULTIKUEUE_CLUSTERS, spec={}) == WorkerCluster()
    assert value(kinds.MULTIKUEUE_CLUSTERS, status=INACTIVE) == WorkerCluster(
        active=False, inactive_because=INACTIVE["conditions"][0]["message"]
    )


def test_what_a_namespace_a_limit_range_and_a_runtime_class_say():
    limits = [{"type": "Container", "max": {"cpu": "4"}, "maxLimitRequestRatio": {"cpu": 2}}]

    assert read_by_kind(
        kinds.NAMESPACES, {"metadata": {"name": "t", "labels": {"a": "b"}}}
    ).value == {"a": "b"}
    assert value(kinds.LIMIT_RANGES, spec={"limits": limits}) == (
        LimitRangeItem(type="Container", max={"cpu": "4"}, max_ratio={"cpu": "2"}),
    )
    assert value(kinds.RUNTIME_CLASSES, overhead={"podFixed": {"cpu": "250m"}}) == {"cpu": "250m"}
    assert value(kinds.RUNTIME_CLASSES) == {}


def test_the_off_switch_names_namespaces_or_means_everywhere():
    assert value(kinds.OFF_SWITCH) == OffSwitch()
    assert value(kinds.OFF_SWITCH, data={"namespaces": "a, b\nc"}) == OffSwitch(
        namespaces=frozenset({"a", "b", "c"})
    )


def config(text):
    source = {
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": "kind: Configuration\n" + text},
    }
    return read_by_kind(kinds.KUEUE_CONFIG, source)


def all_but(*names):
    expression = Expression(
        key="kubernetes.io/metadata.name", operator=Operator.NOT_IN, values=names
    )
    return Selector(labels={}, expressions=(expression,))


def test_kueues_defaults():
    assert config("").value == KueueConfig(
        managed_namespaces=all_but("kube-system", "kueue-system")
    )


def test_kueues_configuration():
    found = config(
        """
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {managed: "yes"}}
integrations: {frameworks: [batch/job, pod], externalFrameworks: [Foo.v1.example.com]}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
admissionFairSharing:
  {usageHalfLifeTime: 168h, usageSamplingInterval: 2m, resourceWeights: {memory: 0}}
waitForPodsReady: {timeout: 5m, blockAdmission: true}
featureGates: {SchedulerLongRequeueInterval: true, PartialAdmission: false}
resources:
  excludeResourcePrefixes: [example.com/]
  quotaCheckStrategy: IgnoreUndeclared
  transformations:
  - {input: nvidia.com/mig-1g, strategy: Replace, multiplyBy: cpu, outputs: {gpu-slices: 0.5}}
"""
    )

    assert found.value == KueueConfig(
        excluded_prefixes=("example.com/",),
        transformations=(
            Transformation(
                input="nvidia.com/mig-1g",
                outputs={"gpu-slices": "0.5"},
                replace=True,
                multiply_by="cpu",
            ),
        ),
        ignore_undeclared=True,
        manage_without_queue=True,
        managed_namespaces=Selector(labels={"managed": "yes"}),
        frameworks=("batch/job", "pod"),
        external_frameworks=("Foo.v1.example.com",),
        fair_sharing=True,
        preemption_strategies=("LessThanInitialShare",),
        admission_fair_sharing=AdmissionFairSharing(
            half_life_seconds=604_800.0, sampling_seconds=120.0, resource_weights={"memory": 0.0}
        ),
        block_admission=True,
        requeue_seconds=10.0,
        gates={"SchedulerLongRequeueInterval": True, "PartialAdmission": False},
    )


@pytest.mark.parametrize(
    ("text", "blocks", "fair"),
    [
        ("waitForPodsReady: {enable: true}\nfairSharing: {enable: false}", True, False),
        ("waitForPodsReady: {enable: true, blockAdmission: false}", False, False),
        ("waitForPodsReady: {enable: false}\nfairSharing: {enable: true}", False, True),
        ("waitForPodsReady: {timeout: 5m}", False, False),
        ("waitForPodsReady: {blockAdmission: true}", False, False),
        ("fairSharing: {preemptionStrategies: [LessThanInitialShare]}", False, False),
        ("fairSharing: {}", False, False),
    ],
)
def test_the_older_configuration_has_switches_that_are_off_by_default(text, blocks, fair):
    found = config(f"apiVersion: config.kueue.x-k8s.io/v1beta1\n{text}").value

    assert (found.block_admission, found.fair_sharing) == (blocks, fair)


def test_the_older_configuration_has_both_strategies_by_default():
    found = config("apiVersion: config.kueue.x-k8s.io/v1beta1\nfairSharing: {enable: true}").value

    assert found.preemption_strategies == ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


def test_fair_sharing_without_strategies_takes_both_as_kueues_scheduler_would():
    found = config("apiVersion: config.kueue.x-k8s.io/v1beta2\nfairSharing: {}").value

    assert found.fair_sharing
    assert found.preemption_strategies == ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


DISPATCHER = "kueue.x-k8s.io/multikueue-dispatcher"
TWO_AT_A_TIME = "incrementalDispatcherConfig: {stepSize: 2}"


@pytest.mark.parametrize(
    ("text", "at_once", "external"),
    [
        (f"dispatcherName: {DISPATCHER}-all-at-once", 0, False),
        (f"dispatcherName: {DISPATCHER}-incremental", 3, False),
        (f"dispatcherName: {DISPATCHER}-incremental\n  {TWO_AT_A_TIME}", 2, False),
        ("dispatcherName: example.com/another", 0, True),
        ("dispatcherName: kueue-fallback.dev/dispatcher", 0, False),
        ("gcInterval: 1m", 0, False),
    ],
)
def test_how_many_clusters_multikueue_asks_at_a_time(text, at_once, external):
    found = config(f"multiKueue:\n  {text}").value

    assert (found.clusters_per_round, found.external_dispatcher) == (at_once, external)
    assert found.own_dispatcher is ("kueue-fallback.dev" in text)


def test_how_usage_is_counted_has_kueues_defaults_and_a_gate_turns_it_off():
    text = "admissionFairSharing: {usageHalfLifeTime: 0s}"

    assert config(text).value.admission_fair_sharing == AdmissionFairSharing(
        half_life_seconds=0.0, sampling_seconds=300.0
    )
    off = config(f"{text}\nfeatureGates: {{AdmissionFairSharing: false}}").value
    assert off.admission_fair_sharing is None


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("usageHalfLifeTime: 7 days", "usageHalfLifeTime: expected a duration such as 90s"),
        ("resourceWeights: {cpu: x}", "resourceWeights.cpu: expected a number of at least 0"),
        ("resourceWeights: {cpu: .nan}", "resourceWeights.cpu: expected a number of at least 0"),
        ("resourceWeights: {cpu: -1}", "resourceWeights.cpu: expected a number of at least 0"),
    ],
)
def test_a_configuration_of_usage_that_kueue_would_refuse_is_a_problem(block, problem):
    entry = config(f"admissionFairSharing: {{{block}}}")

    assert entry.value is None
    assert f": admissionFairSharing.{problem}" in entry.problem


def test_a_configuration_that_is_no_yaml_is_a_problem_with_its_place():
    entry = config("a: [")

    assert entry.value is None
    assert entry.problem.startswith(
        "kueue-manager-config kueue-system/kueue-manager-config: "
        "data[controller_manager_config.yaml]: expected YAML: "
    )


def test_an_object_that_cannot_be_read_is_a_problem_that_names_it():
    source = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"clusterQueue": 7}}

    assert read_by_kind(kinds.LOCAL_QUEUES, source) == ReadObject(
        ("team", "q"),
        None,
        "localqueues team/q: spec.clusterQueue: expected a string, got a number",
    )
