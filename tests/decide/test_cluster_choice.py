"""Which worker cluster is nominated for a Workload, and when the next one is."""

from dataclasses import replace
from math import inf
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import cluster_queue, held
from tests.cost.ended_jobs import flat
from webhook.decide.cluster_choice import (
    AGAIN_SECONDS,
    ClusterProspect,
    Nomination,
    Standing,
    UnplacedWorkload,
    expected_in,
    measure_of,
    next_cluster,
    prospects,
    rank,
)
from webhook.decide.wishes import NONE, Wishes
from webhook.model.costs.devices import Device
from webhook.model.costs.prices import Prices
from webhook.model.forecasts import Basis, JobClass, RunTime
from webhook.model.policy.fallback_policy import Reconsider
from webhook.model.policy.strategy import MoveGain, MoveSaving
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, ResourceFlavor, WorkerCluster
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
EMPTY = MappingProxyType({})
BY_FINISH = builders.policy(strategy={"type": "FinishTime", "finishTime": {"runTime": "100s"}})
BY_COST = builders.policy(strategy={"type": "Cost", "cost": {"runTime": "100s", "timeValue": "1"}})
BY_COUNTS = builders.policy(threshold=builders.PAPER_THRESHOLD)


def known(name, starts_in=0.0, ends_in=None, cost=None):
    return ClusterProspect(
        cluster=name, standing=Standing.KNOWN, starts_in=starts_in, ends_in=ends_in, cost=cost
    )


def other(name, standing):
    return ClusterProspect(cluster=name, standing=standing)


def ranked(policy, *found):
    return "".join(prospect.cluster for prospect in rank(found, policy))


@pytest.mark.parametrize(
    ("policy", "found", "order"),
    [
        (None, [known("a", 9.0), known("b", 5.0), known("c", 5.0)], "bca"),
        (BY_COUNTS, [known("a", 9.0, 10.0), known("b", 5.0, 99.0)], "ba"),
        # 20 s sooner is less than the 30 s for which an earlier one is left.
        (BY_FINISH, [known("a", 0.0, 100.0), known("b", 0.0, 80.0)], "ab"),
        (BY_FINISH, [known("a", 0.0, 100.0), known("b", 0.0, 60.0)], "ba"),
        (BY_FINISH, [known("a", 0.0, 100.0), known("b", 0.0, 80.0), known("c", 0.0, 60.0)], "cab"),
        # The end of one is not known: starts are compared.
        (BY_FINISH, [known("a", 7.0, 10.0), known("b", 5.0)], "ba"),
        # 10 % cheaper is worth it, and later does not count but for what it costs.
        (BY_COST, [known("a", 0.0, 100.0, 2.0), known("b", 50.0, 500.0, 1.7)], "ba"),
        (BY_COST, [known("a", 0.0, 100.0, 2.0), known("b", 50.0, 500.0, 1.9)], "ab"),
        (BY_COST, [known("a", 0.0, 100.0), known("b", 0.0, 50.0, 1.9)], "ba"),
        (
            BY_FINISH,
            [
                other("a", Standing.INACTIVE),
                other("b", Standing.REFUSED),
                other("c", Standing.SILENT),
                other("d", Standing.UNKNOWN),
                known("e", 900.0, 1000.0),
            ],
            "edcba",
        ),
        (None, [other("a", Standing.UNKNOWN), other("b", Standing.UNKNOWN)], "ab"),
    ],
)
def test_clusters_are_ranked_by_the_policys_measure_and_left_in_their_order_else(
    policy, found, order
):
    assert ranked(policy, *found) == order


def chosen(found, nominated, *, waited=60.0, is_late=False, policy=BY_FINISH, after=0.0):
    return next_cluster(
        rank(found, policy),
        nominated,
        measure_of(found, policy, moves=True),
        waited=waited,
        is_late=is_late,
        after=after,
    )


NEAR, FAR = known("near", 0.0, 100.0), known("far", 0.0, 50.0)


@pytest.mark.parametrize(
    ("found", "nominated", "given", "wanted"),
    [
        ([NEAR, FAR], (), {"waited": 0.0}, ("far", Nomination.FIRST)),
        ([NEAR, FAR], ("far",), {}, None),
        ([NEAR, FAR], ("far",), {"is_late": True}, ("near", Nomination.LATE)),
        ([NEAR, FAR], ("far",), {"is_late": True, "waited": AGAIN_SECONDS - 1}, None),
        ([NEAR, FAR], ("near",), {}, ("far", Nomination.BETTER)),
        ([NEAR, other("far", Standing.SILENT)], ("far",), {}, ("near", Nomination.LOST)),
        ([NEAR, other("far", Standing.INACTIVE)], ("far",), {}, ("near", Nomination.LOST)),
        ([NEAR, other("far", Standing.UNKNOWN)], ("far",), {}, ("near", Nomination.BETTER)),
        ([other("near", Standing.UNKNOWN), FAR], ("far",), {}, None),
        ([NEAR, FAR], ("near", "far"), {"is_late": True}, None),
        # All that is left is not reached either; it is asked for in the end.
        (
            [other("near", Standing.INACTIVE), other("far", Standing.INACTIVE)],
            ("near",),
            {},
            ("far", Nomination.LOST),
        ),
    ],
)
def test_another_cluster_is_asked_when_the_nominated_ones_disappoint(
    found, nominated, given, wanted
):
    choice = chosen(found, nominated, **given)

    assert (choice and choice[:2]) == wanted


def reconsidered(policy, **rules):
    spec = policy.spec.model_copy(update={"reconsider": Reconsider(**rules)})
    return policy.model_copy(update={"spec": spec})


@pytest.mark.parametrize(
    ("policy", "far", "gain"),
    [
        # 30 s and 10 % are enough for a decision, and for a move 60 s and 20 % by default.
        (BY_FINISH, known("far", 0.0, 350.0), "done 50s sooner"),
        (reconsidered(BY_FINISH), known("far", 0.0, 350.0), None),
        (reconsidered(BY_FINISH), known("far", 0.0, 330.0), None),
        (reconsidered(BY_FINISH), known("far", 0.0, 320.0), "done 1m20s sooner"),
        (
            reconsidered(BY_FINISH, minimum_gain=MoveGain(time="5m", percent=20)),
            known("far", 0.0, 110.0),
            None,
        ),
        (BY_COST, known("far", 0.0, 400.0, 3.4), "costs 0.6 less"),
        (reconsidered(BY_COST), known("far", 0.0, 400.0, 3.4), None),
        (reconsidered(BY_COST), known("far", 0.0, 400.0, 3.0), "costs 1 less"),
        (
            reconsidered(BY_COST, minimum_saving=MoveSaving(amount="2", percent=20)),
            known("far", 0.0, 400.0, 3.0),
            None,
        ),
        (BY_COUNTS, known("far", 0.0, 400.0), "starts 5m sooner"),
    ],
)
def test_a_better_cluster_must_gain_what_a_move_must(policy, far, gain):
    near = known("near", 300.0, 400.0, 4.0)

    choice = chosen([near, far], ("near",), policy=policy)

    assert choice == (("far", Nomination.BETTER, gain) if gain else None)


def test_a_better_cluster_is_asked_only_after_the_time_that_a_policy_gives_a_queue():
    near = known("near", 300.0, 400.0)

    assert chosen([near, FAR], ("near",), waited=29.0, after=30.0) is None
    assert chosen([near, FAR], ("near",), waited=30.0, after=30.0) is not None
    assert chosen([near, FAR], ("near",), waited=29.0, after=30.0, is_late=True) is not None


def test_a_workload_is_not_expected_behind_itself_where_it_waits():
    where = seen(manager("near"), near=worker(free_in=40.0))

    newcomer = expected(where)[0]
    waiting = expected(where, waits={"near": 5.0})[0]

    assert (newcomer.starts_in, newcomer.ends_in) == (41.0, 141.0)
    assert (waiting.starts_in, waiting.ends_in) == (5.0, 105.0)


def test_the_first_of_the_nominated_clusters_to_start_it_is_waited_for():
    found = [known("a", 50.0), known("b", 20.0), other("c", Standing.UNKNOWN)]

    assert expected_in(found, ("a",)) == 50.0
    assert expected_in(found, ("a", "b", "c")) == 20.0
    assert expected_in(found, ("c",)) == 0.0


@st.composite
def found_clusters(draw):
    """Draw what is expected in up to five clusters."""
    found = []
    for name in "abcde"[: draw(st.integers(1, 5))]:
        standing = draw(st.sampled_from(Standing))
        if standing is not Standing.KNOWN:
            found.append(other(name, standing))
            continue
        start = draw(st.floats(0.0, 1e4))
        end = draw(st.none() | st.floats(0.0, 1e4).map(lambda run, start=start: start + run))
        found.append(known(name, start, end, draw(st.none() | st.floats(0.0, 1e3))))
    return found


policies = st.sampled_from((None, BY_FINISH, BY_COST, BY_COUNTS))


@given(found=found_clusters(), policy=policies)
def test_an_inactive_cluster_never_comes_before_an_active_one(found, policy):
    order = rank(found, policy)

    standings = [prospect.standing for prospect in order]
    assert sorted(prospect.cluster for prospect in order) == [each.cluster for each in found]
    assert standings == sorted(standings, reverse=True)


@given(found=found_clusters(), policy=policies)
def test_no_cluster_is_better_than_the_first_by_the_minimum(found, policy):
    first, *others = rank(found, policy)

    known_ones = [each for each in others if each.standing is Standing.KNOWN]
    assert not any(measure_of(found, policy).gains(each, first) for each in known_ones)


@given(data=st.data(), policy=policies)
def test_every_cluster_is_nominated_in_the_end_whatever_becomes_of_them(data, policy):
    names = "abcde"[: data.draw(st.integers(1, 5))]
    nominated = ()
    for _ in range(len(names)):
        drawn = {each.cluster: each for each in data.draw(found_clusters())}
        found = [drawn.get(name, other(name, Standing.UNKNOWN)) for name in names]
        choice = chosen(found, nominated, is_late=bool(nominated), policy=policy)
        assert choice is not None
        nominated = (*nominated, choice[0])

    assert sorted(nominated) == list(names)


def manager(*names, policies=(BY_FINISH,), **rest):
    check = AdmissionCheck(controller=MULTIKUEUE, parameters="all")
    queue = cluster_queue("gpu-cq", {"remote": {GPU: "100"}}, checks=("remote",))
    return builders.snapshot(
        queue,
        checks={"remote": check},
        multikueue_configs={"all": names},
        worker_clusters={name: WorkerCluster() for name in names},
        policies=policies,
        **rest,
    )


def worker(*, free_in=None, flavor="t4"):
    """A cluster with four GPUs; *free_in*: all are held, and free again after so many seconds."""
    queue = cluster_queue("gpu-cq", {flavor: {GPU: "4"}})
    if free_in is None:
        return builders.snapshot(queue)
    used = {flavor: {GPU: "4"}}
    known = builders.snapshot(queue, held={"gpu-cq": held(used, reserving=4, pending=1)})
    return builders.foreseen(known, ("gpu-cq", used, free_in))


def seen(here, **workers):
    counted = {name: occupancy_of(snapshot) for name, snapshot in workers.items()}
    return replace(occupancy_of(here), clusters=counted)


def expected(where, policy=BY_FINISH, wishes=NONE, waits=EMPTY):
    here = where.snapshot
    arrival = builders.arrival("a", {GPU: "1"}, policy=policy.name, option="gpu")
    pods = builders.template(builders.container(limits={GPU: "1"}))
    arrival = replace(
        arrival,
        needs=(builders.needs({GPU: "1"}, pods=pods),),
        job_class=JobClass("class", "coarse"),
    )
    workload = UnplacedWorkload(
        arrival=arrival,
        local_queue=here.setup.local_queues["team", "gpu-lq"],
        cluster_queue=here.setup.cluster_queues["gpu-cq"],
        flavors="remote",
        wishes=wishes,
        waits=waits,
    )
    return prospects(workload, where, now=0.0, unix=0.0)


def test_a_full_cluster_is_expected_to_start_it_when_quota_is_free_there():
    where = seen(manager("full", "free", "unwatched"), full=worker(free_in=40.0), free=worker())

    full, free, unwatched = expected(where)

    assert (full.standing, full.starts_in, full.ends_in) == (Standing.KNOWN, 41.0, 141.0)
    assert (free.standing, free.starts_in, free.ends_in) == (Standing.KNOWN, 0.0, 100.0)
    assert (unwatched.standing, unwatched.starts_in) == (Standing.UNKNOWN, inf)


def test_clusters_that_cannot_be_relied_on_are_told_apart():
    here = manager("gone", "silent", "queueless")
    here = updated(
        here,
        worker_clusters={
            **here.setup.worker_clusters,
            "gone": WorkerCluster(active=False),
        },
    )
    where = seen(here, gone=worker(), silent=worker(), queueless=builders.snapshot())
    where = replace(where, stale={"silent": "stale: its queues were last seen 20s ago"})

    assert [each.standing for each in expected(where)] == [
        Standing.INACTIVE,
        Standing.SILENT,
        Standing.REFUSED,
    ]


def test_the_cheaper_cluster_is_taken_where_costs_decide():
    prices = {
        "dear": Prices(rates={("t4", GPU): flat(36.0)}),
        "cheap": Prices(rates={("t4", GPU): flat(3.6)}),
    }
    here = manager("dear", "cheap", policies=(BY_COST,), prices=prices)
    where = seen(here, dear=worker(free_in=0.1), cheap=worker(free_in=60.0))

    dear, cheap = expected(where, BY_COST)

    # About 100 s at 36 an hour, and at 3.6 an hour; an hour of time is worth 1.
    assert dear.cost == pytest.approx(1.0 * 1.05 + 0.03, rel=0.1)
    assert cheap.cost == pytest.approx(0.1 * 1.05 + 0.045, rel=0.1)
    assert ranked(BY_COST, dear, cheap) == "cheapdear"


DATA = Wishes(data=(("llama", 100.0),))


def with_data(*, transfer):
    """The cluster that comes second holds the data, and costs 0.2 more for 100 s."""
    prices = {
        "bare": Prices(rates={("t4", GPU): flat(36.0)}, transfer=transfer),
        "holding": Prices(
            rates={("t4", GPU): flat(43.2)}, transfer=transfer, holds=frozenset({"llama"})
        ),
    }
    here = manager("bare", "holding", policies=(BY_COST,), prices=prices)
    return seen(here, bare=worker(free_in=0.1), holding=worker(free_in=0.1))


def test_data_that_a_cluster_does_not_hold_costs_its_transfer():
    bare, holding = expected(with_data(transfer=0.01), BY_COST, DATA)
    without = expected(with_data(transfer=0.01), BY_COST)

    # 100 GiB at 0.01.
    assert bare.cost - without[0].cost == pytest.approx(1.0)
    assert holding.cost == without[1].cost
    assert ranked(BY_COST, bare, holding) == "holdingbare"
    assert ranked(BY_COST, *without) == "bareholding"


def test_data_is_cheaper_where_runs_of_the_class_began_soon_after_others():
    where = with_data(transfer=0.01)
    there = where.clusters["bare"]
    known = {
        ("class", "t4"): RunTime(
            seconds=100.0, low=90.0, high=110.0, basis=Basis.LEARNED, runs=9, warm=0.7
        )
    }
    warm = replace(there, snapshot=updated(there.snapshot, run_times=known))
    where = replace(where, clusters={**where.clusters, "bare": warm})

    bare = expected(where, BY_COST, DATA)[0]

    assert bare.cost - expected(where, BY_COST)[0].cost == pytest.approx(0.3)


@pytest.mark.parametrize(("policy", "order"), [(BY_FINISH, "ba"), (BY_COST, "ba")])
def test_a_cluster_that_misses_the_deadline_comes_after_one_that_meets_it(policy, order):
    prices = {name: Prices(rates={("t4", GPU): flat(rate)}) for name, rate in RATES.items()}
    here = manager("a", "b", policies=(policy,), prices=prices)
    where = seen(here, a=worker(free_in=20.0), b=worker(free_in=0.1))

    # 21 s more are less than what an earlier cluster is left for, and a costs a tenth.
    assert ranked(policy, *expected(where, policy)) == "ab"
    assert ranked(policy, *expected(where, policy, Wishes(deadline=110.0))) == order
    # Where none meets it, all is as without one but for what lateness costs.
    assert not any(each.exceeds for each in expected(where, policy, Wishes(deadline=50.0)))


RATES = {"a": 3.6, "b": 36.0}


def test_lateness_counts_where_both_clusters_miss_the_deadline():
    where = seen(
        manager("a", "b", policies=(BY_COST,)), a=worker(free_in=3600.0), b=worker(free_in=0.1)
    )
    late = Wishes(deadline=10.0, lateness=10.0)

    costs = [each.cost for each in expected(where, BY_COST, late)]
    others = [each.cost for each in expected(where, BY_COST)]

    # 10 an hour is less than ten times what the policy gives, of which there is no more.
    lateness = [cost - other for cost, other in zip(costs, others, strict=True)]
    assert lateness[0] - lateness[1] == pytest.approx(10.0, rel=0.02)


@pytest.mark.parametrize("policy", [BY_FINISH, BY_COST, BY_COUNTS])
def test_a_cluster_whose_devices_are_less_than_the_job_needs_is_refused(policy):
    devices = {
        "small": Device(name="T4", memory=16 << 30),
        "large": Device(name="A100", memory=80 << 30),
    }
    prices = {name: Prices(devices={"t4": device}) for name, device in devices.items()}
    here = manager("small", "large", policies=(policy,), prices=prices)
    where = seen(here, small=worker(), large=worker())

    found = expected(where, policy, Wishes(gpu_memory=40 << 30))

    assert [each.standing for each in found] == [Standing.REFUSED, Standing.KNOWN]
    assert {each.standing for each in expected(where, policy)} == {Standing.KNOWN}


def test_a_workers_own_flavors_tell_its_devices_without_any_tariff():
    labels = {"small": "Tesla-T4", "large": "NVIDIA-A100-SXM4-80GB"}
    flavors = {
        name: ResourceFlavor(name="t4", node_labels={"nvidia.com/gpu.product": product})
        for name, product in labels.items()
    }
    workers = {name: updated(worker(), flavors={"t4": each}) for name, each in flavors.items()}
    where = seen(manager("small", "large", policies=(BY_FINISH,)), **workers)

    found = expected(where, BY_FINISH, Wishes(gpu_memory=40 << 30))

    assert [each.standing for each in found] == [Standing.REFUSED, Standing.KNOWN]


def test_the_run_time_that_its_owner_says_counts():
    where = seen(manager("near"), near=worker())

    assert expected(where, wishes=Wishes(run_time=40.0))[0].ends_in == 40.0


def test_what_is_scarce_in_a_cluster_counts_against_it():
    prices = {name: Prices(rates={("t4", GPU): flat(3.6)}) for name in ("near", "far")}
    here = manager("near", "far", policies=(BY_COST,), prices=prices)
    scarce = {"gpu-cq": {("t4", GPU): 36.0}}
    where = seen(
        here,
        near=updated(worker(free_in=0.1), congestion=scarce),
        far=worker(free_in=0.1),
    )

    near, far = expected(where, BY_COST)

    # One GPU for about 100 s at 36 an hour more.
    assert near.cost - far.cost == pytest.approx(1.0, rel=0.1)
    assert ranked(BY_COST, near, far) == "farnear"
