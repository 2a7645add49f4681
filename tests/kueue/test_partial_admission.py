"""How many pods Kueue admits of a Workload that does with fewer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, needs, snapshot
from webhook.kueue.flavor_plan import most_missing, most_that_fit, with_missing
from webhook.state.counted_arrivals import occupancy_of

GPU = "nvidia.com/gpu"


def pod_set(count, fewest=None):
    return replace(needs({GPU: "1"}, count=count), min_count=fewest)


def counts_with(room, *pod_sets):
    """Return the most pods of each set that fit into so many GPUs; None: the fewest do not."""

    def fit(missing):
        counts = [need.count for need in with_missing(pod_sets, missing)]
        return counts if sum(counts) <= room else None

    return most_that_fit(most_missing(pod_sets), fit)


@pytest.mark.parametrize(
    ("room", "pod_sets", "counts"),
    [
        (4, [(8, 1)], [4]),
        (1, [(8, 1)], [1]),
        (0, [(8, 1)], None),
        (4, [(8, 5)], None),
        (9, [(8, 4), (4, 2)], [6, 3]),
        (8, [(8, 4), (4, None)], [4, 4]),
        (8, [(8, None)], None),
        (8, [(8, 9)], None),
    ],
)
def test_the_most_pods_that_fit_are_taken_from_all_pod_sets_in_proportion(room, pod_sets, counts):
    assert counts_with(room, *(pod_set(*each) for each in pod_sets)) == counts


def test_only_fewer_pods_than_asked_for_are_fewer():
    assert most_missing([pod_set(2), pod_set(5, 1)]) == 4
    assert most_missing([pod_set(2), pod_set(2, 2), pod_set(2, 3)]) == 0


def test_a_pending_workload_that_does_with_fewer_pods_takes_what_is_free():
    waiting = replace(arrival(count=1), needs=(pod_set(8, 1),), count=2)
    queues = snapshot(cluster_queue(quotas={"t4": {GPU: "4"}}), competing={"gpu-cq": (waiting,)})

    held = occupancy_of(queues).held("gpu-cq")

    assert (held.reserving, held.pending, held.usage) == (1, 1, {("t4", GPU): 4})
