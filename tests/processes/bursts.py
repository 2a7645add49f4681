"""A burst of light Jobs, and where the rule sends them."""

from hack import paper
from tests.e2e.decisions import SLOW, decision_of, limited

GPUS = 4


CPU_SLOTS = 6
"""24 CPUs, 4 for each Job."""


def expected_by_the_rule(jobs):
    """Evaluate the rule on exact counts: nothing ends within a burst."""
    gpu, cpu, decisions = 0, 0, []
    for light in jobs:
        gpu_fits, gpu_pending = gpu < GPUS, max(0, gpu - GPUS)
        to_cpu = light and not gpu_fits and gpu_pending >= 10 and cpu < min(3, CPU_SLOTS)
        gpu, cpu = (gpu, cpu + 1) if to_cpu else (gpu + 1, cpu)
        decisions.append("cpu" if to_cpu else "gpu")
    return decisions


def burst(plane, names):
    """Submit 15 heavy, then 15 light Jobs one after the other; returns the options taken."""
    jobs = [limited(paper.heavy_job(f"heavy-{n}", names, faster=SLOW)) for n in range(15)]
    jobs += [paper.light_job(f"light-{n}", names, faster=SLOW) for n in range(15)]
    taken = []
    for job in jobs:
        created = plane.client.create(job)
        decision = decision_of(created)
        taken.append("gpu" if decision is None else decision["option"])
    return taken
