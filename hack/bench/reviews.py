"""Reviews at a rate, seen from both ends: by the load program and by the server's histogram."""

from typing import Final

from hack import bodies, load, meters
from hack.bench import objects
from hack.bench.report import Figures, Scale
from hack.install import NAMESPACE, SERVICE, Installation

HEADER: Final = ("milliseconds", "reviews", "errors", "patched", "p50", "p99", "max")


def target(installation: Installation) -> load.Webhook:
    """Return the first replica, with reviews that it decides on."""
    path = installation.plane.state / "reviews.jsonl"
    path.write_text(bodies.review(objects.NAMES))
    return load.Webhook(
        port=installation.replicas[0].listen,
        authority=installation.ca_certificate,
        server_name=f"{SERVICE}.{NAMESPACE}.svc",
        bodies=path,
    )


def at_rate(installation: Installation, scale: Scale) -> Figures:
    return measured(target(installation), installation.replicas[0].metrics, scale)


def measured(webhook: load.Webhook, metrics_port: int, scale: Scale) -> Figures:
    before = meters.reviews(metrics_port)
    flags = (f"-rate={scale.rate}", f"-seconds={scale.seconds}", "-warm-up=50")
    answered = load.reviews(webhook, *flags)
    return {**answered, "handler": meters.difference(before, meters.reviews(metrics_port))}


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
