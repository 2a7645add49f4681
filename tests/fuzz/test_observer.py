"""No object of any kind ends the observer, or has a say in what becomes of others' Jobs."""

import pytest
from hypothesis import strategies as st

from tests.fuzz.drawing import Kept, fuzzed
from tests.fuzz.objects import OF_A_TENANT, good, hostile, hostile_bases
from tests.fuzz.observing import Observed


@pytest.fixture(scope="module")
def before():
    return Observed().decide()


def test_the_good_world_decides_by_each_policy(before):
    options = {name: found and found.get("option") for name, found in before.items()}

    assert options == {"light-gpu": "cpu", "forecast": "cpu", "none": None}


@pytest.mark.parametrize("kind", sorted(hostile_bases()))
def test_a_hostile_object_harms_only_itself(kind, before):
    is_tenants = kind in OF_A_TENANT
    kept = Kept(Observed)

    @fuzzed(st.lists(hostile(kind), min_size=1, max_size=3), share=4.0 if is_tenants else 0.5)
    def hold(drawn):
        with kept.world() as observed:
            for event, source in zip(("ADDED", "MODIFIED", "MODIFIED"), drawn, strict=False):
                observed.change(kind, event, source)
                observed.publish()
            assert not is_tenants or observed.decide() == before
            observed.change(kind, "DELETED", drawn[-1])
            # Of some there is one for the whole cluster, under a name that a hostile one takes.
            observed.show(kind, *good().get(kind, ()))
            observed.publish()
            assert observed.decide() == before
            assert [line for line in observed.lines if "cannot be forecast" in line] == []

    hold()
