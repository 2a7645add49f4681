"""The paper's Burst: decisions equal the rule on exact counts, every earlier Job included."""

import pytest

from hack import paper
from tests.e2e.decisions import SLOW, applied_policy, decision_of
from tests.processes.bursts import burst, expected_by_the_rule


@pytest.mark.parametrize("round_number", range(5))
def test_one_replica_decides_by_exact_counts(plane, webhook, queues, round_number):
    with applied_policy(plane.client, paper.policy(queues), queues):
        taken = burst(plane, queues)

    assert taken == expected_by_the_rule([False] * 15 + [True] * 15)
    assert taken.count("cpu") == 3


def test_generated_names_are_counted_exactly_too(plane, webhook, queues):
    heavy, light = paper.heavy_job("x", queues, faster=SLOW), paper.light_job("x", queues)
    for job, prefix in ((heavy, "heavy-"), (light, "light-")):
        del job["metadata"]["name"]
        job["metadata"]["generateName"] = prefix

    with applied_policy(plane.client, paper.policy(queues), queues):
        created = [plane.client.create(job) for job in [heavy] * 15 + [light] * 5]

    decided = [decision_of(job) for job in created[15:]]
    assert [decision["option"] for decision in decided] == ["cpu", "cpu", "cpu", "gpu", "gpu"]


def test_jobs_created_at_the_same_instant_are_counted_one_after_the_other(plane, webhook, queues):
    heavy = [paper.heavy_job(f"heavy-{n}", queues, faster=SLOW) for n in range(15)]
    light = [paper.light_job(f"light-{n}", queues, faster=SLOW) for n in range(15)]

    with applied_policy(plane.client, paper.policy(queues), queues):
        plane.client.create_all(heavy)
        created = plane.client.create_all(light, at_once=15)

    assert [decision_of(job)["option"] for job in created].count("cpu") == 3
