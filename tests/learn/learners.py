"""Learners that have seen given runs."""

import random

from hypothesis import strategies as st

from tests.learn.runs import begun, ended
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import (
    MOST_BEGUN,
    MOST_RUNS,
    MOST_SAID,
    ClassRecord,
    Run,
    pack_outcomes,
    pack_runs,
    unpack_runs,
)

BEGUN = st.builds(
    begun,
    cluster_queue=st.sampled_from(["gpu-cq", "cpu-cq"]),
    flavors=st.sampled_from(["t4", "plain"]),
    cluster=st.sampled_from(["", "far"]),
    uid=st.integers(0, 2),
    reserved=st.integers(0, 50),
    admitted=st.integers(0, 50),
    ready=st.integers(0, 50),
)


RUNS = st.lists(
    st.builds(
        ended,
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 50),
        uid=st.integers(0, 2),
        seconds=st.integers(1, 100),
        succeeded=st.booleans(),
        said=st.integers(0, 2),
        evicted=st.integers(0, 2),
        flavors=st.sampled_from(["t4", "plain"]),
        cluster=st.sampled_from(["", "far"]),
        begun=st.none() | BEGUN,
    ),
    max_size=60,
)


def learned_from(runs, *, most=10_000):
    found = RunTimeLearner(most)
    for run in runs:
        found.add(run)
    return found


def full_record(number):
    """A class with as many runs as are kept, on two flavors, decided by two options."""
    chance = random.Random(number)

    def packed(most=MOST_RUNS):
        runs = {
            Run(
                1_790_000_000 + number + 60 * index, chance.getrandbits(16), chance.randint(5, 5000)
            )
            for index in range(most)
        }
        return pack_runs(sorted(runs))

    runs = {"t4": packed(), "plain": packed()}
    outcomes = [Run(1_790_000_000 + number, 1, generation=1)]
    return ClassRecord(
        coarse=f"~{number:016x}",
        name=f"registry/stable-diffusion:{number} python run.py --steps",
        runs=runs,
        said={
            flavors: pack_runs(unpack_runs(newest)[-MOST_SAID:]) for flavors, newest in runs.items()
        },
        outcomes={("light", option): pack_outcomes(outcomes) for option in ("gpu", "cpu")},
        starts={"t4": packed(MOST_BEGUN), "plain": packed(MOST_BEGUN)},
        dispatches={"gpu-cq": packed(MOST_BEGUN)},
    )
