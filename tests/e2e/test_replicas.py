"""The paper's Burst against three replicas, which share nothing but the API server."""

import re
import urllib.request

from hack import paper
from hack.install import PATIENT, Installation
from tests.e2e.bursts import burst, expected_by_the_rule
from tests.e2e.decisions import applied_policy, finish_time

CREATES = re.compile(r'_reviews_total\{[^}]*operation="CREATE"[^}]*\} (\S+)')


def test_three_replicas_decide_a_burst_within_two_jobs_of_the_rule(own_plane):
    names = paper.names_with("replicas", namespace="default")
    own_plane.client.apply_all(paper.queues(names))
    expected = expected_by_the_rule([False] * 15 + [True] * 15)

    with (
        Installation(own_plane, replicas=3, chart_values=PATIENT) as installed,
        applied_policy(own_plane.client, paper.policy(names), names),
    ):
        before = [creates_of(replica) for replica in installed.replicas]
        taken = burst(own_plane, names)
        after = [creates_of(replica) for replica in installed.replicas]

    differing = [
        number
        for number, pair in enumerate(zip(taken, expected, strict=True))
        if pair[0] != pair[1]
    ]
    print(f"differs from the rule at {differing}, {taken.count('cpu')} sent to CPU")
    assert len(differing) <= 2, taken
    # In turn: each has had a third, give or take what the API server asks again.
    assert all(now - then >= 10 for then, now in zip(before, after, strict=True))


def test_three_replicas_send_as_many_by_finish_time_as_one_does_within_two(own_plane):
    one, three = (by_finish_time(own_plane, replicas) for replicas in (1, 3))

    print(f"one sends {one.count('cpu')} of 30 to CPU, three send {three.count('cpu')}")
    assert 0 < one.count("cpu") < 15
    assert abs(one.count("cpu") - three.count("cpu")) <= 2, (one, three)


def by_finish_time(plane, replicas):
    names = paper.names_with(f"finish-{replicas}", namespace=f"finish-{replicas}")
    metadata = {"name": names.namespace}
    plane.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    plane.client.apply_all(paper.queues(names))
    with (
        Installation(plane, replicas=replicas, chart_values=PATIENT),
        # So long that the third wave on the CPUs would be done later than what waits for a GPU.
        applied_policy(plane.client, finish_time(names, runTime="300s"), names),
    ):
        return burst(plane, names)


def creates_of(replica):
    """Read how many reviews of creations a replica has answered."""
    url = f"http://127.0.0.1:{replica.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return sum(map(float, CREATES.findall(answer.read().decode())))
