"""Random Jobs of the kinds that Kueue queues, for cases in which they wait for the same quota."""

from __future__ import annotations

from tests.e2e.agreement_maker import Maker, Object
from webhook.jobs import BY_NAME


class KindMaker(Maker):
    """Makes the same queues as a Maker of the same seed, and other Jobs."""

    def amount(self, resource: str, top: int, *, most: str = "") -> str:
        """Give three times as much: most of these Jobs have more pods than one."""
        return super().amount(resource, 3 * top, most=most)

    def job_of_any_kind(self, index: int, queues: list[str]) -> Object:
        specs = {
            "Job": self.job_spec,
            "JobSet": self.job_set,
            "MPIJob": self.mpi_job,
            "RayJob": self.ray_job,
        }
        kind = self.random.choice(sorted(specs))
        job = self.namespaced(BY_NAME[kind].api_version, kind, f"job-{index}", specs[kind]())
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = self.random.choice(queues)
        return job

    def job_set(self) -> Object:
        replicated = [
            {
                "name": f"part-{number}",
                "replicas": self.random.choice([1, 1, 2]),
                "template": {"spec": self.job_spec()},
            }
            for number in range(1 + self.chance(0.4))
        ]
        return {"replicatedJobs": replicated}

    def mpi_job(self) -> Object:
        replicas = {"Launcher": 1, "Worker": self.random.choice([1, 1, 2])}
        return {
            "mpiReplicaSpecs": {
                name: {"replicas": count, "template": self.template()}
                for name, count in replicas.items()
            }
        }

    def ray_job(self) -> Object:
        groups = []
        for number in range(1 + self.chance(0.3)):
            count = self.random.choice([1, 1, 2])
            groups.append(
                {
                    "groupName": f"group-{number}",
                    "replicas": count,
                    "minReplicas": count,
                    "maxReplicas": count,
                    "numOfHosts": self.random.choice([1, 1, 2]),
                    "rayStartParams": {},
                    "template": self.ray_template(),
                }
            )
        cluster: Object = {
            "headGroupSpec": {"rayStartParams": {}, "template": self.ray_template()},
            "workerGroupSpecs": groups,
        }
        return {
            "entrypoint": "python train.py",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster,
        }

    def ray_template(self) -> Object:
        found = self.template()
        del found["spec"]["restartPolicy"]
        return found
