"""Runs and records for tests; what is left out is small and unremarkable."""

from webhook.learn.job_class import Mark
from webhook.learn.run_records import Run, WorkloadRun
from webhook.model.forecasts import JobClass

DAY = 86_400


def ended(
    key="k",
    finished=1000,
    *,
    seconds=60,
    uid=1,
    succeeded=True,
    coarse="~c",
    generation=0,
    said=0,
    begun=None,
    **rest,
):
    given = {"name": "trainer", "flavors": "t4", **rest}
    run = Run(finished, uid, seconds, generation, succeeded)
    mark = Mark(JobClass(key, coarse), generation, said)
    return (begun or WorkloadRun(run))._replace(run=run, mark=mark, **given)


def failure(finished, *, option="cpu", generation=1, **rest):
    where = {"policy": "light-gpu", "option": option, "generation": generation, "flavors": "plain"}
    return ended(finished=finished, succeeded=False, **where, **rest)


def success(finished, *, option="gpu", generation=1, policy="light-gpu", **rest):
    return ended(finished=finished, policy=policy, option=option, generation=generation, **rest)


def begun(key="k", *, admitted=100, ready=0, reserved=0, uid=1, **rest):
    given = {"cluster_queue": "gpu-cq", "flavors": "t4", **rest}
    mark = Mark(JobClass(key, "~c"), 0)
    times = {"admitted": admitted, "ready": ready, "reserved": reserved}
    return WorkloadRun(run=Run(0, uid), mark=mark, **times, **given)
