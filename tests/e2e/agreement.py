"""Random cases for the comparison with Kueue: queues, flavors, cohort trees and Jobs, by seed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.e2e.agreement_maker import Maker, Object
from tests.e2e.kind_maker import KindMaker
from tests.e2e.topology_maker import TopologyMaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What stands before any Job (in order of creation), and the Jobs one after another."""

    seed: int
    namespace: str
    objects: tuple[Object, ...]
    jobs: tuple[Object, ...]
    marker: Object
    """A Job that gets quota only from the cohort made last: Kueue then knows all of them."""

    def manifests(self) -> list[Object]:
        return [*self.objects, *self.jobs]


def seeds(count: int, variable: str = "AGREEMENT_SEEDS") -> list[int]:
    """Return the first *count* seeds, or those that the environment asks for."""
    given = os.environ.get(variable, f"1-{count}")
    found: list[int] = []
    for part in given.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def make_case(seed: int) -> Case:
    maker = Maker(seed)
    return _case(maker, maker.job)


def make_mixed_case(seed: int) -> Case:
    """Make a case in which Jobs of several kinds wait in the same queues."""
    maker = KindMaker(seed)
    return _case(maker, maker.job_of_any_kind)


def make_topology_case(seed: int) -> Case:
    """Make a case in which it is Nodes, in racks and blocks, that have room or not."""
    maker = TopologyMaker(seed)
    made = _case(maker, maker.job)
    flavors = (maker.flavor(name) for name in maker.plain)
    return replace(made, objects=(maker.topology(), *maker.nodes(), *flavors, *made.objects))


def _case(maker: Maker, make_job: Callable[[int, list[str]], Object]) -> Case:
    queues = [f"{maker.name}-q{index}" for index in range(maker.random.randint(1, 4))]
    objects = [
        maker.namespace(),
        *(maker.flavor(name) for name in dict.fromkeys([*maker.flavors, *maker.gpu_flavors])),
        *maker.cohort_objects(),
        *(maker.cluster_queue(name) for name in queues),
        *(maker.local_queue(name) for name in queues),
        *maker.marker_objects(),
    ]
    if maker.chance(0.3):
        objects.append(maker.limit_range())
    jobs = [make_job(index, queues) for index in range(maker.random.randint(4, 9))]
    return Case(
        seed=maker.seed,
        namespace=maker.name,
        objects=tuple(objects),
        jobs=tuple(jobs),
        marker=maker.marker_job(),
    )


def case_of_a_strict_head() -> Case:
    """Three queues of a cohort, 4 CPUs each: one borrows, so that a strict one's head must wait.

    A third Job fits what is free and gets nothing; a fourth, in a queue apart, does.
    """
    maker = Maker(0)
    cell = {"name": "cpu", "nominalQuota": "4"}
    flavor = {"name": "ag0-f", "resources": [cell]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    shared = {**spec, "cohortName": "ag0-all"}
    queues = {
        "ag0-strict": {**shared, "queueingStrategy": "StrictFIFO"},
        "ag0-borrower": shared,
        "ag0-third": shared,
        "ag0-apart": spec,
    }
    jobs = [("ag0-borrower", "9"), ("ag0-strict", "4"), ("ag0-third", "3"), ("ag0-apart", "3")]
    return Case(
        seed=0,
        namespace=maker.name,
        objects=(
            maker.namespace(),
            maker.cluster_scoped("ResourceFlavor", "ag0-f", {}),
            *(maker.cluster_scoped("ClusterQueue", name, spec) for name, spec in queues.items()),
            *(maker.local_queue(name) for name in queues),
            *maker.marker_objects(),
        ),
        jobs=tuple(
            maker.plain_job(f"job-{index}", queue, cpus) for index, (queue, cpus) in enumerate(jobs)
        ),
        marker=maker.marker_job(),
    )
