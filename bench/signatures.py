"""What signatures add to a review: the same reviews in this process, with keys and without."""

import secrets
import statistics
import time
from collections.abc import Sequence
from typing import Final

from bench import reviews
from bench.report import Figures, Scale, Target, spread
from bench.serving import Say
from hack import bodies
from webhook.model.signatures import SigningKey, SigningKeys
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.snapshot import Snapshot, updated
from webhook.state.snapshot_file import read_snapshot

MOST: Final = 0.05
"""Milliseconds that signatures may add to a review."""


def measure(scale: Scale, say: Say) -> Figures:
    number = reviews.IN_PROCESS
    say(f"{number} reviews, {scale.rounds} times without signatures and with them, by turns")
    snapshot = OccupancyOfSnapshots()(read_snapshot(str(reviews.SAVED), 0.0, time.time()))
    made = int(time.time())
    key = SigningKey(id="bench", made=made, secret=secrets.token_bytes(32))
    keys = SigningKeys(keys=(key,), signing=key.id, since=made)
    found: dict[str, list[float]] = {"without": [], "signed": []}
    for _ in range(scale.rounds):
        for name, signing in (("without", None), ("signed", keys)):
            found[name].append(_median(updated(snapshot, signing=signing)))
    return {**found}


def _median(snapshot: Snapshot) -> float:
    """Decide many Jobs; return the median CPU time of a review, in milliseconds."""
    numbers = range(reviews.IN_PROCESS + reviews.WARM_UP)
    texts = (bodies.review(reviews.RESEARCH, f"{n:012d}", is_dry_run=True) for n in numbers)
    return reviews.in_process(snapshot, texts)["p50"]


def added(figures: Figures) -> list[float]:
    """Return what signatures add, round by round, in milliseconds."""
    pairs = zip(figures["without"], figures["signed"], strict=True)
    return [signed - without for without, signed in pairs]


def targets(figures: Figures) -> list[Target]:
    value = statistics.median(added(figures))
    return [Target(name="CPU ms that signatures add to a review", value=value, limit=MOST)]


def lines(figures: Figures) -> Sequence[str]:
    shown = {**figures, "added": added(figures)}
    return [f"{name:<10}{spread(shown[name], digits=3)}" for name in ("without", "signed", "added")]
