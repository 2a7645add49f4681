"""What a Job's creation costs with each contender in the API server's path, Kueue running.

In each round every contender has its turn, in another order, so that what drifts on the machine
falls on all of them alike; compare within one run only.
"""

import dataclasses
import statistics
from collections.abc import Callable
from typing import Final

from hack import load
from hack.bench import full_queues
from hack.bench.contenders import Contenders
from hack.bench.report import Figures, Scale, Target, spread, table
from hack.install import Installation

NOTHING, POLICY, WEBHOOK = "nothing more", "admission policy", "kueue-fallback"
COLUMNS: Final = ("creates", "p50 ms", "p90 ms", "p99 ms", "per second", "p50 / nothing")

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One way to create Jobs: so many at once, or so many a second."""

    name: str
    at_once: int = 0
    rate: int = 0
    count: int

    def flags(self, share: float) -> tuple[str, ...]:
        count = int(self.count * share)
        if self.rate:
            return (f"-rate={self.rate}", f"-seconds={count / self.rate}")
        return (f"-at-once={self.at_once}", f"-count={count}")


POINTS: Final = (
    Point(name="1 at once", at_once=1, count=400),
    Point(name="8 at once", at_once=8, count=1200),
    Point(name="32 at once", at_once=32, count=1600),
    Point(name="50 a second", rate=50, count=300),
    Point(name="200 a second", rate=200, count=1000),
)
OF_INTEREST: Final = ("p50", "p90", "p99")


def measure(installation: Installation, scale: Scale, say: Say, *, dry_run: bool) -> Figures:
    plane = installation.plane
    full_queues.create(plane)
    contenders = Contenders(installation, full_queues.NAMES).by_name
    figures: Figures = {"dryRun": dry_run, "rounds": []}
    order = list(contenders)
    for number in range(scale.rounds):
        found = {}
        for name in order:
            say(f"round {number + 1} of {scale.rounds}: {name}")
            with contenders[name]():
                found[name] = _all_points(installation, scale, dry_run=dry_run)
        figures["rounds"].append(found)
        order = [*order[1:], order[0]]
    return figures


def _all_points(installation: Installation, scale: Scale, *, dry_run: bool) -> Figures:
    plane = installation.plane
    target = full_queues.api_server(plane)
    found = {}
    for point in POINTS:
        flags = (*point.flags(scale.share), "-warm-up=20", "-dry-run" if dry_run else "-clean-up")
        found[point.name] = load.jobs(target, *flags)
        full_queues.wait_until_alone(plane)
    return found


def targets(figures: Figures) -> list[Target]:
    def added(name: str) -> float:
        rounds = zip(
            values(figures, name, "1 at once", "p50"),
            values(figures, NOTHING, "1 at once", "p50"),
            strict=True,
        )
        return statistics.median(with_it - without for with_it, without in rounds)

    def throughput(name: str) -> float:
        return statistics.median(values(figures, name, "8 at once", "perSecond"))

    return [
        Target(
            name=f"p50 added at 1 at once, ms, against the {POLICY}'s",
            value=round(added(WEBHOOK), 2),
            limit=round(added(POLICY), 2),
        ),
        Target(
            name=f"creates a second at 8 at once, against the {POLICY}'s",
            value=throughput(WEBHOOK),
            limit=throughput(POLICY),
            at_least=True,
        ),
        Target(name="creates that failed or went the wrong way", value=_wrong(figures), limit=0),
    ]


def values(figures: Figures, name: str, point: str, what: str) -> list[float]:
    found = [each[name][point] for each in figures["rounds"]]
    return [each["perSecond"] if what == "perSecond" else each["latency"][what] for each in found]


def _wrong(figures: Figures) -> int:
    wrong = 0
    for found in figures["rounds"]:
        for name, points in found.items():
            queue = full_queues.NAMES.gpu_queue if name == NOTHING else full_queues.NAMES.cpu_queue
            for result in points.values():
                right = result["notes"].get(f"queue {queue}", 0)
                wrong += sum(result["errors"].values()) + result["calls"] - right
    return wrong


def lines(figures: Figures) -> list[str]:
    rounds = len(figures["rounds"])
    kind = "dry run" if figures["dryRun"] else "kept until the point is over"
    rows = [
        _row(figures, point.name, name) for point in POINTS for name in (NOTHING, POLICY, WEBHOOK)
    ]
    header = ("median (least-most)", *COLUMNS)
    return [f"Jobs created: {kind}; {rounds} rounds, interleaved", *table(header, rows)]


def _row(figures: Figures, point: str, name: str) -> list[object]:
    first = figures["rounds"][0][name][point]
    against = zip(
        values(figures, name, point, "p50"), values(figures, NOTHING, point, "p50"), strict=True
    )
    return [
        f"{point}, {name}",
        first["calls"],
        *(spread(values(figures, name, point, what)) for what in OF_INTEREST),
        spread(values(figures, name, point, "perSecond"), digits=0),
        spread([with_it / without for with_it, without in against]),
    ]
