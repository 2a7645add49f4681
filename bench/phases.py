"""Phases that take turns within a round, held against one of them. Pure.

Figures of different minutes differ on a shared machine, so only ratios within a round are told; a
phase like the first one comes last, and tells what two phases differ by anyway.
"""

import statistics
from collections.abc import Sequence
from typing import Final

from bench.report import Figures, Target

SIDES: Final = {"handler": "handler", "client": "latency"}
LEAST_NOISE: Final = 1.1
"""Of a ratio of two quantiles: the histogram's buckets are no finer."""


def ratios(rounds: Sequence[Figures], phase: str, side: str, *, base: str) -> list[float]:
    """Divide a phase's p99 by that of *base*, in each round."""
    key = SIDES[side]
    return [each[phase][key]["p99"] / each[base][key]["p99"] for each in rounds]


def noise(rounds: Sequence[Figures], side: str, *, base: str) -> float:
    """Say how far apart *base* and the same again are, in the worst round."""
    found = ratios(rounds, f"{base} again", side, base=base)
    return max(LEAST_NOISE, *(max(ratio, 1 / ratio) for ratio in found))


def target(rounds: Sequence[Figures], phase: str, side: str, *, base: str, name: str) -> Target:
    """Hold a phase to differ from *base* by no more than two phases do that are alike."""
    return Target(
        name=name,
        value=round(statistics.median(ratios(rounds, phase, side, base=base)), 2),
        limit=round(noise(rounds, side, base=base), 2),
    )


def errors(rounds: Sequence[Figures]) -> int:
    return sum(sum(phase["errors"].values()) for each in rounds for phase in each.values())
