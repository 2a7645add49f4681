"""Never two leaders at a time, and always one again soon, whatever happens to messages."""

from hypothesis import given
from hypothesis import strategies as st

from tests.api.leases import Candidate, World

TAKE_OVER_SECONDS = 15.0
SEEDS = st.integers(0, 2**32)


def candidates(draw, rates):
    zeros = st.floats(0, 1e6, allow_nan=False)
    names = "abc"[: draw(st.integers(1, 3))]
    return [Candidate(name, zero=draw(zeros), rate=draw(rates)) for name in names]


@st.composite
def worlds(draw, rates, *, delays=(0.05, 0.5, 4.0, 20.0), losses=(0.0, 0.1, 0.5)):
    return World(
        candidates(draw, rates),
        seed=draw(SEEDS),
        delay=draw(st.sampled_from(delays)),
        lost=draw(st.sampled_from(losses)),
    )


def live_and_end(world, ends):
    """Let who leads, or the first, end after so many seconds, and another come in its place."""
    for number, (seconds, end) in enumerate(ends):
        world.run(world.now + seconds)
        leading = world.leaders() or world.candidates[:1]
        end(world, leading[0])
        world.join(Candidate(f"new-{number}", zero=seconds))
    world.run(world.now + 30)


ENDS = st.lists(
    st.tuples(st.floats(0, 40), st.sampled_from([World.kill, World.resign, World.cut_off])),
    max_size=4,
)


@given(worlds(st.just(1.0)), ENDS)
def test_with_clocks_of_one_rate_there_are_never_two_leaders(world, ends):
    live_and_end(world, ends)


@given(worlds(st.just(1.0), delays=(0.1,), losses=(0.0,)), st.floats(10, 20), SEEDS)
def test_a_lease_that_is_deleted_makes_no_second_leader_of_those_who_knew_it(world, seconds, seed):
    world.run(seconds)
    world.delete()
    world.random.seed(seed)
    world.delay, world.lost = 4.0, 0.5

    world.run(seconds + 40)


@given(worlds(st.floats(0.85, 1.2)), st.floats(10, 200))
def test_clocks_may_differ_in_rate_by_less_than_what_is_left_of_the_lease(world, seconds):
    world.run(seconds)


@given(worlds(st.just(1.0), delays=(0.05, 0.1), losses=(0.0,)), st.floats(5, 40))
def test_someone_leads_within_fifteen_seconds_of_a_death(world, seconds):
    world.join(Candidate("heir"))
    world.run(seconds)
    (dead,) = world.leaders()

    world.kill(dead)
    world.run(world.now + TAKE_OVER_SECONDS)

    assert len(world.leaders()) == 1


@given(worlds(st.just(1.0), delays=(0.05, 0.1), losses=(0.0,)), st.floats(5, 40))
def test_someone_leads_within_two_seconds_of_an_orderly_end(world, seconds):
    world.join(Candidate("heir"))
    world.run(seconds)
    (leaving,) = world.leaders()

    world.resign(leaving)
    world.run(world.now + 2)

    assert len(world.leaders()) == 1


@given(worlds(st.just(1.0)), st.floats(0, 60))
def test_someone_leads_within_fifteen_seconds_of_the_end_of_all_trouble(world, seconds):
    world.run(seconds)

    # What is still under way arrives first.
    world.delay, world.lost = 0.05, 0.0
    world.run(world.now + 20)
    world.run(world.now + TAKE_OVER_SECONDS)

    assert len(world.leaders()) == 1


@given(worlds(st.just(1.0), delays=(0.05, 0.1), losses=(0.0,)), st.floats(20, 100))
def test_without_trouble_the_first_leader_stays(world, seconds):
    world.run(seconds)

    assert len(world.gained) == 1
    assert world.stored["spec"]["leaseTransitions"] == 0
