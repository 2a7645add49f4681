from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import GPU_OPTION, cluster_queue, foreseen, policy, snapshot
from tests.cost.tariffs import profile as profile_of
from webhook.cost.congestion import (
    STEP_SECONDS,
    CellRequest,
    Market,
    by_queue,
    next_price,
    next_prices,
)
from webhook.model.costs.prices import (
    LASTS_SECONDS,
    NO_PRICES,
    CongestionPrices,
    Prices,
    ScarceCell,
    curve,
)
from webhook.model.policy.strategy import Congestion
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, WorkerCluster
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated

GPU = ("t4", "nvidia.com/gpu")
PLACE = ScarceCell("queue gpu-cq", *GPU)
RULES = Congestion()
NOW = 1_000_000.0
STEP = 0.02


@given(
    st.lists(st.one_of(st.just(float("inf")), st.floats(0, 1e6)), max_size=400),
    st.floats(0.0, 1e3),
    st.integers(0, 9),
    st.floats(0.0, 1e4),
)
def test_a_price_never_leaves_its_bounds(waits, base, most, price):
    rules = Congestion(most=str(most))

    for wait in waits:
        price = next_price(price, wait, base, rules)

        assert 0.0 <= price <= most * base


@pytest.mark.parametrize(
    ("wait", "expected"),
    [(301.0, 1.0 + STEP), (300.0, 1.0), (150.0, 1.0), (149.0, 1.0 - STEP), (0.0, 1.0 - STEP)],
)
def test_it_rises_above_the_wait_falls_below_half_and_stays_between(wait, expected):
    assert next_price(1.0, wait, 1.0, RULES) == pytest.approx(expected)


@given(st.floats(0.1, 10.0), st.floats(0.0, 5.0), st.floats(0.05, 4.9), st.floats(400.0, 1e5))
def test_under_constant_load_it_settles_within_300_steps(base, first, balance, longest):
    """The dearer it is the fewer come, and at some price in bounds nobody waits any more."""
    step, price = STEP * base, first * base

    def wait(dearness):
        return longest * max(0.0, 1 - dearness / (balance * base))

    prices = []
    for _ in range(600):
        price = next_price(price, wait(price), base, RULES)
        prices.append(price)

    # Where the dead band is narrower than a step, it swings around it.
    late = prices[300:]
    assert max(late) - min(late) <= 6 * step + 1e-9


def flat(value):
    return curve({0.0: value}, 1e9)


def world(free=0, at=600.0, **changes):
    """Return a queue whose GPUs come free after *at* seconds, and are given a second later."""
    gpus = cluster_queue("gpu-cq", {"t4": {"nvidia.com/gpu": "4"}})
    known = snapshot(
        gpus,
        policies=(policy(GPU_OPTION, strategy={"type": "Cost"}),),
    )
    changes = {"prices": {"": Prices(rates={GPU: flat(2.0)})}, **changes}
    return updated(
        foreseen(known, ("gpu-cq", {"t4": {"nvidia.com/gpu": str(4 - free)}}, at)), **changes
    )


def market(known, *amounts, unix=NOW, now=0.0):
    requests = tuple(
        CellRequest(float(number), "gpu-cq", {GPU: amount}) for number, amount in enumerate(amounts)
    )
    return Market(
        setup=known.setup,
        manager=known.setup,
        fallback=known.fallback,
        prices=known.costs.prices.get("", NO_PRICES),
        forecasts=known.forecasts,
        requests=requests,
        now=now,
        unix=unix,
    )


def before(price, at=NOW - STEP_SECONDS):
    return CongestionPrices(at=at, prices={PLACE: price})


def test_what_is_waited_for_gets_a_price_in_steps_of_its_rate():
    found = next_prices(before(0.5), market(world(), 1, 1, 4))

    assert found.at == NOW
    assert found.prices == {PLACE: pytest.approx(0.5 + STEP * 2.0)}
    assert found.waits == {PLACE: 601.0}


def test_the_median_request_is_looked_at():
    assert next_prices(before(0.5), market(world(free=1), 1, 1, 4)).waits == {PLACE: 0.0}
    assert next_prices(before(0.5), market(world(free=1), 1, 4, 4)).waits == {PLACE: 601.0}


def test_only_the_newest_fifty_requests_count():
    found = next_prices(before(0.5), market(world(free=1), *[4] * 60, *[1] * 50))

    assert found.waits == {PLACE: 0.0}


def test_time_goes_by_after_a_forecast():
    assert next_prices(before(0.5), market(world(), 1, now=400.0)).waits == {PLACE: 201.0}


def test_a_new_leader_goes_on_from_what_the_last_one_published():
    first = next_prices(before(0.5), market(world(), 1))
    second = next_prices(first, market(world(), 1, unix=NOW + STEP_SECONDS))

    assert second.prices[PLACE] == pytest.approx(0.5 + 2 * STEP * 2.0)


def test_what_was_published_too_long_ago_counts_as_nothing():
    old = before(5.0, at=NOW - LASTS_SECONDS - 1)

    assert next_prices(old, market(world(), 1)).prices == {PLACE: pytest.approx(STEP * 2.0)}
    assert by_queue(old, world().setup, None, NOW) == {}
    assert by_queue(before(5.0), world().setup, None, NOW) == {"gpu-cq": {GPU: 5.0}}


def test_the_off_switch_takes_all_prices_off():
    off = world(off=OffSwitch())

    assert next_prices(before(5.0), market(off, 1)).prices == {}
    assert by_queue(before(5.0), off.setup, off.fallback.off, NOW) == {}


def test_a_switch_of_one_namespace_leaves_the_others_their_prices():
    off = world(off=OffSwitch(namespaces=frozenset({"team"})))

    assert by_queue(before(5.0), off.setup, off.fallback.off, NOW) == {"gpu-cq": {GPU: 5.0}}


def test_without_a_policy_that_asks_for_it_nothing_has_a_price():
    strategy = {"type": "Cost", "cost": {"congestion": {"type": "None"}}}
    known = world(policies=(policy(GPU_OPTION, strategy=strategy),))

    assert next_prices(before(5.0), market(known, 1)).prices == {}


L40S = profile_of(flavors=["t4"], watts={"maximum": 400, "busy": 300}).device


@pytest.mark.parametrize(
    ("prices", "base"),
    [
        # Without a rate its electricity, and without that the time of the median request.
        ({"": Prices(electricity=flat(0.5), devices={"t4": L40S})}, 0.3 * 0.5),
        ({"": Prices(electricity=flat(0.5))}, 1.0 / 2),
        ({}, 1.0 / 2),
    ],
)
def test_what_has_no_rate_is_priced_by_its_power_or_by_time(prices, base):
    found = next_prices(before(0.0), market(world(prices=prices), 2))

    assert found.prices == {PLACE: pytest.approx(STEP * base)}


def sending(**rest):
    """Return a manager whose ``gpu-lq`` leads to the worker cluster ``far``."""
    return snapshot(
        cluster_queue("manager-cq", {"remote": {"nvidia.com/gpu": "100"}}, checks=("remote",)),
        local_queues={"gpu-lq": "manager-cq", "other-lq": "manager-cq"},
        checks={"remote": AdmissionCheck(controller=MULTIKUEUE, parameters="all")},
        multikueue_configs={"all": ("far",)},
        worker_clusters={"far": WorkerCluster()},
        **rest,
    )


def in_cluster(name, manager=None):
    """Return what the price of the GPUs in a worker cluster is made from."""
    rule = policy({"name": "gpu", "queue": "gpu-lq"}, strategy={"type": "Cost"})
    decides = manager or sending(policies=(rule,))
    return replace(
        market(world(), 1), manager=decides.setup, fallback=decides.fallback, cluster=name
    )


def test_a_workers_queue_has_a_price_by_the_policies_that_lead_there_through_multikueue():
    there, elsewhere = (ScarceCell(*PLACE[:3], name) for name in ("far", "near"))
    known = CongestionPrices(at=NOW - STEP_SECONDS, prices={there: 0.5, elsewhere: 0.7, PLACE: 1.0})

    found = next_prices(known, in_cluster("far"))

    assert found.prices == {there: pytest.approx(0.5 + STEP * 2.0)}
    assert found.waits == {there: 601.0}


@pytest.mark.parametrize(
    ("cluster", "queue"),
    [
        # MultiKueue does not send there.
        ("near", "gpu-lq"),
        # It sends to a LocalQueue that is not there.
        ("far", "other-lq"),
    ],
)
def test_where_no_policy_leads_through_multikueue_nothing_has_a_price(cluster, queue):
    rule = policy({"name": "gpu", "queue": queue}, strategy={"type": "Cost"})

    assert next_prices(before(0.5), in_cluster(cluster, sending(policies=(rule,)))).prices == {}


def test_a_price_counts_in_its_own_cluster_alone():
    known = replace(before(5.0), prices={PLACE: 5.0, PLACE._replace(cluster="far"): 2.0})

    counted = [by_queue(known, world().setup, None, NOW, name) for name in ("", "far", "near")]

    assert counted == [{"gpu-cq": {GPU: 5.0}}, {"gpu-cq": {GPU: 2.0}}, {}]
