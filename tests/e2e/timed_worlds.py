"""Worlds that are played over time on the real Kueue: a cohort tree and who wants its quota.

What a world contains depends on its seed alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
LABEL: Final = "timed-world"
PRIORITIES: Final = (0, 100, 1000)
SHORTEST_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 12.0
FAIR_SHARING: Final = {
    "fairSharing": {
        "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
    },
}
USAGE_BASED: Final = {
    "admissionFairSharing": {"usageHalfLifeTime": "10m", "usageSamplingInterval": "5m"},
}
"""Seldom sampled: LocalQueues are then ordered by what Workloads were charged at admission."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A Workload, and how long it runs once it has its quota."""

    source: Object
    run_seconds: float

    @property
    def name(self) -> str:
        return str(self.source["metadata"]["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWorld:
    """One cohort tree in a namespace of its own."""

    seed: int
    namespace: str
    is_fair: bool
    """It is to be played where Kueue shares fairly."""
    is_usage_based: bool
    objects: tuple[Object, ...]
    """In the order in which they are created."""
    submissions: tuple[Submission, ...]
    """In the order of their arrival, at most one a second; the last one is the newcomer."""

    @property
    def newcomer(self) -> Submission:
        return self.submissions[-1]


def make_world(seed: int) -> TimedWorld:
    return _Maker(seed).world()


class _Maker:
    def __init__(self, seed: int) -> None:
        self.seed, self.name = seed, f"tw{seed}"
        self.random = random.Random(f"timed {seed}")
        self.is_fair = seed % 2 == 0
        self.is_usage_based = seed % 4 in (2, 3)
        self.flavors = [f"{self.name}-f{index}" for index in range(self.random.randint(1, 3))]
        self.resources = ["cpu", "memory"] if self.chance(0.3) else ["cpu"]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def world(self) -> TimedWorld:
        cohorts = self.cohorts()
        names = [f"{self.name}-q{index}" for index in range(self.random.randint(2, 4))]
        queues = [self.cluster_queue(name, self.random.choice(cohorts)) for name in names]
        local_queues = {
            f"{queue['metadata']['name']}-l{index}": queue["metadata"]["name"]
            for queue in queues
            for index in range(2 if "admissionScope" in queue["spec"] else 1)
        }
        metadata = {"name": self.name, "labels": {LABEL: self.name}}
        objects = (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
            *(self.cluster_scoped("ResourceFlavor", name, {}) for name in self.flavors),
            *(self.cohort(name, self.parent(name, cohorts)) for name in cohorts),
            *queues,
            *(self.local_queue(name, queue) for name, queue in local_queues.items()),
        )
        targets = list(local_queues)
        number = self.random.randint(12, 17)
        return TimedWorld(
            seed=self.seed,
            namespace=self.name,
            is_fair=self.is_fair,
            is_usage_based=self.is_usage_based,
            objects=objects,
            submissions=tuple(
                self.submission(index, self.random.choice(targets)) for index in range(number)
            ),
        )

    def cohorts(self) -> list[str]:
        """Name a root, and for a tree of three levels one or two cohorts below it."""
        below = self.random.choice([0, 0, 1, 2])
        return [f"{self.name}-all", *(f"{self.name}-c{index}" for index in range(below))]

    def parent(self, name: str, cohorts: list[str]) -> str:
        return "" if name == cohorts[0] else cohorts[0]

    def cohort(self, name: str, parent: str) -> Object:
        spec: Object = {"parentName": parent} if parent else {}
        if self.chance(0.3):
            spec["resourceGroups"] = self.groups(top=2, limits=bool(parent))
        if self.is_fair and parent:
            spec["fairSharing"] = {"weight": self.random.choice(["1", "1", "2"])}
        return self.cluster_scoped("Cohort", name, spec)

    def cluster_queue(self, name: str, cohort: str) -> Object:
        spec: Object = {
            "cohortName": cohort,
            "namespaceSelector": {},
            "queueingStrategy": "StrictFIFO" if self.chance(0.3) else "BestEffortFIFO",
            "resourceGroups": self.groups(top=4, limits=True),
            "flavorFungibility": {
                "whenCanBorrow": self.random.choice(["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": self.random.choice(["MayStopSearch", "TryNextFlavor"]),
            },
            "preemption": self.preemption(),
        }
        if self.is_fair:
            spec["fairSharing"] = {"weight": self.random.choice(["1", "1", "2"])}
        if self.is_usage_based and self.chance(0.6):
            spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        return self.cluster_scoped("ClusterQueue", name, spec)

    def preemption(self) -> Object:
        if self.chance(0.3):
            return {}
        policies: Object = {
            "withinClusterQueue": self.random.choice(
                ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
            ),
            "reclaimWithinCohort": self.random.choice(["Never", "LowerPriority", "Any"]),
        }
        if policies["reclaimWithinCohort"] != "Never" and not self.is_fair and self.chance(0.4):
            within: Object = {"policy": "LowerPriority"}
            if self.chance(0.5):
                within["maxPriorityThreshold"] = self.random.choice(PRIORITIES)
            policies["borrowWithinCohort"] = within
        return policies

    def groups(self, *, top: int, limits: bool) -> list[Object]:
        return [
            {
                "coveredResources": self.resources,
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [
                            self.quota(resource, top, limits=limits) for resource in self.resources
                        ],
                    }
                    for flavor in self.flavors
                ],
            }
        ]

    def quota(self, resource: str, top: int, *, limits: bool) -> Object:
        most = top if len(self.flavors) == 1 else max(2, top - 1)
        nominal = self.random.randint(0, most)
        found: Object = {"name": resource, "nominalQuota": self.amount(resource, nominal)}
        if limits and self.chance(0.2):
            found["borrowingLimit"] = self.amount(resource, self.random.randint(0, 3))
        if limits and self.chance(0.2):
            found["lendingLimit"] = self.amount(resource, self.random.randint(0, nominal))
        return found

    def amount(self, resource: str, number: int) -> str:
        return f"{number}Gi" if resource == "memory" else str(number)

    def submission(self, index: int, local_queue: str) -> Submission:
        requests = {"cpu": str(self.random.choice([1, 1, 1, 2, 2, 3]))}
        if "memory" in self.resources:
            requests["memory"] = self.amount("memory", self.random.choice([1, 1, 2]))
        name = f"w{index:02}"
        # Each is of a class of its own, so that its run time can be told by its class.
        container = {
            "name": "main",
            "image": f"example.com/{name}",
            "resources": {"requests": requests},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec = {
            "queueName": local_queue,
            "priority": self.random.choice(PRIORITIES),
            "podSets": [{"name": "main", "count": 1, "template": template}],
        }
        seconds = self.random.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)
        return Submission(
            source=self.namespaced("Workload", name, spec), run_seconds=round(seconds, 2)
        )

    def local_queue(self, name: str, queue: str) -> Object:
        spec: Object = {"clusterQueue": queue}
        if self.is_usage_based and self.chance(0.3):
            spec["fairSharing"] = {"weight": "2"}
        return self.namespaced("LocalQueue", name, spec)

    def cluster_scoped(self, kind: str, name: str, spec: Object) -> Object:
        metadata = {"name": name, "labels": {LABEL: self.name}}
        return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}

    def namespaced(self, kind: str, name: str, spec: Object) -> Object:
        metadata = {"name": name, "namespace": self.name, "labels": {LABEL: self.name}}
        return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}
