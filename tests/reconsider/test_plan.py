"""Which pending Jobs to move, on queues that a few lines of Python can follow."""

import heapq
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.model.queues import Arrival
from webhook.reconsider import plan as moves
from webhook.reconsider.plan import MoveCandidate, Prospect, Rank, Way

GPU, CPU = "gpu", "cpu"
RANK = Rank("light", "team", 100)


def candidate(order, *, gpu=20.0, cpu=70.0, here=GPU, **given):
    runs = {GPU: gpu, CPU: cpu}
    there = CPU if here == GPU else GPU
    arrival = Arrival(
        key="", namespace="team", local_queue=there, needs=(), priority=100, option=there
    )
    way = Way(arrival=arrival, cluster_queue=there, runs=runs[there])
    defaults = {"least_seconds": 1.0, "least_part": 0.0, "kind": f"{gpu} {cpu} {here}"}
    return MoveCandidate(
        key=f"job-{order}",
        option=here,
        runs=runs[here],
        order=order,
        ways=(way,),
        rank=RANK,
        **{**defaults, **given},
    )


class Queues:
    """First come, first served: so many servers in each queue; the others are of one rank."""

    def __init__(self, candidates, servers, others=(), error=lambda: 1.0, rank=RANK):
        self.candidates, self.servers, self.others = candidates, servers, others
        self.error, self.rank = error, rank
        self.asked = 0

    def __call__(self, moved):
        self.asked += 1
        free = {name: [0.0] * number for name, number in self.servers.items()}
        lines = [(each.order, each.key, *self._place(each, moved)) for each in self.candidates]
        finishes, starts = {}, {}
        of_ranks = {RANK: 0.0, self.rank: 0.0}
        for _, key, queue, runs in sorted([*lines, *self.others]):
            starts[key] = heapq.heappop(free[queue])
            done = starts[key] + runs * self.error()
            heapq.heappush(free[queue], done)
            finishes[key] = done
            of_ranks[RANK if key.startswith("job") else self.rank] += done
        return Prospect(
            finishes=finishes, starts=starts, total=sum(of_ranks.values()), of_ranks=of_ranks
        )

    def _place(self, each, moved):
        way = moved.get(each.key)
        return (each.option, each.runs) if way is None else (way.cluster_queue, way.runs)


def plan(queues, most=16):
    waiting = len(queues.candidates)
    return moves.plan_moves(queues.candidates, queues, waiting=waiting, most=most).moves


def test_those_behind_a_long_line_go_where_there_is_room():
    queues = Queues([candidate(n) for n in range(12)], {GPU: 1, CPU: 3})

    found = plan(queues)

    # With five on CPU all 12 are done 1,050 s after the start, summed up; a sixth gains nothing.
    assert len(found) == 5
    assert all(move.way.option == CPU for move in found)
    assert queues({move.candidate.key: move.way for move in found}).total < queues({}).total


def test_nobody_goes_for_less_than_the_minimum():
    candidates = [candidate(n, least_seconds=10_000.0) for n in range(12)]

    assert plan(Queues(candidates, {GPU: 1, CPU: 3})) == ()


def test_at_most_so_many_at_once():
    queues = Queues([candidate(n) for n in range(40)], {GPU: 1, CPU: 10})

    assert len(plan(queues, most=3)) == 3
    assert plan(queues, most=0) == ()


def test_a_long_queue_is_scheduled_a_few_times_only():
    queues = Queues([candidate(n) for n in range(300)], {GPU: 1, CPU: 10})

    found = moves.plan_moves(queues.candidates, queues, waiting=5_000, most=16).moves

    assert len(found) == 10, "the others of a batch would not start yet"
    assert queues.asked <= 3


def test_where_a_job_would_start_too_late_the_queue_that_it_leaves_is_not_forecast():
    queues = Queues([candidate(n) for n in range(12)], {GPU: 1, CPU: 1}, busy(100))

    class Partial:
        def __init__(self, moved):
            self.start_of = queues(moved).start_of

    found = moves.plan_moves(
        queues.candidates,
        lambda moved: Partial(moved) if moved else queues(moved),
        waiting=12,
        most=16,
    )

    assert found.moves == ()
    assert queues.asked > 1


def busy(seconds):
    """Hold both queues for so long."""
    return [(-1, "gpu-holder", GPU, seconds), (-2, "cpu-holder", CPU, seconds)]


@pytest.mark.parametrize(("left", "moved"), [(9.0, 1), (11.0, 0)])
def test_who_starts_nowhere_soon_is_not_moved_yet(left, moved):
    queues = Queues([candidate(0), candidate(1, cpu=30.0)], {GPU: 1, CPU: 1}, busy(left))

    assert len(plan(queues)) == moved


@pytest.mark.parametrize(("left", "moved"), [(290.0, 1), (310.0, 0)])
def test_the_longer_it_runs_the_earlier_it_is_moved(left, moved):
    waiting = [candidate(0, gpu=2000.0, cpu=7000.0), candidate(1, gpu=2000.0, cpu=3000.0)]
    queues = Queues(waiting, {GPU: 1, CPU: 1}, busy(left))

    assert len(plan(queues)) == moved


def test_who_is_about_to_start_where_it_is_leaves_for_a_queue_that_moves_later():
    # It is the first in line, and those behind it gain more than it loses.
    behind = [(100 + n, f"other-{n}", GPU, 1.0) for n in range(30)]
    others = [*behind, (-1, "gpu-holder", GPU, 5.0), (-2, "cpu-holder", CPU, 40.0)]

    found = plan(Queues([candidate(0)], {GPU: 1, CPU: 1}, others))

    assert [move.candidate.key for move in found] == ["job-0"]


@pytest.mark.parametrize(("behind", "cpu", "moved"), [(3, 70.0, 0), (4, 70.0, 1), (3, 52.0, 1)])
def test_who_would_be_done_much_later_must_bring_as_much_as_it_loses(behind, cpu, moved):
    # It is done in 35 s where it is, and loses as much, or 17 s, which is less than half of that.
    # Those behind it gain 20 s each: three of them less than twice what it loses.
    others = [(1 + n, f"other-{n}", GPU, 1.0) for n in range(behind)]
    others += [(-1, "gpu-holder", GPU, 15.0)]

    found = plan(Queues([candidate(0, cpu=cpu)], {GPU: 1, CPU: 1}, others))

    assert len(found) == moved


OF_OTHERS = [
    pytest.param(RANK, 1, id="its equals"),
    pytest.param(RANK._replace(priority=101), 1, id="of a higher priority"),
    pytest.param(RANK._replace(priority=99), 0, id="of a lower priority"),
    pytest.param(RANK._replace(namespace="another"), 0, id="in another namespace"),
    pytest.param(RANK._replace(policy=""), 0, id="of no policy"),
]


@pytest.mark.parametrize(("rank", "moved"), OF_OTHERS)
def test_a_job_is_made_later_only_for_its_equals_and_betters(rank, moved):
    # It would be done in 106 s where it is, next, and in 140 s elsewhere; each other gains 100 s.
    others = [(1 + n, f"other-{n}", GPU, 100.0) for n in range(10)] + [(-1, "first", GPU, 6.0)]
    line = [candidate(0, gpu=100.0, cpu=140.0)]

    found = plan(Queues(line, {GPU: 1, CPU: 1}, others, rank=rank))

    assert len(found) == moved


@pytest.mark.parametrize(("rank", "_"), OF_OTHERS)
def test_who_is_done_no_later_is_moved_for_whoever_gains(rank, _):
    # It gains 4 s of the 5 s that are asked for, and the other 10 s.
    others = [(-1, "first", GPU, 10.0), (1, "other", GPU, 10.0)]
    line = [candidate(0, gpu=10.0, cpu=16.0, least_seconds=5.0)]

    found = plan(Queues(line, {GPU: 1, CPU: 1}, others, rank=rank))

    assert [move.gain for move in found] == [14.0]


@pytest.mark.parametrize(("overtaken", "moved"), [(1, 1), (2, 0)])
def test_what_others_lose_counts_whoever_they_are(overtaken, moved):
    # It loses 4 s, three of its equals gain 10 s each, and each of no policy loses 14 s by it.
    line = [candidate(0, gpu=10.0, cpu=14.0)]
    line += [candidate(n, gpu=10.0, cpu=999.0) for n in (1, 2, 3)]
    others = [(0.1 * n, f"other-{n}", CPU, 5.0) for n in range(1, 1 + overtaken)]

    found = plan(Queues(line, {GPU: 1, CPU: 1}, others, rank=RANK._replace(policy="")))

    assert len(found) == moved


@given(seed=st.integers(0, 2**32))
def test_nobody_is_made_later_for_those_who_are_not_its_equals(seed):
    chance = random.Random(seed)
    line = [
        candidate(n, gpu=chance.uniform(5, 60), cpu=chance.uniform(5, 200), kind=str(n))
        for n in range(chance.randrange(1, 6))
    ]
    others = [(n + 0.5, f"other-{n}", GPU, chance.uniform(5, 60)) for n in range(10)]
    queues = Queues(line, {GPU: 1, CPU: 2}, others, rank=RANK._replace(priority=0))

    (move,) = plan(queues, most=1) or (None,)

    if move is not None:
        before, after = queues({}), queues({move.candidate.key: move.way})
        own = before.of_ranks[RANK] - after.of_ranks[RANK]
        key = move.candidate.key
        assert own > 0 or after.finishes[key] <= before.finishes[key]


@given(seed=st.integers(0, 2**32), gpus=st.integers(1, 4), cpus=st.integers(1, 4))
def test_no_plan_makes_anything_worse(seed, gpus, cpus):
    chance = random.Random(seed)
    candidates = [
        candidate(
            n,
            gpu=chance.uniform(5, 60),
            cpu=chance.uniform(5, 200),
            here=chance.choice((GPU, CPU)),
            kind=str(n),
        )
        for n in range(chance.randrange(1, 10))
    ]
    queues = Queues(candidates, {GPU: gpus, CPU: cpus})

    found = plan(queues)

    after = queues({move.candidate.key: move.way for move in found})
    gained = queues({}).total - after.total
    assert gained >= len(found) * 1.0
    assert abs(gained - sum(move.gain for move in found)) < 1e-6
    assert len({move.candidate.key for move in found}) == len(found)


@given(seed=st.integers(0, 2**32))
def test_no_job_goes_to_and_fro_on_noisy_forecasts(seed):
    chance = random.Random(seed)
    places = dict.fromkeys(range(10), GPU)
    moved = dict.fromkeys(places, 0)
    journeys = {n: [GPU] for n in places}
    for _ in range(10):
        candidates = [
            candidate(n, here=places[n], moved=moved[n], least_seconds=20.0, least_part=0.2)
            for n in places
        ]
        noise = chance.uniform(0.8, 1.25)
        queues = Queues(candidates, {GPU: 1, CPU: 3}, error=lambda noise=noise: noise)
        for move in plan(queues, most=4):
            number = move.candidate.order
            places[number] = move.way.option
            moved[number] += 1
            journeys[number].append(move.way.option)

    assert all(len(journey) <= 2 for journey in journeys.values())


def priced(order, *, charges=None, least=0.0, part=0.0, **given):
    """A candidate whose second is worth one, and whose options cost so much beside."""
    charged = {GPU: 0.0, CPU: 0.0, **(charges or {})}
    money = {
        "cost_of": lambda option, finish: charged[option] + finish,
        "least_saved": least,
        "hour_costs": 3600.0,
    }
    return candidate(order, least_part=part, least_seconds=1e9, **money, **given)


def test_where_options_cost_the_same_costs_are_time():
    by_time = plan(Queues([candidate(n) for n in range(12)], {GPU: 1, CPU: 3}))
    by_cost = plan(Queues([priced(n) for n in range(12)], {GPU: 1, CPU: 3}))

    assert [move.candidate.key for move in by_cost] == [move.candidate.key for move in by_time]
    assert [move.saved for move in by_cost] == pytest.approx([move.gain for move in by_time])


def test_nobody_goes_where_it_costs_more_than_all_who_wait_save():
    line = [priced(n, charges={CPU: 500.0}) for n in range(12)]

    assert plan(Queues(line, {GPU: 1, CPU: 3})) == ()


def test_a_cheaper_option_is_worth_a_later_finish():
    line = [priced(n, charges={GPU: 500.0}) for n in range(2)]

    found = plan(Queues(line, {GPU: 2, CPU: 2}))

    assert len(found) == 2
    assert all(move.after > move.before for move in found)
    assert all(move.saved == pytest.approx(450.0) for move in found)


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ({"least": 400.0}, 1),
        ({"least": 460.0}, 0),
        # A part of what it costs where it is: 500 and 20 seconds.
        ({"part": 0.8}, 1),
        ({"part": 0.9}, 0),
        # Each move doubles what the next one must save.
        ({"least": 240.0}, 1),
        ({"least": 240.0, "moved": 1}, 0),
        ({"least": 200.0, "moved": 1}, 1),
    ],
)
def test_a_move_must_save_the_amount_and_the_part_doubled_with_each_move(given, moved):
    line = [priced(0, charges={GPU: 500.0}, **given)]

    assert len(plan(Queues(line, {GPU: 1, CPU: 1}))) == moved


def test_a_way_that_is_a_guess_must_save_twice_as_much():
    sure = priced(0, charges={GPU: 500.0}, least=240.0)
    guess = replace(sure, ways=(replace(sure.ways[0], least_times=2.0),))

    assert len(plan(Queues([sure], {GPU: 1, CPU: 1}))) == 1
    assert plan(Queues([guess], {GPU: 1, CPU: 1})) == ()


def test_money_saved_by_one_pays_for_no_time_of_anybody_elses():
    # It would go before ten of another team, who would all be done later for it.
    others = [(100 + n, f"other-{n}", CPU, 10.0) for n in range(10)]
    line = [priced(0, charges={GPU: 500.0})]
    queues = Queues(line, {GPU: 1, CPU: 1}, others, rank=Rank("light", "others", 100))

    assert plan(queues) == ()


@given(
    st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500)), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_all_who_wait_never_cost_more_for_moves(charges, gpus, cpus):
    line = [priced(n, charges={GPU: gpu, CPU: cpu}) for n, (gpu, cpu) in enumerate(charges)]
    queues = Queues([replace(each, kind=each.key) for each in line], {GPU: gpus, CPU: cpus})

    moved = {move.candidate.key: move.way for move in plan(queues)}

    def cost(ways):
        finishes = queues(ways).finishes
        return sum(
            each.cost_of(ways[each.key].option if each.key in ways else GPU, finishes[each.key])
            for each in queues.candidates
        )

    assert cost(moved) <= cost({}) + 1e-6
