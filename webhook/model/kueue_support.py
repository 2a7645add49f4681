"""Which Kueue our forecasts are made for: the tested versions, its gates and its configuration.

A new release of Kueue is tested by reading what has changed there, then by a row in RELEASES and by
changing these tables:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/features/kube_features.go and
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/config. With an untested Kueue policies
only observe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias

from webhook.model.fields import child
from webhook.model.queues import Effect, Gate, KueueConfig, KueueRelease
from webhook.model.reasons import Explained

_MOST_NAMED: Final = 10
_MOST_KEPT: Final = 100
_MOST_FIELDS: Final = 10_000
"""Most fields of a configuration that are read; Kueue has about a hundred."""
_LONGEST_NAME: Final = 80


_NOTHING, _MODELLED = Effect.NOTHING, Effect.MODELLED
_JOB_BY_JOB, _UNMODELLED = Effect.JOB_BY_JOB, Effect.UNMODELLED

GATES: Final[Mapping[str, Gate]] = {
    "AdmissionFairSharing": Gate(True, _NOTHING),  # without it, the configuration's says nothing
    "AdmissionGatedBy": Gate(True, _UNMODELLED),
    "AllAlpha": Gate(False, _UNMODELLED),
    "AllBeta": Gate(None, _UNMODELLED),
    "AssignQueueLabelsForPods": Gate(True, _NOTHING),
    "CleanupProvisioningRequestsOnEviction": Gate(True, _NOTHING),
    "ConcurrentAdmission": Gate(False, _UNMODELLED),
    "CustomMetricLabels": Gate(False, _NOTHING),
    "DeferRayServiceFinalizationForRedisCleanup": Gate(True, _NOTHING),
    "DisableWaitForPodsReady": Gate(False, _UNMODELLED),
    "ElasticJobsViaWorkloadSlices": Gate(True, _JOB_BY_JOB),
    "ElasticJobsViaWorkloadSlicesWithTAS": Gate(False, _JOB_BY_JOB),
    "FailureRecoveryPolicy": Gate(False, _NOTHING),
    "FairSharingPreemptWithinNominal": Gate(True, _UNMODELLED),
    "FairSharingPrioritizeNonBorrowing": Gate(True, _UNMODELLED),
    "FastQuotaReleaseInPodIntegration": Gate(False, _NOTHING),
    "FinishOrphanedWorkloads": Gate(True, _NOTHING),
    "FlavorFungibility": Gate(True, _UNMODELLED),
    "FlavorFungibilityPreserveScanProgress": Gate(True, _UNMODELLED),
    "HierarchicalCohorts": Gate(True, _UNMODELLED),
    "KueueDRAIntegration": Gate(True, _JOB_BY_JOB),
    "KueueDRAIntegrationConsumableCapacity": Gate(False, _JOB_BY_JOB),
    "KueueDRAIntegrationExtendedResource": Gate(True, _JOB_BY_JOB),
    "KueueDRAIntegrationPartitionableDevices": Gate(True, _JOB_BY_JOB),
    "KueueDRARejectWorkloadsWhenDRADisabled": Gate(True, _JOB_BY_JOB),
    "LWSImmutableGroupSize": Gate(True, _NOTHING),
    "LocalQueueMetrics": Gate(True, _NOTHING),
    "ManagedJobsNamespaceSelectorAlwaysRespected": Gate(True, _UNMODELLED),
    "MetricForWorkloadCreationLatency": Gate(True, _NOTHING),
    "MetricsForCohorts": Gate(True, _NOTHING),
    "MultiKueue": Gate(True, _UNMODELLED),
    "MultiKueueAdaptersForCustomJobs": Gate(True, _NOTHING),
    "MultiKueueAllowInsecureKubeconfigs": Gate(False, _NOTHING),
    "MultiKueueClusterProfile": Gate(False, _NOTHING),
    "MultiKueueIncrementalDispatcherConfig": Gate(True, _UNMODELLED),
    "MultiKueueIncrementalDispatcherRespectConfigOrder": Gate(True, _UNMODELLED),
    "MultiKueueKubeConfigPathValidation": Gate(False, _NOTHING),
    "MultiKueueManagerQuotaAutomation": Gate(False, _UNMODELLED),
    "MultiKueueOrchestratedPreemption": Gate(False, _UNMODELLED),
    "MultiKueueRedoAdmissionOnEvictionInWorker": Gate(True, _UNMODELLED),
    "MultiKueueRemoteSpecSync": Gate(True, _NOTHING),
    "MultiKueueWaitForWorkloadAdmitted": Gate(True, _UNMODELLED),
    "ObjectRetentionPolicies": Gate(True, _NOTHING),
    "PartialAdmission": Gate(True, _MODELLED),
    "PodIntegrationValidateGroupOwner": Gate(True, _NOTHING),
    "PrioritizePreemptorWorkloads": Gate(False, _UNMODELLED),
    "PriorityBoost": Gate(False, _UNMODELLED),
    "PrioritySortingWithinCohort": Gate(True, _UNMODELLED),
    "PropagateBatchJobLabelsToWorkload": Gate(True, _NOTHING),
    "QuotaCheckStrategy": Gate(True, _MODELLED),
    "ReclaimablePods": Gate(True, _UNMODELLED),
    "RecomputeAssignmentUponPreemptionTargetsOverlap": Gate(False, _UNMODELLED),
    "RejectUpdatesToCQWithInvalidOnFlavors": Gate(False, _NOTHING),
    "RemoveFinalizersWithStrictPatch": Gate(True, _NOTHING),
    "SchedulerLibraryIntegration": Gate(False, _JOB_BY_JOB),  # where nodes are counted: topologies
    "SchedulerLongRequeueInterval": Gate(False, _MODELLED),
    "SchedulerTimestampPreemptionBuffer": Gate(False, _UNMODELLED),
    "SchedulingEquivalenceHashing": Gate(True, _NOTHING),  # spares Kueue work, orders nothing
    "ShortWorkloadNames": Gate(False, _NOTHING),
    "SkipAncestorCheckForDeletedWorkloads": Gate(True, _NOTHING),
    "SkipFinalizersForPodsSuspendedByParent": Gate(True, _NOTHING),
    "SkipReassignmentForPodOwnedWorkloads": Gate(True, _JOB_BY_JOB),
    "SparkApplicationIntegration": Gate(False, _NOTHING),
    "TASAssignmentsEncodingByHostnamePrefix": Gate(True, _NOTHING),
    "TASBalancedPlacement": Gate(False, _JOB_BY_JOB),
    "TASCacheNodeMatchResults": Gate(True, _NOTHING),
    "TASCacheTopologyTree": Gate(False, _NOTHING),
    "TASCachingRemainingResources": Gate(True, _NOTHING),
    "TASFailedNodeReplacement": Gate(True, _JOB_BY_JOB),
    "TASFailedNodeReplacementFailFast": Gate(True, _JOB_BY_JOB),
    "TASHandleOverlappingFlavors": Gate(True, _JOB_BY_JOB),
    "TASMultiLayerTopology": Gate(True, _JOB_BY_JOB),
    "TASProfileMixed": Gate(True, _JOB_BY_JOB),
    "TASRecomputeAssignmentWithinSchedulingCycle": Gate(True, _JOB_BY_JOB),
    "TASReplaceNodeDueToNotReadyOverFixedTime": Gate(False, _JOB_BY_JOB),
    "TASReplaceNodeOnNodeTaints": Gate(True, _JOB_BY_JOB),
    "TASReplaceNodeOnPodTermination": Gate(True, _JOB_BY_JOB),
    "TASRespectNodeAffinityPreferred": Gate(False, _JOB_BY_JOB),
    "TASValidateWorkloadSliceSize": Gate(True, _NOTHING),
    "TLSOptions": Gate(True, _NOTHING),
    "TopologyAwareScheduling": Gate(True, _JOB_BY_JOB),
    "UnadmittedWorkloadsExplicitStatus": Gate(False, _NOTHING),
    "UnadmittedWorkloadsObservability": Gate(False, _NOTHING),
    "ValidateRayAndSparkJobUpdates": Gate(True, _NOTHING),
    "VectorizedResourceRequests": Gate(True, _NOTHING),
    "VisibilityOnDemand": Gate(True, _NOTHING),
    "WorkloadIdentifierAnnotations": Gate(True, _NOTHING),  # labels and annotations are read
    "WorkloadPriorityClassDefaulting": Gate(False, _UNMODELLED),
    "WorkloadRequestUseMergePatch": Gate(False, _NOTHING),
    "WorkloadValidateResourcesAreNonNegative": Gate(True, _NOTHING),
    "WorkloadValidationForPodSetMetadata": Gate(True, _NOTHING),
}
"""Every gate of Kueue 0.19.2, and the two by which Kubernetes switches many at once."""

_ON, _OFF = Gate(True, _NOTHING), Gate(False, _NOTHING)
_ABSENT = Gate(None, _UNMODELLED)

_SINCE_0_18_5_AND_0_19_1: Final = dict.fromkeys(
    (
        "FlavorFungibilityPreserveScanProgress",
        "LWSImmutableGroupSize",
        "MultiKueueRemoteSpecSync",
        "RecomputeAssignmentUponPreemptionTargetsOverlap",
        "SkipAncestorCheckForDeletedWorkloads",
        "TASValidateWorkloadSliceSize",
        "WorkloadValidateResourcesAreNonNegative",
        "WorkloadValidationForPodSetMetadata",
    ),
    _ABSENT,
)
_SINCE_0_18_5: Final = dict.fromkeys(
    ("UnadmittedWorkloadsExplicitStatus", "UnadmittedWorkloadsObservability"), _ABSENT
)
_SINCE_0_18_6_AND_0_19_2: Final = dict.fromkeys(
    (
        "PodIntegrationValidateGroupOwner",
        "PrioritizePreemptorWorkloads",
        "TASCacheTopologyTree",
        "ValidateRayAndSparkJobUpdates",
    ),
    _ABSENT,
)
_OF_0_18: Final = {
    "AdmissionGatedBy": Gate(False, _UNMODELLED),
    "DRAExtendedResources": _OFF,
    "DisableWaitForPodsReady": _ABSENT,
    "DynamicResourceAllocation": _OFF,
    "KueueDRAIntegrationConsumableCapacity": _ABSENT,
    "KueueDRAIntegrationExtendedResource": Gate(False, _MODELLED),
    "KueueDRAIntegrationPartitionableDevices": Gate(False, _JOB_BY_JOB),
    "LendingLimit": _ON,
    "LocalQueueDefaulting": _ON,
    "MultiKueueBatchJobWithManagedBy": _ON,
    "MultiKueueIncrementalDispatcherConfig": _ABSENT,
    "MultiKueueIncrementalDispatcherRespectConfigOrder": _ABSENT,
    "MultiKueueKubeConfigPathValidation": _ABSENT,
    "QuotaCheckStrategy": Gate(False, _MODELLED),
    "SanitizePodSets": _ON,
    "SchedulerLibraryIntegration": _ABSENT,
    "SkipReassignmentForPodOwnedWorkloads": Gate(False, _JOB_BY_JOB),
    "TASAssignmentsEncodingByHostnamePrefix": _ABSENT,
    "TASMultiLayerTopology": Gate(False, _JOB_BY_JOB),
    "TASReplaceNodeDueToNotReadyOverFixedTime": Gate(True, _JOB_BY_JOB),
}
"""Of 0.18.6, where they are not as in 0.19.2."""
_BEFORE_FIXES: Final = KueueRelease(
    no_candidates_last=False, multiplies_retained=True, floors_outputs=False, weightless_last=False
)
"""What came with 0.18.5 and 0.19.1, by their changelogs: fixes of preemption over borrowing, of
transformations and of LocalQueues without weight.
https://github.com/kubernetes-sigs/kueue/tree/main/CHANGELOG
"""

RELEASES: Final[Mapping[tuple[int, int, int], KueueRelease]] = {
    # Earlier patches of 0.18 match node selectors by labels of other flavors (before 0.18.2), and
    # count RayJobs and transformed milli-units otherwise (before 0.18.3).
    (0, 18, 4): replace(
        _BEFORE_FIXES,
        gates=_OF_0_18 | _SINCE_0_18_5_AND_0_19_1 | _SINCE_0_18_5 | _SINCE_0_18_6_AND_0_19_2,
        dispatches_by_name=True,
    ),
    (0, 18, 5): KueueRelease(gates=_OF_0_18 | _SINCE_0_18_6_AND_0_19_2, dispatches_by_name=True),
    (0, 18, 6): KueueRelease(gates=_OF_0_18, dispatches_by_name=True),
    (0, 19, 0): replace(_BEFORE_FIXES, gates=_SINCE_0_18_5_AND_0_19_1 | _SINCE_0_18_6_AND_0_19_2),
    (0, 19, 1): KueueRelease(gates=_SINCE_0_18_6_AND_0_19_2),
    (0, 19, 2): KueueRelease(),
}
"""What the tested releases of Kueue do, each from the patch on that is named, the newest last.

Gates by patch are those of ``pkg/features/kube_features.go`` at each tag.
"""

_Fields: TypeAlias = "Mapping[str, Effect | frozenset[str] | _Fields]"
"""Texts are the only values that are modelled."""

INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
DISPATCHERS: Final = frozenset({"kueue.x-k8s.io/multikueue-dispatcher-all-at-once", INCREMENTAL})
"""Those of MultiKueue itself."""
OWN_DISPATCHER: Final = "kueue-fallback.dev/dispatcher"
"""Ours: the leading controller nominates one cluster at a time (docs/decisions/0016-clusters.md).
"""

FIELDS: Final[_Fields] = {
    "apiVersion": _NOTHING,
    "kind": _NOTHING,
    "namespace": _MODELLED,
    "webhook": _NOTHING,
    "leaderElection": _NOTHING,
    "metrics": _NOTHING,
    "health": _NOTHING,
    "pprofBindAddress": _NOTHING,
    "controller": _NOTHING,
    "tls": _NOTHING,
    "manageJobsWithoutQueueName": _MODELLED,
    "managedJobsNamespaceSelector": _MODELLED,
    "internalCertManagement": _NOTHING,
    "waitForPodsReady": {
        "enable": _MODELLED,
        "blockAdmission": _MODELLED,
        "timeout": _NOTHING,
        "recoveryTimeout": _NOTHING,
        "requeuingStrategy": {
            "timestamp": _MODELLED,
            "backoffLimitCount": _NOTHING,
            "backoffBaseSeconds": _NOTHING,
            "backoffMaxSeconds": _NOTHING,
        },
    },
    "clientConnection": _NOTHING,
    "integrations": {
        "frameworks": _MODELLED,
        "externalFrameworks": _MODELLED,
        "labelKeysToCopy": _NOTHING,
        "podOptions": _NOTHING,
    },
    "queueVisibility": _NOTHING,
    "multiKueue": {
        "gcInterval": _NOTHING,
        "origin": _NOTHING,
        "workerLostTimeout": _NOTHING,
        "dispatcherName": DISPATCHERS | {OWN_DISPATCHER},
        "externalFrameworks": _NOTHING,
        "clusterProfile": _NOTHING,
        "incrementalDispatcherConfig": _MODELLED,
    },
    "fairSharing": {"enable": _MODELLED, "preemptionStrategies": _MODELLED},
    "admissionFairSharing": _MODELLED,
    "resources": {
        "quotaCheckStrategy": _MODELLED,
        "excludeResourcePrefixes": _MODELLED,
        "transformations": {
            "input": _MODELLED,
            "strategy": _MODELLED,
            "multiplyBy": _MODELLED,
            "outputs": _MODELLED,
        },
        "deviceClassMappings": _JOB_BY_JOB,
    },
    "featureGates": _MODELLED,
    "objectRetentionPolicies": _NOTHING,
    "visibilityServer": _NOTHING,
}
"""Every field of Kueue's Configuration, v1beta1 and v1beta2, as deep as decisions depend on it."""


class KueueTested(Explained):
    """Why the condition KueueTested is as it is: True with the first, False or Unknown else."""

    TESTED = (
        "Tested",
        "Kueue's version, gates and configuration are among those that are tested",
        "Nothing.",
    )
    VERSION_UNTESTED = (
        "VersionUntested",
        "Kueue's version is not among those that are tested",
        "Take a release that is tested with it, or set `untested_kueue: enforce`.",
    )
    UNMODELLED = (
        "Unmodelled",
        "a gate or a field of Kueue's configuration changes what Kueue does, or is unknown",
        "The message names it. Revert it, or set `untested_kueue: enforce`.",
    )
    VERSION_UNKNOWN = (
        "VersionUnknown",
        "Kueue's version cannot be read from its Deployment",
        "The message says why. State it in the setting `kueue_version`.",
    )
    CONFIGURATION_UNKNOWN = (
        "ConfigurationUnknown",
        "Kueue's arguments or its configuration cannot be read",
        "The message says where.",
    )


_UNKNOWN: Final = (KueueTested.VERSION_UNKNOWN, KueueTested.CONFIGURATION_UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why this Kueue may do something else than is forecast."""

    reason: KueueTested
    message: str
    """For people: ``Kueue 0.20.1 is untested: tested is 0.19``."""

    @property
    def is_certain(self) -> bool:
        """Whether it is known to be another, and not just unknown."""
        return self.reason not in _UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueManager:
    """How Kueue runs, as its own Deployment says."""

    version: str = ""
    """As its image is tagged; empty: it is not known."""
    unknown_version: str = ""
    """Why it is not."""
    gates: Mapping[str, bool] | None = None
    """Those of the command line, which take the place of the configuration's; None: none."""
    has_configuration: bool = True
    """Without, Kueue takes its defaults, whatever stands in its ConfigMap."""
    unreadable: str = ""
    """What of the rest cannot be read."""


def doubts(
    kueue: KueueConfig, manager: KueueManager | None, stated_version: str = ""
) -> tuple[Doubt, ...]:
    """Say why this Kueue is untested, what is certain first; nothing: it is tested.

    Without a *manager*, as in a saved state, only the configuration that is there is judged.
    *stated_version* is Kueue's version as the settings have it; it counts before what was read.
    """
    reasons = [*_of_version(manager, stated_version), *_of_configuration(kueue, manager)]
    if unmodelled := unmodelled_gates(kueue.gates, kueue.release) + kueue.unmodelled_fields:
        message = f"Kueue is untested with {', '.join(_some(unmodelled))}"
        reasons.append(Doubt(reason=KueueTested.UNMODELLED, message=message))
    return tuple(sorted(reasons, key=lambda doubt: not doubt.is_certain))


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def release(version: str) -> tuple[int, int, int] | None:
    """Read ``v0.19.2``; None: it is no version, or one before its release.

    A version without a patch, such as ``0.19``, counts as the newest patch of its minor.
    """
    match = _VERSION.fullmatch(version)
    if match is None or _BEFORE_RELEASE.match(match["rest"]):
        return None
    return int(match["major"]), int(match["minor"]), int(match["patch"] or _NEWEST_PATCH)


_NEWEST_PATCH: Final = 999_999
_VERSION: Final = re.compile(
    r"(release-|v)?(?P<major>\d{1,4})\.(?P<minor>\d{1,4})(\.(?P<patch>\d{1,6}))?(?P<rest>([-+_.].*)?)"
)
_BEFORE_RELEASE: Final = re.compile(r"-(alpha|beta|rc|devel|main)\b")


def release_of(version: str) -> KueueRelease:
    """Return what Kueue does in a version; in one that is not tested, what the newest does."""
    return _tested(version) or KueueRelease()


def _tested(version: str) -> KueueRelease | None:
    """Return the row of the newest patch that is not newer than the version, of the same minor."""
    asked = release(version)
    if asked is None:
        return None
    rows = (row for first, row in RELEASES.items() if first[:2] == asked[:2] and first <= asked)
    return next(reversed(list(rows)), None)


def is_on(name: str, gates: Mapping[str, bool], row: KueueRelease) -> bool:
    """Return whether a gate is on where *gates* are set."""
    gate = row.gates.get(name) or GATES[name]
    return gates.get(name, bool(gate.default))


def unmodelled_gates(
    gates: Mapping[str, bool], row: KueueRelease = RELEASES[0, 19, 2]
) -> tuple[str, ...]:
    """Name the gates that are unknown, or change what Kueue does in a way that is not modelled."""
    changed = sorted(name for name, value in gates.items() if _matters(name, row, value=value))
    return tuple(f"featureGates.{_clipped(name)}" for name in changed[:_MOST_KEPT])


def _matters(name: str, row: KueueRelease, *, value: bool) -> bool:
    gate = row.gates.get(name) or GATES.get(name)
    return gate is None or (gate.effect is _UNMODELLED and value is not gate.default)


def unmodelled_fields(configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the fields that are unknown, or that are set and not modelled, in a configuration."""
    listed = list(islice(_fields_set(configuration, FIELDS, ""), _MOST_FIELDS))
    if len(listed) == _MOST_FIELDS:
        return (f"more than {_MOST_FIELDS} fields",)
    return tuple(sorted({path for path, matters in listed if matters}))[:_MOST_KEPT]


def _fields_set(source: Mapping[str, Any], known: _Fields, path: str) -> Iterator[tuple[str, bool]]:
    """List the fields that are set, each with whether it matters."""
    for name, value in source.items():
        here = _clipped(child(path, str(name)))
        effect = known.get(name)
        yield here, effect is None or (isinstance(effect, frozenset) and not _is_one(value, effect))
        if isinstance(effect, Mapping):
            for inner in value if isinstance(value, list) else (value,):
                if isinstance(inner, dict):
                    yield from _fields_set(inner, effect, here)


def _is_one(value: object, texts: frozenset[str]) -> bool:
    return value is None or (isinstance(value, str) and value in texts)


def _of_version(manager: KueueManager | None, stated: str) -> Iterator[Doubt]:
    version = stated or (manager.version if manager is not None else "")
    if version:
        if _tested(version) is None:
            tested = ", ".join(_tested_minors())
            shown = _clipped(version.removeprefix("v"))
            message = f"Kueue {shown} is untested: tested is {tested}"
            yield Doubt(reason=KueueTested.VERSION_UNTESTED, message=message)
    elif manager is not None:
        message = f"Kueue's version is not known: {manager.unknown_version}"
        yield Doubt(reason=KueueTested.VERSION_UNKNOWN, message=message)


def _tested_minors() -> Iterator[str]:
    """Name each minor once: ``0.18 from 0.18.4 on``, ``0.19``."""
    first_patches: dict[str, int] = {}
    for major, minor, patch in RELEASES:
        first_patches.setdefault(f"{major}.{minor}", patch)
    for name, patch in first_patches.items():
        yield f"{name} from {name}.{patch} on" if patch else name


def _of_configuration(kueue: KueueConfig, manager: KueueManager | None) -> Iterator[Doubt]:
    if manager is None:
        return
    because = manager.unreadable
    if not because and not kueue.is_read:
        because = "its ConfigMap kueue-manager-config is not there, or cannot be read"
    if because:
        message = f"Kueue's configuration is not known: {because}"
        yield Doubt(reason=KueueTested.CONFIGURATION_UNKNOWN, message=message)


def _some(names: Iterable[str]) -> list[str]:
    listed = list(names)
    more = len(listed) - _MOST_NAMED
    return listed if more <= 0 else [*listed[:_MOST_NAMED], f"{more} more"]


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
