from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import cluster_queue, cohort, container, group, held, needs, snapshot, template
from webhook.kueue import occupancy
from webhook.kueue.counted_arrivals import occupancy_of
from webhook.kueue.explained import NOWHERE, ExplainedAssignment, refused
from webhook.model.decision import Fit, Rejection
from webhook.model.fields import FieldError
from webhook.model.pods import Taint, Toleration
from webhook.model.queues import (
    BORROWING_OVER_PREEMPTION,
    PREEMPTION_OVER_BORROWING,
    KueueConfig,
    Preemption,
    Quota,
    ResourceFlavor,
)
from webhook.model.reasons import Reason

GPU = "nvidia.com/gpu"
T4 = {"t4": {GPU: "4", "cpu": "8"}}


def assign(asked, *cluster_queues, priority=0, **rest):
    """Assign to the first ClusterQueue."""
    found = occupancy_of(snapshot(*cluster_queues, **rest))
    asked = asked if isinstance(asked, list) else [asked]
    return occupancy.assignment(found, asked, cluster_queues[0], priority=priority)


def never(reason, detail):
    return refused(Rejection(reason=reason, detail=detail))


def in_words(found):
    """Leave out the indices."""
    return replace(found, assignment=NOWHERE)


def test_what_fits_is_charged_to_one_flavor():
    found = assign(needs({GPU: "1", "cpu": "500m"}, count=2), cluster_queue(quotas=T4))

    usage = {("t4", GPU): 2, ("t4", "cpu"): 1000}
    assert in_words(found) == ExplainedAssignment(fit=Fit.FITS, usage=usage, detail="flavor t4")


def test_what_is_in_use_makes_it_wait_with_its_numbers():
    busy = {"gpu-cq": held({"t4": {GPU: "3"}}, reserving=3)}

    found = assign(needs({GPU: "2"}), cluster_queue(quotas=T4), held=busy)

    detail = "needs nvidia.com/gpu 2 (flavor t4), 1 free"
    assert in_words(found) == ExplainedAssignment(fit=Fit.WAITS, detail=detail)


def test_more_than_could_ever_be_there_is_refused():
    found = assign(needs({GPU: "8"}), cluster_queue(quotas=T4))

    detail = "asks for nvidia.com/gpu 8 (flavor t4); ClusterQueue gpu-cq can never have more than 4"
    assert found == never(Reason.EXCEEDS_MAXIMUM, detail)


def test_a_resource_that_is_not_covered_is_refused():
    found = assign(needs({GPU: "1"}), cluster_queue("cpu-cq", {"default": {"cpu": "4"}}))

    detail = "asks for nvidia.com/gpu 1, which ClusterQueue cpu-cq does not cover"
    assert found == never(Reason.NOT_COVERED, detail)


def test_a_resource_that_is_not_covered_is_nothing_when_zero_or_ignored():
    queue = cluster_queue("cpu-cq", {"default": {"cpu": "4"}})
    ignored = KueueConfig(ignore_undeclared=True)

    assert assign(needs({GPU: "0", "cpu": "1"}), queue).fit is Fit.FITS
    assert assign(needs({GPU: "1", "cpu": "1"}), queue, kueue=ignored).fit is Fit.FITS


def test_pods_are_counted_where_they_are_covered():
    queue = cluster_queue(quotas={"default": {"cpu": "100", "pods": "5"}})

    assert assign(needs({"cpu": "1"}, count=5), queue).usage[("default", "pods")] == 5
    assert assign(needs({"cpu": "1"}, count=6), queue).rejection == Rejection(
        reason=Reason.EXCEEDS_MAXIMUM,
        detail="asks for pods 6 (flavor default); ClusterQueue gpu-cq can never have more than 5",
    )


def test_the_next_flavor_is_tried_when_the_first_is_full():
    queue = cluster_queue(quotas={"spot": {"cpu": "2"}, "on-demand": {"cpu": "4"}})
    busy = {"gpu-cq": held({"spot": {"cpu": "1"}})}

    assert assign(needs({"cpu": "2"}), queue, held=busy).usage == {("on-demand", "cpu"): 2000}


def test_all_resources_of_a_group_get_the_same_flavor():
    queue = cluster_queue(quotas={"a": {"cpu": "8", GPU: "0"}, "b": {"cpu": "8", GPU: "2"}})

    found = assign(needs({"cpu": "1", GPU: "1"}), queue)

    assert found.usage == {("b", "cpu"): 1000, ("b", GPU): 1}


def test_groups_get_their_flavors_apart():
    groups = [group({"a": {"cpu": "8"}}), group({"t4": {GPU: "1"}, "a100": {GPU: "4"}})]

    found = assign(needs({"cpu": "1", GPU: "2"}), cluster_queue(groups=groups))

    assert found.usage == {("a", "cpu"): 1000, ("a100", GPU): 2}


def test_later_pod_sets_see_what_earlier_ones_take():
    queue = cluster_queue(quotas={"a": {"cpu": "3"}, "b": {"cpu": "3"}})

    found = assign([needs({"cpu": "2"}), needs({"cpu": "2"})], queue)

    assert found.usage == {("a", "cpu"): 2000, ("b", "cpu"): 2000}


def test_a_taint_needs_a_toleration_of_the_pod_or_of_the_flavor():
    taint = Taint(key="gpu", value="true", effect="NoSchedule")
    bare = ResourceFlavor(name="t4", taints=(taint,))
    helped = ResourceFlavor(
        name="t4", taints=(taint,), tolerations=(Toleration(key="gpu", value="true"),)
    )
    soft = ResourceFlavor(name="t4", taints=(Taint(key="gpu", effect="PreferNoSchedule"),))
    tolerant = template(tolerations=({"key": "gpu", "operator": "Exists"},))
    queue = cluster_queue(quotas=T4)

    refused = assign(needs({GPU: "1"}), queue, flavors=[bare])

    detail = "flavor t4 has the taint gpu=true:NoSchedule, which is not tolerated"
    assert refused == never(Reason.NO_FLAVOR, detail)
    assert assign(needs({GPU: "1"}, pods=tolerant), queue, flavors=[bare]).fit is Fit.FITS
    assert assign(needs({GPU: "1"}), queue, flavors=[helped]).fit is Fit.FITS
    assert assign(needs({GPU: "1"}), queue, flavors=[soft]).fit is Fit.FITS


def test_a_node_selector_counts_for_the_flavors_own_labels_only():
    flavor = ResourceFlavor(name="t4", node_labels={"gpu": "t4"})
    queue = cluster_queue(quotas=T4)

    def with_selector(**selector):
        pods = template(node_selector=selector)
        return assign(needs({GPU: "1"}, pods=pods), queue, flavors=[flavor])

    detail = "flavor t4 has gpu=t4, the node selector asks for a100"
    assert with_selector(gpu="a100") == never(Reason.NO_FLAVOR, detail)
    assert with_selector(gpu="t4", zone="a").fit is Fit.FITS


@pytest.mark.parametrize(
    ("terms", "fit"),
    [
        ([[("gpu", "In", ["t4"])]], Fit.FITS),
        ([[("gpu", "In", ["a100"])]], Fit.NEVER),
        ([[("gpu", "In", ["a100"])], [("gpu", "In", ["t4"])]], Fit.FITS),
        ([[("gpu", "In", ["a100"])], [("zone", "In", ["a"])]], Fit.FITS),
        ([[("gpu", "In", ["t4"]), ("gpu", "NotIn", ["t4"])]], Fit.NEVER),
        ([[("gpu", "DoesNotExist", [])]], Fit.NEVER),
    ],
)
def test_one_term_of_the_node_affinity_must_match_as_far_as_the_flavor_has_the_labels(terms, fit):
    written = [
        {"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in term]}
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": written}}
    pods = template(affinity={"nodeAffinity": required})
    flavor = ResourceFlavor(name="t4", node_labels={"gpu": "t4"})

    found = assign(needs({GPU: "1"}, pods=pods), cluster_queue(quotas=T4), flavors=[flavor])

    assert found.fit is fit


def borrower(**rest):
    return cluster_queue("a-cq", {"near": {"cpu": "1"}, "far": {"cpu": "4"}}, cohort="all", **rest)


LENDER = cluster_queue("b-cq", {"near": {"cpu": "9"}, "far": {"cpu": "9"}}, cohort="all")


def test_borrowing_stops_the_search_unless_the_next_flavor_is_to_be_tried():
    stops, goes_on = borrower(), borrower(when_can_borrow="TryNextFlavor")

    assert assign(needs({"cpu": "2"}), stops, LENDER).usage == {("near", "cpu"): 2000}
    assert assign(needs({"cpu": "2"}), goes_on, LENDER).usage == {("far", "cpu"): 2000}


def test_borrowing_is_done_from_the_first_flavor_where_all_must_borrow():
    goes_on = borrower(when_can_borrow="TryNextFlavor")

    assert assign(needs({"cpu": "5"}), goes_on, LENDER).usage == {("near", "cpu"): 5000}


def lent(preference, **preemption):
    """A queue that may borrow CPUs near, and whose own CPUs and GPUs far others have borrowed."""
    queue = cluster_queue(
        "a-cq",
        {"near": {"cpu": "1", GPU: "0"}, "far": {"cpu": "2", GPU: "2"}},
        cohort="all",
        when_can_borrow="TryNextFlavor",
        preemption=Preemption(**preemption),
        preference=preference,
    )
    other = cluster_queue(
        "b-cq", {"near": {"cpu": "9", GPU: "9"}, "far": {"cpu": "0", GPU: "0"}}, cohort="all"
    )
    return queue, other, held({"far": {"cpu": "2", GPU: "2"}}, reserving=2)


def test_a_queue_may_prefer_to_preempt_before_it_borrows():
    found = {}
    for preference in (BORROWING_OVER_PREEMPTION, PREEMPTION_OVER_BORROWING):
        queue, other, borrowed = lent(preference, reclaim_within_cohort="Any")
        found[preference] = assign(needs({"cpu": "2"}), queue, other, held={"b-cq": borrowed})

    borrows, preempts = found.values()
    assert (borrows.fit, borrows.assignment.flavors) == (Fit.FITS, ("near",))
    assert (preempts.fit, preempts.assignment.flavors) == (Fit.MAY_PREEMPT, ("far",))


def test_a_flavor_without_anybody_to_preempt_is_never_better_than_one_that_borrows():
    queue, other, borrowed = lent(PREEMPTION_OVER_BORROWING, within_cluster_queue="LowerPriority")

    found = assign(needs({"cpu": "2"}), queue, other, held={"b-cq": borrowed})

    assert (found.fit, found.assignment.flavors) == (Fit.FITS, ("near",))


def test_a_resource_that_borrows_hides_one_that_would_preempt_and_so_the_job_waits():
    queue = cluster_queue(
        "a-cq",
        {"near": {"cpu": "1", GPU: "1"}},
        cohort="all",
        preemption=Preemption(reclaim_within_cohort="Any"),
        preference=PREEMPTION_OVER_BORROWING,
    )
    other = cluster_queue("b-cq", {"near": {"cpu": "9", GPU: "0"}}, cohort="all")
    borrowed = {"b-cq": held({"near": {GPU: "1"}}, reserving=1)}

    found = assign(needs({"cpu": "2", GPU: "1"}), queue, other, held=borrowed)

    assert (found.fit, found.detail) == (Fit.WAITS, "needs nvidia.com/gpu 1 (flavor near), 0 free")


def test_pod_sets_that_together_need_more_than_there_can_be_are_refused():
    queue = cluster_queue(quotas={"a": {"cpu": "3"}, "b": {"cpu": "1"}})

    found = assign([needs({"cpu": "2"}), needs({"cpu": "2"})], queue)

    detail = "asks for cpu 4 (flavor a); ClusterQueue gpu-cq can never have more than 3"
    assert found == never(Reason.EXCEEDS_MAXIMUM, detail)


def test_a_template_is_checked_only_against_flavors_that_are_tried():
    flavors = [
        ResourceFlavor(name="a"),
        ResourceFlavor(name="b", taints=(Taint(key="gpu", effect="NoSchedule"),)),
    ]
    wrong = template(tolerations=({"key": 5},))
    queue = cluster_queue(quotas={"a": {"cpu": "2"}, "b": {"cpu": "2"}})

    found = assign(needs({"cpu": "2"}, pods=wrong), queue, flavors=flavors)

    assert found.fit is Fit.FITS
    with pytest.raises(FieldError, match=r"tolerations\[0\].key"):
        assign(needs({"cpu": "3"}, pods=wrong), queue, flavors=flavors)


def test_a_full_queue_that_may_preempt_says_so():
    queue = cluster_queue(quotas=T4, preemption=Preemption(within_cluster_queue="LowerPriority"))
    busy = held({"t4": {GPU: "4"}}, reserving=4)
    low = held({"t4": {GPU: "4"}}, reserving=4, lowest_priority=0)

    unknown = assign(needs({GPU: "1"}), queue, held={"gpu-cq": busy})
    equals = assign(needs({GPU: "1"}), queue, held={"gpu-cq": low})
    above = assign(needs({GPU: "1"}), queue, held={"gpu-cq": low}, priority=10)

    assert [unknown.fit, equals.fit, above.fit] == [Fit.MAY_PREEMPT, Fit.WAITS, Fit.MAY_PREEMPT]
    assert above.usage == {}


def test_quota_that_others_borrowed_may_be_reclaimed():
    queue = cluster_queue(
        "a-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=Preemption(reclaim_within_cohort="Any")
    )
    other = cluster_queue("b-cq", {"t4": {GPU: "2"}}, cohort="all")
    borrowed = {"b-cq": held({"t4": {GPU: "4"}}, reserving=2)}
    own = {"a-cq": held({"t4": {GPU: "2"}}, reserving=2), "b-cq": held({"t4": {GPU: "2"}})}

    assert assign(needs({GPU: "1"}), queue, other, held=borrowed).fit is Fit.MAY_PREEMPT
    assert assign(needs({GPU: "1"}), queue, other, held=own).fit is Fit.WAITS


def test_a_cycle_of_cohorts_takes_nothing():
    cohorts = [cohort("x", parent="y"), cohort("y", parent="x")]

    found = assign(needs({GPU: "1"}), cluster_queue(quotas=T4, cohort="x"), cohorts=cohorts)

    detail = "the cohorts of ClusterQueue gpu-cq form a cycle"
    assert found == never(Reason.INACTIVE, detail)


def test_a_topology_is_asked_of_flavors_that_have_one():
    asks = template(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})
    racks = ResourceFlavor(name="t4", topology="racks")
    queue = cluster_queue(quotas=T4)
    mixed = cluster_queue(quotas={**T4, "plain": {GPU: "1", "cpu": "1"}})

    refused = assign(needs({GPU: "1"}, pods=asks), queue)
    asked = assign(needs({GPU: "1"}, pods=asks), queue, flavors=[racks])
    implied = assign(needs({GPU: "1"}), queue, flavors=[racks])
    passed_over = assign(needs({GPU: "1"}), mixed, flavors=[racks])

    assert refused == never(Reason.TOPOLOGY_LEVEL_MISSING, "flavor t4 has no topology")
    assert asked.detail == "flavor t4; its topology is not looked at"
    assert implied.detail == "flavor t4; its topology is not looked at"
    assert passed_over.detail == "flavor plain"


def test_a_job_that_asks_for_nothing_fits():
    found = assign(needs(), cluster_queue(quotas=T4))

    assert in_words(found) == ExplainedAssignment(fit=Fit.FITS, detail="asks for nothing")


def test_a_quota_of_nothing_is_a_maximum_of_nothing():
    queue = cluster_queue(quotas={"t4": {GPU: Quota(nominal=0)}})

    found = assign(needs({GPU: "1"}, pods=template(container())), queue)

    detail = "asks for nvidia.com/gpu 1 (flavor t4); ClusterQueue gpu-cq can never have more than 0"
    assert found == never(Reason.EXCEEDS_MAXIMUM, detail)
