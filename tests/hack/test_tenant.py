"""What the tenant's hour makes of its figures, and what the tenant tries."""

import json
import random

from hack import hostile, tenant
from webhook.admission.review import read_review

QUIET = {"server": 50.0, "observer": 60.0, "controller": 40.0}


def sample(cpu=100, spare=100, *, p99=10.0, memory=None, decided=None, **notes):
    calls = cpu + spare
    found = {"queue cpu-lq": cpu, "queue spare-lq": spare, **notes}
    found["decided"] = calls if decided is None else decided
    return {
        "calls": calls,
        "errors": {},
        "deleted": {"errors": {}},
        "notes": found,
        "latency": {"p99": p99},
        "memoryMegabytes": memory or QUIET,
    }


def figures(*beside, restarts=None, tried=None, counted=0.0):
    return {
        "alone": {"samples": [sample(p99=4.0)] * 6},
        "uncalled": {"samples": [sample()] * 6},
        "beside": {
            "samples": list(beside),
            "restarts": restarts or {},
            "counted": {"failures_total": counted},
        },
        "tried": tried or {},
    }


def missed(found):
    return [target.name for target in tenant.targets(found) if not target.is_met]


def test_what_nobody_notices_meets_every_target():
    assert missed(figures(*[sample()] * 6)) == []


def test_a_job_that_went_elsewhere_is_a_wrong_decision_and_so_is_one_without():
    elsewhere = figures(*[sample(cpu=97, **{"queue gpu-lq": 3}, decided=200)] * 6)
    undecided = figures(*[sample(decided=199)] * 6)

    assert tenant.wrong_decisions(elsewhere) > 0
    assert tenant.wrong_decisions(undecided) == 6


def test_what_was_started_again_slower_or_larger_is_named():
    larger = {**QUIET, "observer": 90.0}
    found = figures(
        *[sample(p99=16.0, memory=larger)] * 6,
        restarts={"observer": 2},
        tried={"long number: created": 3, "refused because of a decision": 1},
        counted=1.0,
    )

    assert missed(found) == [
        "what was started again",
        "forged decisions carried out, and refusals",
        "failures_total",
        "p99 of others' creates, to beside the tenant without us",
        "memory of the observer, to alone",
    ]


def test_everything_is_tried_in_turn_and_again_from_the_same_seed():
    def plans():
        attacker = hostile.Tenant(random=random.Random(3))
        return [hostile.planned(attacker) for _ in range(3 * len(hostile.ATTEMPTS))]

    first, second = plans(), plans()

    assert len({name for name, _ in first}) == len(hostile.ATTEMPTS)
    assert [name for name, _ in first] == [name for name, _ in second]
    assert [each.job for _, each in first][:3] == [each.job for _, each in second][:3]
    assert all(len(json.dumps(each.job)) < 1_500_000 for _, each in first)


def test_reviews_of_a_peer_are_such_as_the_webhook_reads():
    attacker = hostile.Tenant(random=random.Random(3))
    plans = (hostile.planned(attacker) for _ in hostile.ATTEMPTS)
    sent = [attempt.job for _, attempt in plans if attempt.reviews]

    found = [read_review(json.dumps(hostile.review_of(job)).encode()) for job in sent]

    assert len(found) == 2
    assert {(each.operation, each.namespace) for each in found} == {("CREATE", "tenant")}
