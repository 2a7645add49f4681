"""An Occupancy kept up to date is the one that is built anew, whatever happened in between."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tests import builders
from webhook.model.queues import Queueing
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.live_occupancy import LiveOccupancy
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)
QUEUES = ("a-cq", "b-cq", "own-cq")


def snapshot(used=None, *, strict=False, cohort="all"):
    """Two ClusterQueues of one cohort and one of its own; *used* are GPUs by ClusterQueue."""
    quotas = {"t4": {GPU: "4"}}
    queues = [
        builders.cluster_queue("a-cq", quotas, cohort=cohort),
        builders.cluster_queue("b-cq", quotas, cohort=cohort, borrowing="1"),
        builders.cluster_queue("own-cq", quotas),
    ]
    if strict:
        queues = [replace(queue, queueing=Queueing.STRICT) for queue in queues]
    held = {
        name: builders.held({"t4": {GPU: str(gpus)}}, reserving=gpus)
        for name, gpus in (used or {}).items()
    }
    return builders.snapshot(*queues, held=held)


def placement(key, queue="own", gpus=1):
    return builders.arrival(f"p{key}", {GPU: str(gpus)}, local_queue=f"{queue}-lq")


def available(forest, name):
    tree = forest.tree(name)
    return tree.available(tree.leaves[name], tree.indices[CELL])


def seen_by(found):
    """What a decision could tell two occupancies apart by."""
    holdings = {name: held for name, held in found.holdings.items() if held != builders.held()}
    return holdings, [available(found.forest, name) for name in QUEUES], set(found.heads)


changes = st.one_of(
    st.tuples(
        st.just("add"),
        st.integers(0, 9),
        st.sampled_from(["a", "a", "b", "own", "none"]),
        st.integers(1, 3),
    ),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("held"), st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 4))),
    st.tuples(st.just("cohort"), st.sampled_from(["all", ""])),
)


@example(
    happened=[
        ("add", 2, "a", 3),
        ("add", 0, "b", 1),
        ("cohort", ""),
        ("add", 1, "a", 3),
        ("cohort", "all"),
        ("held", {"a-cq": 2}),
    ],
    strict=False,
)
@given(happened=st.lists(changes, max_size=20), strict=st.booleans())
def test_it_is_what_building_anew_would_give(happened, strict):
    fold, placed = LiveOccupancy(), {}
    used, cohort, shown = {}, "all", snapshot(strict=strict)
    fold.adopt(shown)

    for what, *rest in happened:
        if what == "add":
            key, queue, gpus = rest
            placed.pop(key, None)
            placed[key] = placement(key, queue, gpus)
            fold.add(placed[key])
        elif what == "drop" and rest[0] in placed:
            fold.drop([placed.pop(rest[0])])
            fold.adopt(shown)
        elif what == "held":
            used = rest[0]
            shown = updated(shown, held=snapshot(used).workloads.held)
            fold.adopt(shown)
        elif what == "cohort":
            (cohort,) = rest
            shown = snapshot(used, strict=strict, cohort=cohort)
            fold.adopt(shown)

    anew = occupancy_of(shown, tuple(placed.values()))
    assert seen_by(fold.occupancy) == seen_by(anew)


def test_other_queues_cost_a_long_ledger_no_look_at_each_placement(monkeypatch):
    fold, looks = LiveOccupancy(), []
    fold.adopt(snapshot())
    placed = [placement(n, queue) for n, queue in enumerate(["a", "b"] * 30)]
    for each in placed:
        fold.add(each)

    monkeypatch.setattr("webhook.state.live_occupancy._shape", looks.append)
    fold.adopt(snapshot({"own-cq": 1}))
    fold.drop(placed[:59])
    fold.adopt(snapshot({"own-cq": 2}))

    assert looks == []
    assert seen_by(fold.occupancy) == seen_by(occupancy_of(snapshot({"own-cq": 2}), placed[59:]))


def test_a_sign_of_life_alone_folds_nothing_again():
    fold = LiveOccupancy()
    fold.adopt(snapshot({"a-cq": 3}))
    fold.add(placement(1, "a"))
    before = fold.occupancy

    fold.adopt(replace(before.snapshot, as_of=9.0))

    assert fold.occupancy.holdings is before.holdings
    assert fold.occupancy.forest is before.forest
    assert fold.occupancy.snapshot.as_of == 9.0
