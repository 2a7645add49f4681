"""Jobs between a manager and its worker: whatever is seen when, each that waits counts once."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import cluster_queue, held
from webhook.flow.ledger import ClusterView, ClusterViews
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, WorkerCluster
from webhook.state.pipe import Update, changes
from webhook.state.workload import SeenWorkload

GPU = "nvidia.com/gpu"
STEPS = ("place", "place", "see", "reserve", "arrive", "end")


def job(key):
    return builders.arrival(key, {GPU: "1"}, cluster="a")


def holding(queue, flavor, quota, number, waiting=0, **rest):
    """A cluster in which so many hold quota and so many others were seen to want some."""
    taken = min(number, quota)
    waiting += number - taken
    return builders.snapshot(
        queue,
        held={"gpu-cq": held({flavor: {GPU: str(taken)}}, reserving=taken)},
        competing={"gpu-cq": tuple(job(f"w{each}") for each in range(waiting))},
        **rest,
    )


@dataclass
class World:
    """What there is, and the server that sees it."""

    manager: int
    worker: int
    """Quota of GPUs."""
    here: ClusterView = field(default_factory=lambda: ClusterView(30.0))
    clusters: ClusterViews = field(default_factory=lambda: ClusterViews(30.0))
    placed: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    reserved: list = field(default_factory=list)
    there: list = field(default_factory=list)
    number: int = 0

    @property
    def unfinished(self):
        return sum(map(len, (self.placed, self.waiting, self.reserved, self.there)))

    def show(self, *, seen=(), reserved=(), arrived=()):
        check = AdmissionCheck(controller=MULTIKUEUE, parameters="all")
        manager = holding(
            cluster_queue("gpu-cq", {"remote": {GPU: str(self.manager)}}, checks=("remote",)),
            "remote",
            self.manager,
            len(self.reserved) + len(self.there),
            len(self.waiting),
            checks={"remote": check},
            multikueue_configs={"all": ("a",)},
            worker_clusters={"a": WorkerCluster()},
        )
        worker = holding(
            cluster_queue("gpu-cq", {"t4": {GPU: str(self.worker)}}),
            "t4",
            self.worker,
            len(self.there),
        )
        update = Update(
            changed=changes(None, manager),
            seen=tuple(SeenWorkload(key, builders.NAMESPACE, key, "gpu-lq") for key in seen),
            reserved=tuple(
                SeenWorkload(key, builders.NAMESPACE, key, "gpu-lq") for key in reserved
            ),
            synced=True,
            clusters={
                "a": Update(
                    changed=changes(None, worker),
                    seen=tuple(map(SeenWorkload, arrived)),
                    synced=True,
                )
            },
            watched_clusters=("a",),
        )
        self.here.update(update, 0.0)
        self.clusters.update(update, self.here.occupancy, 0.0)

    def place(self):
        self.number += 1
        self.placed.append(f"j{self.number}")
        self.clusters.enter(job(self.placed[-1]), self.here.occupancy, 0.0)
        self.here.enter(job(self.placed[-1]), 0.0)

    def see(self):
        seen, self.placed = self.placed, []
        self.waiting += seen
        self.show(seen=seen)

    def reserve(self):
        room = self.manager - len(self.reserved) - len(self.there)
        moved, self.waiting = self.waiting[:room], self.waiting[room:]
        self.reserved += moved
        self.show(reserved=moved)

    def arrive(self):
        moved, self.reserved = self.reserved, []
        self.there += moved
        self.show(arrived=moved)

    def end(self):
        self.there = self.there[1:]
        self.show()

    def counted(self):
        around = self.clusters.around(self.here.occupancy)
        queues = around, around.clusters["a"]
        return sum(each.held("gpu-cq").pending for each in queues)


@given(st.integers(1, 6), st.integers(1, 6), st.lists(st.sampled_from(STEPS), max_size=40))
def test_who_waits_counts_once(manager, worker, steps):
    world = World(manager, worker)
    world.show()

    for step in steps:
        getattr(world, step)()

        with_quota = min(world.unfinished, manager)
        waits = world.unfinished - min(with_quota, worker)
        # Between Kueue's look and the message of it, one is on its way without being told.
        untold = max(0, with_quota - len(world.reserved) - len(world.there))
        assert waits - untold <= world.counted() <= waits


@given(st.integers(1, 6), st.lists(st.sampled_from(STEPS), max_size=40))
def test_where_the_manager_has_quota_for_all_who_waits_counts_at_once(worker, steps):
    world = World(len(steps) + 1, worker)
    world.show()

    for step in steps:
        getattr(world, step)()

        assert world.counted() == max(0, world.unfinished - worker)
