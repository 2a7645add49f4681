"""What a replay begins with."""

from tests.builders import cluster_queue, held, snapshot
from webhook.model.queues import QuotaHolder
from webhook.model.snapshot_parts import OffSwitch
from webhook.simulate.scenario import emptied

HOLDER = QuotaHolder(
    key="team/a",
    local_queue="team/gpu-lq",
    charge=(),
    priority=0,
    reserved_at=0,
    queued_at=0,
    is_evicted=False,
    uid="a",
)


def test_a_replay_begins_with_queues_that_hold_nothing_and_nobody_to_preempt():
    busy = snapshot(
        cluster_queue(),
        held={"gpu-cq": held(reserving=1)},
        reserving={"gpu-cq": (HOLDER,)},
        off=OffSwitch(),
    )

    assert emptied(busy) == snapshot(cluster_queue())
