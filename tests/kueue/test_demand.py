from __future__ import annotations

from dataclasses import replace

from tests.builders import arrival, cluster_queue, snapshot
from webhook.kueue.flavor_plan import NOWHERE, demand
from webhook.model.pods import Taint
from webhook.model.queues import ResourceFlavor


def test_a_demand_is_worked_out_again_only_where_what_it_depends_on_is_another():
    queue = cluster_queue(quotas={"default": {"cpu": "10"}})
    wider = cluster_queue(quotas={"default": {"cpu": "10"}, "spot": {"cpu": "10"}})
    tainted = ResourceFlavor(name="default", taints=(Taint(key="own", effect="NoSchedule"),))
    state, needs = snapshot(queue), arrival("a", {"cpu": "2"}).needs

    first = demand(needs, queue, state.setup)

    assert first.flavors == {"default"}
    assert demand(needs, queue, replace(state, as_of=5.0).setup) is first
    assert demand(needs, wider, snapshot(wider).setup).flavors == {"default", "spot"}
    assert demand(needs, queue, snapshot(queue, flavors=[tainted]).setup) == replace(
        first, parts=((),), combinations=()
    )
    assert demand((*needs, *needs), queue, state.setup).parts == first.parts * 2
    assert demand(needs, cluster_queue(quotas={"a": {"gpu": "1"}}), state.setup) is NOWHERE
    assert demand(needs, queue, state.setup) is first
