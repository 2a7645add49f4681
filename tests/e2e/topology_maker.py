"""What a random case of Topology Aware Scheduling is made of: Nodes in racks, gangs for them."""

from __future__ import annotations

from tests.e2e.agreement_maker import GPU, LABEL, RUNS_ON, Maker, Object

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
LEVELS = ((BLOCK, RACK, HOST), (BLOCK, RACK, HOST), (RACK, HOST), (HOST,), (BLOCK, RACK))
PREFIX = "kueue.x-k8s.io/podset-"


class TopologyMaker(Maker):
    """Makes a case whose quota is mostly ample, so that what Nodes have left decides."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.name = f"ta{seed}"
        self.cohorts = [f"{self.name}-c"] if self.chance(0.3) else []
        self.levels = self.random.choice(LEVELS)
        self.flavors = [f"{self.name}-f{index}" for index in range(self.random.choice([1, 1, 2]))]
        self.plain = [f"{self.name}-plain"] if self.chance(0.25) else []
        self.gpu_flavors = self.flavors

    def nodes(self) -> list[Object]:
        """Make Nodes that only the pods of this case tolerate."""
        made = []
        gpus = self.random.choice([2, 4, 8])
        for block in range(self.random.randint(1, 2)):
            for rack in range(self.random.randint(1, 3)):
                for index in range(self.random.randint(1, 3)):
                    name = f"{self.name}-{block}-{rack}-{index}"
                    alike = self.chance(0.8)
                    made.append(
                        self.node(name, block, rack, gpus if alike else self.random.randint(0, 8))
                    )
        return made

    def node(self, name: str, block: int, rack: int, gpus: int) -> Object:
        labels = {
            LABEL: self.name,
            HOST: name,
            BLOCK: f"b{block}",
            RACK: f"r{rack}" if self.chance(0.5) else f"b{block}-r{rack}",
            "pool": self.random.choice(["a", "a", "b"]),
        }
        offered = {
            "cpu": self.random.choice(["96", "96", "16"]),
            "memory": "1Ti",
            "pods": "110",
            GPU: str(gpus),
        }
        taint = {"key": LABEL, "value": self.name, "effect": "NoSchedule"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [taint]},
            "status": {"allocatable": offered, "capacity": offered},
        }

    def topology(self) -> Object:
        levels = [{"nodeLabel": level} for level in self.levels]
        return self.cluster_scoped("Topology", self.name, {"levels": levels})

    def flavor(self, name: str) -> Object:
        if name in self.plain:
            return self.cluster_scoped("ResourceFlavor", name, {})
        labels = {LABEL: self.name}
        if len(self.flavors) > 1 or self.chance(0.1):
            labels["pool"] = "a" if name == self.flavors[0] else "b"
        spec = {
            "nodeLabels": labels,
            "topologyName": self.name,
            "tolerations": [{"key": LABEL, "operator": "Exists"}],
        }
        return self.cluster_scoped("ResourceFlavor", name, spec)

    def groups(self, *, limits: bool) -> list[Object]:
        flavors = self.random.sample(self.flavors, self.random.randint(1, len(self.flavors)))
        flavors += self.plain if self.chance(0.7) else []
        return [
            {
                "coveredResources": ["cpu", GPU],
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [
                            {"name": "cpu", "nominalQuota": "500"},
                            {"name": GPU, "nominalQuota": str(self.random.choice([100, 100, 8]))},
                        ],
                    }
                    for flavor in flavors
                ],
            }
        ]

    def job_spec(self) -> Object:
        count = self.random.choice([1, 1, 2, 2, 3, 4, 6])
        template = {
            "metadata": {"annotations": {**RUNS_ON, **self.asked(count)}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [self.container("main")],
                **({"nodeSelector": {"pool": "a"}} if self.chance(0.1) else {}),
            },
        }
        return {
            "parallelism": count,
            "completions": count,
            "backoffLimit": 0,
            "template": template,
        }

    def container(self, name: str, *, sidecar: bool = False) -> Object:
        gpus = str(self.random.choice([1, 1, 2, 2, 4]))
        resources = {
            "requests": {"cpu": self.random.choice(["500m", "1", "4"]), GPU: gpus},
            "limits": {GPU: gpus},
        }
        return {"name": name, "image": "example.com/none", "resources": resources}

    def asked(self, count: int) -> dict[str, str]:
        """Draw what a pod set asks of the Topology."""
        level = self.random.choice(self.levels)
        way = self.random.choice(
            ["required", "required", "preferred", "preferred", "unconstrained", "", "slices"]
        )
        if way in ("required", "preferred"):
            asked = {f"{PREFIX}{way}-topology": level}
            return asked | (self.slices(count, level) if self.chance(0.15) else {})
        if way == "slices":
            return self.slices(count, self.levels[0])
        return {f"{PREFIX}unconstrained-topology": "true"} if way else {}

    def slices(self, count: int, above: str) -> dict[str, str]:
        below = self.levels[self.levels.index(above) :]
        size = self.random.choice([size for size in (1, 2, 3) if count % size == 0])
        return {
            f"{PREFIX}slice-required-topology": self.random.choice(below),
            f"{PREFIX}slice-size": str(size),
        }
