from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cluster_queue, cohort, held, needs, snapshot
from webhook.model.decision import Fit
from webhook.model.queues import Quota, ResourceGroup
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.occupancy import ExplainedAssignment
from webhook.state.snapshot import Snapshot, updated

RESOURCES = ("cpu", "example.com/gpu")
FLAVORS = ("a", "b", "c")


def quotas(draw: Any, flavors: tuple[str, ...]) -> dict[str, dict[str, Quota]]:
    limit = st.none() | st.integers(0, 8000)

    def cell() -> Quota:
        return Quota(
            nominal=draw(st.integers(0, 8000)),
            borrowing_limit=draw(limit),
            lending_limit=draw(limit),
        )

    return {flavor: {name: cell() for name in RESOURCES} for flavor in flavors}


@st.composite
def worlds(draw: Any) -> Snapshot:
    """A first queue that is asked, two neighbours, and what they hold."""
    flavors = FLAVORS[: draw(st.integers(1, 3))]
    queues = [
        cluster_queue(
            f"q{index}",
            quotas(draw, flavors),
            cohort=draw(st.sampled_from(["", "left", "top"])),
            when_can_borrow=draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"])),
        )
        for index in range(3)
    ]
    amounts = st.integers(0, 9)
    usage = {
        queue.name: held(
            {flavor: {name: str(draw(amounts)) for name in RESOURCES} for flavor in flavors}
        )
        for queue in queues
    }
    return snapshot(*queues, cohorts=[cohort("left", parent="top")], held=usage)


ASKED = st.builds(
    lambda cpu, gpu: needs({"cpu": f"{cpu}m", "example.com/gpu": str(gpu)}),
    st.integers(0, 9000),
    st.integers(0, 9000),
)


def ask(state: Snapshot, asked: Any) -> ExplainedAssignment:
    found = occupancy_of(state)
    return occupancy.assignment(found, [asked], state.setup.cluster_queues["q0"])


def with_more(state: Snapshot, name: str, cell: tuple[str, str], more: int) -> Snapshot:
    queue = state.setup.cluster_queues[name]
    groups = tuple(raised(group, cell, more) for group in queue.groups)
    return updated(
        state, cluster_queues={**state.setup.cluster_queues, name: replace(queue, groups=groups)}
    )


def raised(group: ResourceGroup, cell: tuple[str, str], more: int) -> ResourceGroup:
    if cell not in group.quotas:
        return group
    quota = group.quotas[cell]
    return replace(
        group, quotas={**group.quotas, cell: replace(quota, nominal=quota.nominal + more)}
    )


@given(
    worlds(),
    ASKED,
    st.sampled_from(["q0", "q1", "q2"]),
    st.sampled_from(FLAVORS),
    st.integers(1, 9000),
)
def test_more_quota_never_turns_fits_to_false(state, asked, name, flavor, more):
    before = ask(state, asked)

    after = ask(with_more(state, name, (flavor, "cpu"), more), asked)

    assert before.fit is not Fit.FITS or after.fit is Fit.FITS


@given(worlds(), ASKED)
def test_what_fits_gets_all_it_asks_for_from_one_flavor(state, asked):
    assigned = ask(state, asked)

    if assigned.fit is Fit.FITS:
        total = {resource: amount for (_, resource), amount in assigned.usage.items()}
        assert total == dict(asked.total)
        assert len({flavor for flavor, _ in assigned.usage}) == 1
