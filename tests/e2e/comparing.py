"""What Kueue does with the Jobs of a case, beside what we say that it will do.

Its Jobs are created for real, one by one, each predicted just before from the same objects.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack import kueue
from hack.api import ApiClient, Object
from hack.waiting import WAIT_SECONDS, WaitedInVainError, wait_for
from tests.e2e.agreement import Case
from tests.e2e.agreement_maker import KUEUE, LABEL
from tests.e2e.plane import has_condition, workload_of
from webhook.api import resources as kinds
from webhook.jobs import BY_NAME
from webhook.kueue.requests import needs
from webhook.model import quantity
from webhook.model.decision import Fit
from webhook.model.job import Job
from webhook.model.quantity import Amounts
from webhook.model.queues import Queueing
from webhook.model.topologies import PODS, PlacedPods
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.occupancy import ExplainedAssignment
from webhook.state.snapshot import Snapshot
from webhook.state.state import State
from webhook.state.workload_pods import read_placed

AT_ONCE = 25
UNJUDGED_SECONDS = 2.0
"""Kueue never looks at a Workload behind a StrictFIFO head: there is no verdict to wait for."""

WATCHED = (
    (kinds.CLUSTER_QUEUES, KUEUE, "ClusterQueue", False),
    (kinds.LOCAL_QUEUES, KUEUE, "LocalQueue", True),
    (kinds.COHORTS, KUEUE, "Cohort", False),
    (kinds.FLAVORS, KUEUE, "ResourceFlavor", False),
    (kinds.TOPOLOGIES, KUEUE, "Topology", False),
    (kinds.NODES, "v1", "Node", False),
    (kinds.NAMESPACES, "v1", "Namespace", False),
    (kinds.LIMIT_RANGES, "v1", "LimitRange", True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    seed: int
    job: str
    predicted: bool
    assignment: ExplainedAssignment
    reserved: bool
    usage: Amounts
    """What Kueue charged, where it reserved quota."""
    placed: Counter[PlacedPods]
    """Where Kueue placed its pods, under a Topology."""
    message: str
    """What Kueue says of it; empty: it has not looked at it."""

    @property
    def excused(self) -> str:
        """Say which listed kind of difference this may be; empty: none."""
        if "not looked at" in self.assignment.detail:
            return "topology"
        return "preemption" if self.assignment.fit is Fit.MAY_PREEMPT else ""

    @property
    def is_elsewhere(self) -> bool:
        """Return whether Kueue placed its pods in other domains than we."""
        return bool(self.placed) and Counter(self.assignment.assignment.placed) != self.placed

    @property
    def agrees(self) -> bool:
        same = dict(self.assignment.usage) == dict(self.usage)
        return self.predicted == self.reserved and (same or not self.reserved)

    def __str__(self) -> str:
        found = f"seed {self.seed} {self.job}: we say {self.predicted} ({self.assignment.detail}; "
        found += f"{dict(self.assignment.usage)}), Kueue {self.reserved} {dict(self.usage)}"
        found += f": {self.message or 'no verdict'}"
        ours = _named(self.assignment.assignment.placed)
        if ours != (theirs := _named(self.placed.elements())):
            found += f"; we place {ours}, Kueue {theirs}"
        return found


def _named(placed: Iterable[PlacedPods]) -> list[str]:
    return sorted(f"{'/'.join(pods.domain)} x {dict(pods.amounts)[PODS]}" for pods in placed)


def compare_all(
    client: ApiClient, cases: Iterable[Case], folder: Path, *, again: str
) -> list[Comparison]:
    """Compare all Jobs of all cases; print how many, and what disagrees, whose cases are saved.

    *again*: with the seed in it, the command that compares one case again.
    """
    found: list[Comparison] = []
    by_seed = {case.seed: case for case in cases}
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for compared in pool.map(lambda case: compare(client, case), by_seed.values()):
            found += compared
    wrong = disagreements(found)
    print(
        f"{len(found)} Jobs compared, {sum(item.reserved for item in found)} given quota at once, "
        f"{sum(bool(item.excused) for item in found)} set aside for preemption, "
        f"{len(wrong)} disagreements"
    )
    for item in wrong:
        saved = folder / f"seed-{item.seed}.yaml"
        saved.write_text(yaml.safe_dump_all(by_seed[item.seed].manifests()))
        print(f"{item} (the case is in {saved})\nagain: {again.format(item.seed)}")
    return found


def disagreements(compared: Iterable[Comparison]) -> list[Comparison]:
    return [item for item in compared if not item.agrees and not item.excused]


def compare(client: ApiClient, case: Case) -> list[Comparison]:
    """Create the case for real, its Jobs one by one, each predicted just before."""
    for item in case.objects:
        client.create(item)
    try:
        wait_for(
            lambda: queues_are_active(client, case),
            f"queues of seed {case.seed} are active",
        )
        marker = client.create(case.marker)
        assert wait_until_judged(client, marker, "True") is not None, "Kueue knows all cohorts"
        state = read_state(client, case)
        found: list[Comparison] = []
        for job in case.jobs:
            found.append(compare_job(client, case, job, state))
            if found[-1].excused == "preemption" or not found[-1].agrees:
                # From here on Kueue's state depends on what it preempts.
                break
        return found
    finally:
        clean_up(client, case)


def compare_job(client: ApiClient, case: Case, source: Object, state: State) -> Comparison:
    state.replace(kinds.WORKLOADS, client.list(KUEUE, "Workload", namespace=case.namespace))
    # A Node whose sign of life is late is not ready for a while, and Kueue leaves it out then.
    state.replace(kinds.NODES, client.list("v1", "Node", selector=f"{LABEL}={case.namespace}"))
    snapshot = state.snapshot(0.0, 0.0)
    behind = is_behind(snapshot, BY_NAME[source["kind"]].read(source))
    if behind or occupancy_of(snapshot).heads:
        wait_for_the_next_second()
    created = client.create(source)
    predicted, assignment = predict(snapshot, source)
    seconds = UNJUDGED_SECONDS if behind else WAIT_SECONDS
    workload = wait_until_judged(client, created, seconds=seconds)
    if predicted and not has_condition(workload or {}, "QuotaReserved"):
        # Kueue tries the next flavor in its next cycle.
        later = wait_until_judged(client, created, "True")
        workload = later or workload
    reserved = workload is not None and has_condition(workload, "QuotaReserved")
    return Comparison(
        seed=case.seed,
        job=source["metadata"]["name"],
        predicted=predicted,
        assignment=assignment,
        reserved=reserved,
        usage=charged(workload) if workload is not None and reserved else {},
        placed=placed(workload) if workload is not None and reserved else Counter(),
        message=verdict(workload or {}).get("message", ""),
    )


def wait_for_the_next_second() -> None:
    """Make the next Job younger: times of creation are whole seconds, and Kueue goes by them."""
    now = int(time.time())
    wait_for(lambda: int(time.time()) > now, "a second passes")


def predict(snapshot: Snapshot, source: Object) -> tuple[bool, ExplainedAssignment]:
    job = BY_NAME[source["kind"]].read(source)
    found = occupancy_of(snapshot)
    local_queue = snapshot.setup.local_queues[(job.namespace, job.queue)]
    cluster_queue = snapshot.setup.cluster_queues[local_queue.cluster_queue]
    assignment = occupancy.assignment(
        found, needs(job, snapshot.cluster, snapshot.setup.kueue), cluster_queue
    )
    passes = occupancy.passes_now(found, assignment, local_queue, cluster_queue)
    return passes and not assignment.has_checks(cluster_queue), assignment


def is_behind(snapshot: Snapshot, job: Job) -> bool:
    name = snapshot.setup.local_queues[(job.namespace, job.queue)].cluster_queue
    strict = snapshot.setup.cluster_queues[name].queueing is Queueing.STRICT
    return strict and occupancy_of(snapshot).held(name).pending > 0


def queues_are_active(client: ApiClient, case: Case) -> bool:
    queues = client.list(KUEUE, "ClusterQueue", selector=f"{LABEL}={case.namespace}")
    queues += client.list(KUEUE, "LocalQueue", namespace=case.namespace)
    return all(has_condition(queue, "Active") for queue in queues)


def read_state(client: ApiClient, case: Case) -> State:
    state = State()
    for table, version, kind, namespaced in WATCHED:
        place = case.namespace if namespaced else ""
        selector = f"{LABEL}={case.namespace}"
        state.replace(table, client.list(version, kind, namespace=place, selector=selector))
    deployments = client.list("apps/v1", "Deployment", namespace=kueue.NAMESPACE)
    state.replace(kinds.KUEUE_DEPLOYMENT, deployments)
    return state


def wait_until_judged(
    client: ApiClient, job: Object, status: str = "", *, seconds: float = WAIT_SECONDS
) -> Object | None:
    """Return the Workload once Kueue has said something of it, or *status*; None: it has not."""

    found: list[Object] = []

    def judged() -> Object | None:
        # The first stays the one that is looked at: Kueue may make another one beside it.
        workload = again(found.pop()) if found else workload_of(client, job)
        found.extend([workload] if workload is not None else [])
        said = verdict(workload or {})
        return workload if said and status in ("", said["status"]) else None

    def again(workload: Object) -> Object:
        place = workload["metadata"]
        return client.get(KUEUE, "Workload", place["name"], namespace=place["namespace"])

    with contextlib.suppress(WaitedInVainError):
        return wait_for(judged, "Kueue has judged it", timeout_seconds=seconds)
    return None


def verdict(workload: Object) -> Object:
    """Find the condition QuotaReserved; empty while there is none."""
    for condition in workload.get("status", {}).get("conditions") or ():
        if condition["type"] == "QuotaReserved":
            return dict(condition)
    return {}


def charged(workload: Object) -> Amounts:
    found: dict[tuple[str, str], int] = {}
    for assigned in workload["status"]["admission"]["podSetAssignments"]:
        flavors: dict[str, Any] = assigned.get("flavors", {})
        for resource, amount in assigned.get("resourceUsage", {}).items():
            cell = (flavors[resource], resource)
            found[cell] = found.get(cell, 0) + quantity.parse(amount, resource=resource)
    return found


def placed(workload: Object) -> Counter[PlacedPods]:
    return Counter(read_placed(workload["spec"], workload["status"]["admission"]))


def clean_up(client: ApiClient, case: Case) -> None:
    client.delete("v1", "Namespace", case.namespace)
    # Nobody ends pods of Nodes that are gone, and then all would stay, and wait for domains.
    wait_for(
        lambda: not client.list("v1", "Pod", namespace=case.namespace),
        f"the pods of {case.namespace} have gone",
    )
    for item in case.objects:
        if item["kind"] in ("ClusterQueue", "Cohort", "ResourceFlavor", "Topology", "Node"):
            client.delete(item["apiVersion"], item["kind"], item["metadata"]["name"])
