"""What a random case is made of."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

KUEUE = "kueue.x-k8s.io/v1beta2"
LABEL = "agreement-case"
GPU = "example.com/gpu"
ZONES = ("a", "b", "c")
TAINT = {"key": "reserved", "value": "true", "effect": "NoSchedule"}

RUNS_ON = {"sim.example.com/gpu-run": "1h", "sim.example.com/cpu-run": "1h"}
"""No Job of a case ends: quota that comes free would be given to older ones meanwhile."""

Object = dict[str, Any]


class Maker:
    """Makes the parts of one case; what it draws depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.name = f"ag{seed}"
        self.random = random.Random(seed)
        self.flavors = [f"{self.name}-f{index}" for index in range(self.random.randint(1, 3))]
        self.gpu_flavors = self.flavors if self.chance(0.5) else [f"{self.name}-gpu"]
        self.cohorts = [f"{self.name}-c{index}" for index in range(self.random.randint(0, 4))]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def flavor(self, name: str) -> Object:
        spec: Object = {}
        if self.chance(0.6):
            spec["nodeLabels"] = {"zone": self.random.choice(ZONES)}
        if self.chance(0.25):
            spec["nodeTaints"] = [TAINT]
            if self.chance(0.3):
                spec["tolerations"] = [{"key": "reserved", "operator": "Exists"}]
        return self.cluster_scoped("ResourceFlavor", name, spec)

    def cohort_objects(self) -> list[Object]:
        """Make a tree at most three levels deep; some cohorts exist only by name."""
        found = []
        depth: dict[str, int] = {}
        for index, name in enumerate(self.cohorts):
            above = [other for other in self.cohorts[:index] if depth[other] < 2]
            parent = self.random.choice(["", *above, *above])
            depth[name] = depth[parent] + 1 if parent else 0
            spec: Object = {"parentName": parent} if parent else {}
            if self.chance(0.4):
                spec["resourceGroups"] = self.groups(limits=bool(parent))
            if spec or self.chance(0.5):
                found.append(self.cluster_scoped("Cohort", name, spec))
        return found

    def cluster_queue(self, name: str) -> Object:
        cohort = self.random.choice(["", *self.cohorts, *self.cohorts])
        spec: Object = {
            "namespaceSelector": {},
            "queueingStrategy": "StrictFIFO" if self.chance(0.25) else "BestEffortFIFO",
            "resourceGroups": self.groups(limits=bool(cohort)),
            "flavorFungibility": {
                "whenCanBorrow": self.random.choice(["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": self.random.choice(["MayStopSearch", "TryNextFlavor"]),
            },
        }
        if cohort:
            spec["cohortName"] = cohort
        if self.chance(0.2):
            spec["preemption"] = {
                "withinClusterQueue": self.random.choice(["Never", "LowerPriority"]),
                "reclaimWithinCohort": self.random.choice(["Never", "Any"]),
            }
        return self.cluster_scoped("ClusterQueue", name, spec)

    def groups(self, *, limits: bool) -> list[Object]:
        """Give cpu and memory, and sometimes GPUs, quota in some flavors; pods seldom."""
        plain = ["cpu", "memory"] if self.chance(0.6) else ["cpu"]
        if self.chance(0.15):
            plain.append("pods")
        if self.gpu_flavors is self.flavors:
            return [self.group([*plain, GPU], self.flavors, limits=limits)]
        found = [self.group(plain, self.flavors, limits=limits)]
        if self.chance(0.7):
            found.append(self.group([GPU], self.gpu_flavors, limits=limits))
        return found

    def group(self, resources: list[str], flavors: list[str], *, limits: bool) -> Object:
        count = self.random.randint(1, len(flavors))
        return {
            "coveredResources": resources,
            "flavors": [
                {
                    "name": flavor,
                    "resources": [self.quota(name, limits=limits) for name in resources],
                }
                for flavor in self.random.sample(flavors, count)
            ],
        }

    def quota(self, resource: str, *, limits: bool) -> Object:
        found: Object = {"name": resource, "nominalQuota": self.amount(resource, 8)}
        if limits and self.chance(0.3):
            found["borrowingLimit"] = self.amount(resource, 4)
        if limits and self.chance(0.3):
            found["lendingLimit"] = self.amount(resource, 8, most=found["nominalQuota"])
        return found

    def amount(self, resource: str, top: int, *, most: str = "") -> str:
        number = self.random.randint(0, top)
        if most:
            number = min(number, int(most.removesuffix("Gi")))
        return f"{number}Gi" if resource == "memory" else str(number)

    def local_queue(self, name: str) -> Object:
        return self.namespaced(KUEUE, "LocalQueue", name, {"clusterQueue": name})

    def marker_objects(self) -> list[Object]:
        name = f"{self.name}-marker"
        queue = {
            "namespaceSelector": {},
            "cohortName": name,
            "resourceGroups": self.marker_groups(name, "0"),
        }
        cohort = {"resourceGroups": self.marker_groups(name, "9")}
        return [
            self.cluster_scoped("ResourceFlavor", name, {}),
            self.cluster_scoped("ClusterQueue", name, queue),
            self.local_queue(name),
            self.cluster_scoped("Cohort", name, cohort),
        ]

    def marker_groups(self, flavor: str, amount: str) -> list[Object]:
        """Cover memory too: a LimitRange may ask for some."""
        cells = [
            {"name": "cpu", "nominalQuota": amount},
            {"name": "memory", "nominalQuota": f"{amount}Gi"},
        ]
        return [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": flavor, "resources": cells}],
            }
        ]

    def marker_job(self) -> Object:
        return self.plain_job("marker", f"{self.name}-marker", "1")

    def plain_job(self, name: str, queue: str, cpus: str) -> Object:
        container = {
            "name": "main",
            "image": "example.com/none",
            "resources": {"requests": {"cpu": cpus}},
        }
        pods = {"restartPolicy": "Never", "containers": [container]}
        template = {"metadata": {"annotations": dict(RUNS_ON)}, "spec": pods}
        job = self.namespaced("batch/v1", "Job", name, {"template": template})
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
        return job

    def namespace(self) -> Object:
        metadata = {"name": self.name, "labels": {LABEL: self.name}}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def limit_range(self) -> Object:
        item = {"type": "Container", "defaultRequest": {"cpu": "500m"}}
        if self.chance(0.5):
            # Below every limit and above every request of a case: else the pods are refused.
            item["default"] = {"memory": "2Gi"}
            item["defaultRequest"]["memory"] = "256Mi"
        return self.namespaced("v1", "LimitRange", "defaults", {"limits": [item]})

    def job(self, index: int, queues: list[str]) -> Object:
        job = self.namespaced("batch/v1", "Job", f"job-{index}", self.job_spec())
        job["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": self.random.choice(queues)}
        return job

    def job_spec(self) -> Object:
        template = self.template()
        parallelism = self.random.choice([1, 1, 1, 2, 3])
        return {
            "parallelism": parallelism,
            "completions": self.random.choice([parallelism, parallelism + 1, 1]),
            "backoffLimit": 0,
            "template": template,
        }

    def template(self) -> Object:
        pods: Object = {
            "restartPolicy": "Never",
            "containers": [
                self.container(f"main-{number}") for number in range(1 + self.chance(0.2))
            ],
        }
        if self.chance(0.3):
            pods["initContainers"] = [
                self.container(f"init-{number}", sidecar=self.chance(0.5)) for number in range(2)
            ]
        pods |= self.placement()
        return {"metadata": {"annotations": dict(RUNS_ON)}, "spec": pods}

    def placement(self) -> Object:
        found: Object = {}
        if self.chance(0.3):
            found["tolerations"] = [{"key": "reserved", "operator": "Exists"}]
        if self.chance(0.2):
            found["nodeSelector"] = {self.random.choice(["zone", "rack"]): "a"}
        if self.chance(0.2):
            terms = [
                {"matchExpressions": [self.expression() for _ in range(self.random.randint(1, 2))]}
                for _ in range(self.random.randint(1, 2))
            ]
            required = {"nodeSelectorTerms": terms}
            found["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            }
        return found

    def expression(self) -> Object:
        operator = self.random.choice(["In", "NotIn", "Exists"])
        values = {} if operator == "Exists" else {"values": self.random.sample(ZONES, 2)}
        return {"key": self.random.choice(["zone", "zone", "rack"]), "operator": operator, **values}

    def container(self, name: str, *, sidecar: bool = False) -> Object:
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if self.chance(0.85):
            requests["cpu"] = self.random.choice(["250m", "1", "1500m", "2", "3"])
        if self.chance(0.3):
            (limits if self.chance(0.5) else requests)["memory"] = self.random.choice(
                ["256Mi", "1Gi", "2Gi"]
            )
        if self.chance(0.25):
            limits[GPU] = str(self.random.randint(0, 3))
        found: Object = {
            "name": name,
            "image": "example.com/none",
            "resources": {"requests": requests, "limits": limits},
        }
        return {**found, "restartPolicy": "Always"} if sidecar else found

    def cluster_scoped(self, kind: str, name: str, spec: Mapping[str, Any]) -> Object:
        metadata = {"name": name, "labels": {LABEL: self.name}}
        return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": dict(spec)}

    def namespaced(self, version: str, kind: str, name: str, spec: Mapping[str, Any]) -> Object:
        metadata = {"name": name, "namespace": self.name, "labels": {LABEL: self.name}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}
