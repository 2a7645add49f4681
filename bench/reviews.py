"""Reviews at a rate, seen from both ends: by the load program and by the server's histogram."""

from dataclasses import dataclass
from typing import Final

from bench import objects
from bench.report import Figures, Scale
from hack import bodies, load, meters
from hack.install import NAMESPACE, SERVICE, Installation

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
