"""Pending Workloads folded into the counts where the snapshot is made."""

from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.live_occupancy import OccupancyOfSnapshots

GPU = {"nvidia.com/gpu": "1"}


def snapshot(*arrivals, used=4, pending=0):
    """Two ClusterQueues of one cohort and one of its own; the first has *used* of its 4 GPUs."""
    cells = {"t4": {"nvidia.com/gpu": "4"}}
    held = builders.held({"t4": {"nvidia.com/gpu": str(used)}}, reserving=used, pending=pending)
    return builders.snapshot(
        builders.cluster_queue("gpu-cq", cells, cohort="all"),
        builders.cluster_queue("more-cq", cells, cohort="all", borrowing="0"),
        builders.cluster_queue("own-cq", cells),
        held={"gpu-cq": held},
        competing=by_queue(arrivals),
    )


def by_queue(arrivals):
    found = defaultdict(tuple)
    for created, arrival in enumerate(arrivals):
        found[arrival.local_queue.replace("-lq", "-cq")] += (replace(arrival, created=created),)
    return dict(found)


def counts(found):
    return {name: (held.pending, held.reserving) for name, held in found.held.items()}


def test_what_did_not_change_stays_the_same_object():
    settler = OccupancyOfSnapshots()
    first = snapshot(replace(builders.arrival("w", GPU), count=3))

    before = settler(first)
    after = settler(replace(first, as_of=9.0))

    assert after.workloads.held is before.workloads.held
    assert after.as_of == 9.0


@given(
    counts=st.lists(
        st.tuples(
            st.sampled_from(["gpu-lq", "more-lq", "own-lq"]),
            st.integers(1, 6),
            st.integers(1, 3),
        ),
        max_size=5,
    ),
    used=st.integers(0, 4),
)
def test_it_counts_as_one_fold_over_everything_does(counts, used):
    arrivals = tuple(
        replace(
            builders.arrival(f"a{n}", {"nvidia.com/gpu": str(gpus)}, local_queue=queue),
            count=count,
        )
        for n, (queue, count, gpus) in enumerate(counts)
    )
    settler = OccupancyOfSnapshots()
    settler(snapshot(used=used))
    given_ = snapshot(*arrivals, used=used)

    settled = settler(given_)

    whole = occupancy_of(given_)
    assert {n: h for n, h in settled.workloads.held.items() if h != builders.held()} == {
        n: h for n, h in whole.holdings.items() if h != builders.held()
    }
