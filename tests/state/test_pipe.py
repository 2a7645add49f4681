"""What goes through the pipe between the observer and its server."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.state.frames import through
from webhook.model.forecasts import Profile
from webhook.state.pipe import Delta, Update

amounts = st.integers(0, (1 << 63) - 1)
seconds = st.floats(0, allow_nan=False)


@st.composite
def profiles(draw):
    steps, cells = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    row = st.tuples(*[amounts] * cells)
    return Profile(
        computed_at=draw(seconds),
        cells=tuple(("t4", f"resource-{number}") for number in range(cells)),
        times=draw(st.tuples(*[seconds] * steps)),
        free=draw(st.tuples(*[row] * steps)),
        spread=draw(st.tuples(*[seconds] * steps)),
        behind=draw(st.sampled_from([(), ((1, 0.0), (0, 5.0))])),
        unknown_seconds=draw(seconds),
        uncertain=draw(st.sampled_from([(), ("depth", "runTimes")])),
    )


@given(profile=profiles(), of_each=st.dictionaries(st.sampled_from(["a/x", "b/y"]), profiles()))
def test_a_profile_comes_out_as_it_went_in(profile, of_each):
    profile = replace(profile, by_local_queue=of_each)
    update = Update(changed={"profiles": Delta(put={"gpu-cq": profile})}, forecasts_as_of=3.0)

    assert through(update) == update


def test_more_than_can_be_written_is_written_as_the_most_that_can():
    profile = Profile(
        computed_at=0.0, cells=(("t4", "cpu"),), times=(0.0,), free=((1 << 80,),), spread=(0.0,)
    )

    assert through(Update(changed={"profiles": profile})).changed["profiles"].free == (
        ((1 << 63) - 1,),
    )
