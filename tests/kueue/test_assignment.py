from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import cluster_queue, cohort, container, held, needs, snapshot, template
from webhook.model.decision import Fit, Rejection
from webhook.model.fields import FieldError
from webhook.model.pods import Taint, Toleration
from webhook.model.queues import (
    PREEMPTION_OVER_BORROWING,
    KueueConfig,
    Preemption,
    Quota,
    ResourceFlavor,
)
from webhook.model.reasons import Reason
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.occupancy import NOWHERE, ExplainedAssignment, refused

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
