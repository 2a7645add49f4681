"""Which kinds an embedded API server serves: built-in ones, Kueue's, and those of definitions."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hack.api import Object

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_BUILT_IN: Final[Mapping[str, str]] = {
    "v1": """
        namespaces Namespace cluster status
        nodes Node cluster status
        pods Pod namespaced status
        services Service namespaced status
        configmaps ConfigMap namespaced
        secrets Secret namespaced
        serviceaccounts ServiceAccount namespaced
        events Event namespaced
        limitranges LimitRange namespaced
        resourcequotas ResourceQuota namespaced status
    """,
    "apps/v1": """
        deployments Deployment namespaced status
        statefulsets StatefulSet namespaced status
    """,
    "batch/v1": """
        jobs Job namespaced status
        cronjobs CronJob namespaced status
    """,
    "coordination.k8s.io/v1": """
        leases Lease namespaced
    """,
    "rbac.authorization.k8s.io/v1": """
        roles Role namespaced
        rolebindings RoleBinding namespaced
        clusterroles ClusterRole cluster
        clusterrolebindings ClusterRoleBinding cluster
    """,
    "admissionregistration.k8s.io/v1": """
        mutatingwebhookconfigurations MutatingWebhookConfiguration cluster
        validatingwebhookconfigurations ValidatingWebhookConfiguration cluster
        validatingadmissionpolicies ValidatingAdmissionPolicy cluster status
        validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding cluster
    """,
    "apiextensions.k8s.io/v1": """
        customresourcedefinitions CustomResourceDefinition cluster status
    """,
    "scheduling.k8s.io/v1": """
        priorityclasses PriorityClass cluster
    """,
    "node.k8s.io/v1": """
        runtimeclasses RuntimeClass cluster
    """,
    "policy/v1": """
        poddisruptionbudgets PodDisruptionBudget namespaced status
    """,
    "networking.k8s.io/v1": """
        networkpolicies NetworkPolicy namespaced
    """,
    "resource.k8s.io/v1": """
        deviceclasses DeviceClass cluster
    """,
    "kueue.x-k8s.io/v1beta2,v1beta1": """
        clusterqueues ClusterQueue cluster status
        localqueues LocalQueue namespaced status
        cohorts Cohort cluster status
        resourceflavors ResourceFlavor cluster
        topologies Topology cluster
        workloads Workload namespaced status
        admissionchecks AdmissionCheck cluster status
        multikueueconfigs MultiKueueConfig cluster
        multikueueclusters MultiKueueCluster cluster status
        workloadpriorityclasses WorkloadPriorityClass cluster
    """,
    "kueue-fallback.dev/v1alpha1": """
        fallbackpolicies FallbackPolicy cluster status
        teamfallbackpolicies TeamFallbackPolicy namespaced status
        acceleratorprofiles AcceleratorProfile cluster status
        tariffs Tariff cluster status
    """,
}
"""Kueue's and ours have no schema here; a CustomResourceDefinition takes their place."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """One kind, in all of its versions, which are stored as one."""

    group: str
    versions: tuple[str, ...]
    """The preferred one first."""
    kind: str
    plural: str
    is_namespaced: bool
    has_status: bool
    schemas: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """By version; only their defaults are used."""

    @property
    def full_name(self) -> str:
        """As errors name it, and definitions are named: ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def api_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


class ServedKinds:
    """The kinds by group and plural."""

    def __init__(self) -> None:
        self._kinds = {(kind.group, kind.plural): kind for kind in _built_in()}

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(tuple(self._kinds.values()))

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        kind = self._kinds.get((group, plural))
        return kind if kind is not None and version in kind.versions else None

    def of_item(self, item: Object) -> ServedKind:
        """Return the kind of an object.

        Raises:
            KeyError: it is not served.

        """
        group, _, version = item["apiVersion"].rpartition("/")
        for kind in self:
            if (kind.group, kind.kind) == (group, item["kind"]) and version in kind.versions:
                return kind
        raise KeyError(f"{item['apiVersion']} {item['kind']}")

    def define(self, definition: Object) -> None:
        kind = _defined(definition["spec"])
        self._kinds[kind.group, kind.plural] = kind

    def forget(self, definition: Object) -> ServedKind:
        spec = definition["spec"]
        return self._kinds.pop((spec["group"], spec["names"]["plural"]))

    # Discovery.

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return the versions of each group, the preferred one first."""
        found: dict[str, dict[str, None]] = {}
        for kind in self:
            found.setdefault(kind.group, {}).update(dict.fromkeys(kind.versions))
        return {group: tuple(versions) for group, versions in found.items()}

    def resources(self, group: str, version: str) -> list[Object]:
        return [
            resource
            for kind in self
            if kind.group == group and version in kind.versions
            for resource in _resources(kind)
        ]


def _resources(kind: ServedKind) -> Iterable[Object]:
    shared: Object = {"singularName": kind.kind.lower(), "namespaced": kind.is_namespaced}
    shared["kind"] = kind.kind
    yield {"name": kind.plural, **shared, "verbs": list(VERBS)}
    if kind.has_status:
        yield {"name": f"{kind.plural}/status", **shared, "verbs": ["get", "patch", "update"]}


def _built_in() -> Iterator[ServedKind]:
    for served, lines in _BUILT_IN.items():
        group, _, versions = served.rpartition("/")
        for line in lines.strip().splitlines():
            plural, kind, scope, *status = line.split()
            yield ServedKind(
                group=group,
                versions=tuple(versions.split(",")),
                kind=kind,
                plural=plural,
                is_namespaced=scope == "namespaced",
                has_status=bool(status),
            )


def _defined(spec: Object) -> ServedKind:
    served = [version for version in spec["versions"] if version["served"]]
    # As the API server prefers them here: v1beta2 before v1beta1, v1 before both.
    served.sort(key=lambda version: _age(version["name"]))
    return ServedKind(
        group=spec["group"],
        versions=tuple(version["name"] for version in served),
        kind=spec["names"]["kind"],
        plural=spec["names"]["plural"],
        is_namespaced=spec["scope"] == "Namespaced",
        has_status=any("status" in version.get("subresources", {}) for version in served),
        schemas={
            version["name"]: version.get("schema", {}).get("openAPIV3Schema", {})
            for version in served
        },
    )


def _age(version: str) -> tuple[bool, bool, list[int]]:
    """Sort stable versions before beta and alpha ones, and the newest of each first.

    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
    """
    numbers = [
        -int(part) for part in version.replace("alpha", " ").replace("beta", " ")[1:].split()
    ]
    return "alpha" in version, "beta" in version, numbers
