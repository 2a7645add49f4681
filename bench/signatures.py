"""What signatures add to a review: the same reviews in this process, with keys and without."""

import gc
import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.report import ROOT, Figures, Scale, Target, spread
from bench.serving import Say
from hack import bodies, meters, paper
from webhook.admission import review as reviews_wire
from webhook.flow.create import Rules
from webhook.kueue.live_occupancy import OccupancyOfSnapshots
from webhook.model.queues import Snapshot
from webhook.model.signatures import SigningKey, SigningKeys
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics
from webhook.state.pipe import Update, changes
from webhook.state.snapshot_file import read_snapshot

MOST: Final = 0.05
"""Milliseconds that signatures may add to a review."""
REVIEWS: Final = 2_000
WARM_UP: Final = 50
NAMES: Final = paper.Names(namespace="research")
SAVED: Final = ROOT / "examples" / "snapshot.json"


def measure(scale: Scale, say: Say) -> Figures:
    say(f"{REVIEWS} reviews, {scale.rounds} times without signatures and with them, by turns")
    snapshot = OccupancyOfSnapshots()(read_snapshot(str(SAVED), 0.0, time.time()))
    made = int(time.time())
    key = SigningKey(id="bench", made=made, secret=secrets.token_bytes(32))
    keys = SigningKeys(keys=(key,), signing=key.id, since=made)
    found: dict[str, list[float]] = {"without": [], "signed": []}
    for _ in range(scale.rounds):
        for name, signing in (("without", None), ("signed", keys)):
            found[name].append(_median(replace(snapshot, signing=signing)))
    return {**found}


def _median(snapshot: Snapshot) -> float:
    """Decide many Jobs; return the median CPU time of a review, in milliseconds."""
    handler = Handler(Rules(), Metrics(), clock=lambda: 0.0)
    handler.update(Update(changed=changes(Snapshot(), snapshot), synced=True))
    texts = [bodies.review(NAMES, f"{n:012d}", is_dry_run=True) for n in range(REVIEWS + WARM_UP)]
    given = [reviews_wire.read(text.encode()) for text in texts]
    gc.collect()
    milliseconds = []
    for review in given:
        began = time.thread_time()
        verdict = handler.admit(review)
        milliseconds.append((time.thread_time() - began) * 1000)
        if verdict.patch is None:
            raise RuntimeError("a review of the bench was not decided")
    return meters.quantiles(milliseconds[WARM_UP:])["p50"]


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
