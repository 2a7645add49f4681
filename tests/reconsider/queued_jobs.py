"""Pending Jobs, the queues they wait in, and the moves that are chosen for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tests.builders import container, job, policy
from tests.state.objects import (
    PENDING,
    cluster_queue,
    condition,
    local_queue,
    named,
    reserving,
    workload,
)
from webhook.api import resources as kinds
from webhook.model.job import Pending, PodSets
from webhook.reconsider import choose, offers
from webhook.state.snapshot import updated
from webhook.state.state import State

NOW = 1795240800.0
"""2026-11-21T06:00:00Z"""


ADAPTED = {"resources": {"requests": {"cpu": "3"}}}


OPTIONS = (
    {"name": "gpu", "queue": "gpu-lq"},
    {"name": "cpu", "queue": "cpu-lq", "slowdown": 2, "adaptation": ADAPTED},
)


RULES = {"after": "30s", "minimumGain": {"time": "5s", "percent": 0}, "maxMoves": 2}


POD_SETS = PodSets(job(container(requests={"cpu": "4"})).pod_sets)


def rule(*, reconsider=RULES, options=OPTIONS, **rest):
    strategy = {"finishTime": {"runTime": "20s"}}
    return policy(*options, strategy=strategy, reconsider=reconsider, **rest)


def time(seconds_ago):
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(number, *, age=100, queue="gpu-lq", **rest):
    option = queue.removesuffix("-lq")
    return workload(
        f"wl-{number}",
        job=f"job-{number}",
        queue=queue,
        guest=rest.pop("guest", ("light-gpu", option)),
        conditions=(PENDING, *rest.pop("also", ())),
        created=time(age - number),
        cpu="4" if option == "gpu" else "3",
        **rest,
    )


def pending(number, *, age=100, option="gpu", **rest):
    found = job(name=f"job-{number}", queue="gpu-lq")
    defaults = {"policy": "light-gpu", "changed": NOW - age + number}
    return Pending(
        uid=f"uid-{number}",
        version="1",
        created=NOW - age + number,
        job=replace(found, pod_sets=POD_SETS),
        queue=f"{option}-lq",
        option=option,
        **{**defaults, **rest},
    )


def running(name, queue="gpu", cpu="4"):
    admitted = {**condition("Admitted"), "lastTransitionTime": time(0)}
    return reserving(
        name, to=f"{queue}-cq", guest=("light-gpu", queue), also=(admitted,), cpu=cpu, job=name
    )


def looked(workloads, jobs, *, policies=None, most=16, gpu="4", cpu="9", preemption=None, **world):
    state = State()
    within = {} if preemption is None else {"preemption": preemption}
    state.replace(kinds.CLUSTER_QUEUES, [quota("gpu", gpu, **within), quota("cpu", cpu)])
    state.replace(kinds.LOCAL_QUEUES, [lane("gpu"), lane("cpu")])
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    state.replace(kinds.PRIORITY_CLASSES, [named("WorkloadPriorityClass", "guests", value=-10)])
    state.replace(kinds.WORKLOADS, workloads)
    snapshot = updated(state.snapshot(0.0, NOW), policies=policies or (rule(),), generation=1)
    found = offers.ReconsiderInput(
        snapshot=snapshot,
        contents={name: state.contents_of(name) for name in choose.trees(snapshot)},
        workloads=choose.by_job(state.workloads()),
        now=0.0,
        unix=NOW,
        **world,
    )
    return choose.choose_moves(found, jobs, most=most)


def quota(name, cpu, **spec):
    return cluster_queue(f"{name}-cq", cpu=cpu, **spec)


def lane(name):
    return local_queue(f"{name}-lq", f"{name}-cq")


def why(found):
    return {obstacle for _, obstacle in found.obstacles}
