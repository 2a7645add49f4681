"""Which running Jobs would save by going on elsewhere from a checkpoint, and how that is done."""

import pytest

from tests.builders import policy
from tests.reconsider.running_jobs import OPTIONS, advised, by_cost, resuming, running
from tests.state.objects import condition
from webhook.decide.wishes import CHECKPOINT
from webhook.model.reasons import Obstacle


def test_a_job_that_can_go_on_is_advised_to_do_so_where_the_rest_of_it_costs_less():
    (found,) = advised([resuming()], [running()])

    # About three of four hours are left, and twice as many there; an hour of time is worth 0.5.
    left, slower = found.here.cost.money / 10, found.there.cost.money
    assert 3.0 < left < 3.5
    assert 2.0 * left <= slower < 7.0
    assert found.here.cost.total == pytest.approx(10.5 * left)
    assert found.there.cost.total == pytest.approx(1.5 * slower)
    assert found.saves == pytest.approx(10.5 * left - 1.5 * slower)
    assert (found.there.option, found.obstacle) == ("cpu", None)
    assert found.sentence("EUR") == (
        "what is left of it would cost 10.2 EUR instead of 34.1 in cpu-lq (cpu), "
        "done in 6h, 3h later"
    )


def test_the_recipe_stops_it_moves_it_and_lets_it_go_on():
    (found,) = advised([resuming()], [running()])

    assert found.recipe == (
        """kubectl patch workload wl-0 -n team --type merge -p '{"spec":{"active":false}}'""",
        "kubectl wait workload wl-0 -n team --for=condition=QuotaReserved=false --timeout=10m",
        "kubectl annotate job job-0 -n team kueue-fallback.dev/move-to=cpu",
        "kubectl wait workload wl-0 -n team --for=jsonpath='{.spec.queueName}'=cpu-lq --timeout=1m",
        """kubectl patch workload wl-0 -n team --type merge -p '{"spec":{"active":true}}'""",
    )


def test_what_cannot_change_in_place_is_created_again():
    adapted = {**OPTIONS[1], "adaptation": {"image": "for-cpus"}}

    (found,) = advised([resuming()], [running()], policies=(by_cost(OPTIONS[0], adapted),))

    assert found.obstacle is Obstacle.IMMUTABLE_IMAGE
    assert found.recipe[0] == "kubectl delete job job-0 -n team"
    assert found.recipe[-1].endswith("with the annotation kueue-fallback.dev/allow: cpu")


def test_those_that_save_most_come_first():
    found = advised([resuming(0), resuming(1)], [running(0, hours=3.0), running(1, hours=0.5)])

    assert [each.job.job.name for each in found] == ["job-1", "job-0"]


@pytest.mark.parametrize(
    ("job", "workload"),
    [
        pytest.param(resuming(annotations={}), running(), id="has no checkpoints"),
        pytest.param(resuming(annotations={CHECKPOINT: "soon"}), running(), id="unreadable"),
        pytest.param(
            resuming(annotations={CHECKPOINT: "10m", "kueue-fallback.dev/policy": "none"}),
            running(),
            id="opted out",
        ),
        pytest.param(
            resuming(annotations={CHECKPOINT: "10m", "kueue-fallback.dev/allow": "gpu"}),
            running(),
            id="allows no other option",
        ),
        pytest.param(resuming(policy="other"), running(), id="decided by no such policy"),
        pytest.param(resuming(), running(also=(condition("Evicted"),)), id="is being evicted"),
        pytest.param(resuming(option="cpu"), running(option="cpu"), id="is where it is cheap"),
        pytest.param(resuming(1), running(0), id="has no Workload"),
    ],
)
def test_no_other_job_is_advised(job, workload):
    assert advised([job], [workload]) == ()


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param((by_cost(mode="Observe"),), id="observes"),
        pytest.param((by_cost(percent=40),), id="would have to save 80 percent"),
        pytest.param((policy(*OPTIONS, strategy={"finishTime": {"runTime": "4h"}}),), id="by time"),
        pytest.param(
            (by_cost(OPTIONS[0], {**OPTIONS[1], "only": {"groups": ["ml"]}}),), id="kept for some"
        ),
    ],
)
def test_policies_that_advise_nothing(policies):
    assert advised([resuming()], [running()], policies=policies) == ()


def test_who_would_have_to_wait_long_stays():
    there = [running(number, option="cpu", hours=0.1) for number in (7, 8)]

    # Both places there are taken for eight hours; then what is left costs (10 + 0.5) * 3 here.
    slow = (by_cost(timeValue="3"),)

    assert advised([resuming()], [running()], policies=slow)
    assert advised([resuming()], [running()], policies=slow, others=there) == ()


def test_little_that_is_left_is_not_worth_the_restart():
    delayed = (by_cost(OPTIONS[0], {**OPTIONS[1], "startDelay": "12h"}),)

    assert advised([resuming()], [running(hours=0.1)], policies=delayed)
    assert advised([resuming()], [running(hours=3.9)], policies=delayed) == ()
