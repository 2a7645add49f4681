"""Made-up Workloads that wait, with their starts."""

from dataclasses import replace

from tests.state.objects import PENDING, workload
from webhook.model.forecasts import Start
from webhook.state.waiting_line import WaitingWorkload
from webhook.state.workload import read_workload

_READ = read_workload(workload(conditions=(PENDING,)))


def waiting(job="train", *, namespace="team", seconds=60.0, position=1, pending=3, **start):
    found = _READ._replace(namespace=namespace, job=job, name=f"job-{job.replace('/', '-')}-1")
    given = {"low": seconds / 2, "high": seconds * 1.5, **start}
    return WaitingWorkload(
        workload=found,
        cluster_queue="gpu-cq",
        position=position,
        pending=pending,
        start=Start(seconds=seconds, **given),
    )


LINE = (
    waiting("train"),
    waiting("next", seconds=120.0, position=2),
    waiting("theirs", namespace="other", seconds=180.0, position=3, unseen=2),
    replace(waiting("rayjob/tune", seconds=30.0, pending=1), cluster_queue="cpu-cq"),
)
