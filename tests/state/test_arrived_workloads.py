"""Which Workloads are kept that got quota, to tell how often such come."""

import random

from tests.state.objects import workload
from webhook.state import workloads
from webhook.state.workload import read_workload
from webhook.state.workloads import MOST_ARRIVED, ArrivedWorkloads

ONE = read_workload(workload())


def arrived(created):
    return ONE._replace(created=created)


def test_the_newest_of_a_queue_are_kept_whatever_order_they_are_read_in():
    times = list(range(MOST_ARRIVED + 50))
    random.Random(1).shuffle(times)
    kept = ArrivedWorkloads()

    for time in times:
        kept.note("gpu-cq", arrived(time))

    assert [each.created for each in kept.of("gpu-cq")] == list(range(50, MOST_ARRIVED + 50))
    assert kept.of("cpu-cq") == ()


def test_queues_to_which_nobody_comes_any_more_make_room(monkeypatch):
    monkeypatch.setattr(workloads, "MOST_QUEUES", 2)
    kept = ArrivedWorkloads()

    for time, name in enumerate(("a", "b", "a", "c")):
        kept.note(name, arrived(time))

    assert [len(kept.of(name)) for name in "abc"] == [2, 0, 1]
