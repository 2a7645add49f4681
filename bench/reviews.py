"""Reviews at a rate, seen from both ends: by the load program and by the server's histogram."""

import gc
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bench import objects
from bench.report import ROOT, Figures, Scale
from hack import bodies, load, meters, paper
from hack.install import NAMESPACE, SERVICE, Installation
from webhook.admission.review import read_review
from webhook.flow.create import Rules
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics
from webhook.state.pipe import Update, changes
from webhook.state.snapshot import Snapshot

IN_PROCESS: Final = 2_000
"""Reviews that are decided without a server."""
WARM_UP: Final = 50
RESEARCH: Final = paper.Names(namespace="research")
"""Whose Jobs those are, as in the saved state."""
SAVED: Final = ROOT / "examples" / "snapshot.json"
HEADER: Final = ("milliseconds", "reviews", "errors", "patched", "p50", "p99", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where a server answers, its port of metrics, and the process that began it."""

    target: load.Webhook
    metrics: int
    pid: int


def served_by(installation: Installation) -> Served:
    """Return the first replica, with reviews that it decides on."""
    path = installation.plane.state / "reviews.jsonl"
    path.write_text(bodies.review(objects.NAMES))
    replica = installation.replicas[0]
    target = load.Webhook(
        port=replica.listen,
        authority=installation.ca_certificate,
        server_name=f"{SERVICE}.{NAMESPACE}.svc",
        bodies=path,
    )
    pid = installation.plane.processes.pid(replica.name)
    return Served(target=target, metrics=replica.metrics, pid=pid)


def at_rate(installation: Installation, scale: Scale) -> Figures:
    return measured(served_by(installation), scale)


def measured(served: Served, scale: Scale) -> Figures:
    before = meters.reviews(served.metrics)
    flags = (f"-rate={scale.rate}", f"-seconds={scale.seconds}", "-warm-up=50")
    answered = load.reviews(served.target, *flags)
    return {**answered, "handler": meters.difference(before, meters.reviews(served.metrics))}


def rows(words: str, found: Figures) -> list[list[object]]:
    errors, patched = sum(found["errors"].values()), found["notes"].get("patched", 0)
    handler, client = found["handler"], found["latency"]
    return [
        [f"handler, {words}", "", "", "", handler["p50"], handler["p99"], ""],
        [
            f"client, {words}",
            *(found["calls"], errors, patched),
            *(client["p50"], client["p99"], client["max"]),
        ],
    ]


def in_process(snapshot: Snapshot, texts: Iterable[str]) -> meters.Quantiles:
    """Decide on reviews by a state; return the milliseconds of CPU time that one takes."""
    handler = Handler(Rules(), Metrics(), clock=lambda: 0.0)
    handler.update(Update(changed=changes(Snapshot(), snapshot), synced=True))
    given = [read_review(text.encode()) for text in texts]
    gc.collect()
    milliseconds = []
    for review in given:
        began = time.thread_time()
        verdict = handler.admit(review)
        milliseconds.append((time.thread_time() - began) * 1000)
        if verdict.patch is None:
            raise RuntimeError("a review of the bench was not decided")
    return meters.quantiles(milliseconds[WARM_UP:])
