"""What a Job's creation costs with each contender in the API server's path, Kueue running.

Once as dry runs, which cost what is in the path and no more; once with Jobs that are kept until the
point is over, so that Kueue and the webhook's observer work on them meanwhile. In each round every
contender has its turn, in another order, so that what drifts on the machine falls on all of them
alike; compare within one run only.
"""

import dataclasses
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench import full_queues, where
from bench.contenders import Contenders
from bench.report import Figures, Scale, Target, spread, table
from hack import load, meters
from hack.install import Installation

NOTHING, POLICY, WEBHOOK = "nothing more", "admission policy", "kueue-fallback"
COLUMNS: Final = ("creates", "p50 ms", "p90 ms", "p99 ms", "per second", "CPU ms", "p50 / nothing")

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
    Point(name="200 a second", rate=200, count=1200),
)
# A Job that is kept is written a dozen times until it is gone: two cores sustain few a second.
KINDS: Final[Mapping[str, tuple[str, tuple[Point, ...]]]] = {
    "dry run": ("-dry-run", POINTS),
    "kept": ("-clean-up", tuple(point for point in POINTS if point.at_once)),
}
KEPT_SHARE: Final = 0.25
WARM_UP: Final = 20
TIMES_KUEUES: Final = 3.0
"""Our webhook is called twice for a Job that Kueue suspends, Kueue's once."""
OF_INTEREST: Final = ("p50", "p90", "p99")

# By kind a round each, in which by contender and point there is what the load program found.
Rounds = list[Figures]


def measure(installation: Installation, scale: Scale, say: Say, *, kinds: Sequence[str]) -> Figures:
    full_queues.create(installation.plane)
    contenders = Contenders(installation, full_queues.NAMES).by_name
    figures: dict[str, Rounds] = {kind: [] for kind in kinds}
    order = list(contenders)
    for number in range(scale.rounds):
        for rounds in figures.values():
            rounds.append({})
        for name in order:
            with contenders[name]():
                for kind in kinds:
                    say(f"round {number + 1} of {scale.rounds}: {name}, {kind}")
                    figures[kind][-1][name] = _all_points(
                        installation, scale, kind, is_called=name == WEBHOOK
                    )
        order = [*order[1:], order[0]]
    return figures


def _all_points(installation: Installation, scale: Scale, kind: str, *, is_called: bool) -> Figures:
    plane, replica = installation.plane, installation.replicas[0]
    target = full_queues.api_server(plane)
    flag, points = KINDS[kind]
    share = scale.share * (KEPT_SHARE if kind == "kept" else 1.0)
    found = {}
    for point in points:
        parts = where.seconds(plane, replica, is_called=is_called)
        reviews = meters.reviews(replica.metrics) if is_called else {}
        before = _cpu_seconds(installation)
        flags = (*point.flags(share), f"-warm-up={WARM_UP}", flag)
        result = load.jobs(target, *flags)
        after = _cpu_seconds(installation)
        found[point.name] = {
            **result,
            "cpuMilliseconds": _by_create(before, after, result["calls"]),
            "where": where.by_create(
                parts,
                where.seconds(plane, replica, is_called=is_called),
                result["calls"] + WARM_UP,
            ),
        }
        if is_called:
            found[point.name]["handler"] = meters.difference(
                reviews, meters.reviews(replica.metrics)
            )
        full_queues.wait_until_alone(plane)
    return found


def _cpu_seconds(installation: Installation) -> dict[str, float]:
    """Return the CPU time that the API server and the webhook have used since they started."""
    processes = installation.plane.processes
    names = {
        "API server": ("kube-apiserver",),
        "webhook": ("controller", *(replica.name for replica in installation.replicas)),
    }
    return {
        who: sum(
            sum(meters.cpu_seconds(processes.pid(name)).values())
            for name in programs
            if processes.is_running(name)
        )
        for who, programs in names.items()
    }


def _by_create(before: Figures, after: Figures, calls: int) -> Figures:
    count = calls + WARM_UP
    return {who: round((after[who] - before[who]) * 1000 / count, 2) for who in after}


def targets(figures: Figures) -> list[Target]:
    return [target for kind, rounds in figures.items() for target in _targets(kind, rounds)]


def _targets(kind: str, rounds: Rounds) -> list[Target]:
    def added(name: str) -> float:
        before, after = (values(rounds, each, "1 at once", "p50") for each in (NOTHING, name))
        return float(statistics.median(map(operator.sub, after, before)))

    def throughput(name: str) -> float:
        return statistics.median(values(rounds, name, "8 at once", "perSecond"))

    return [
        Target(
            name=f"{kind}: p50 added at 1 at once, ms, against the {POLICY}'s",
            value=round(added(WEBHOOK), 2),
            limit=round(added(POLICY), 2),
        ),
        Target(
            name=f"{kind}: creates a second at 8 at once, against the {POLICY}'s",
            value=throughput(WEBHOOK),
            limit=throughput(POLICY),
            at_least=True,
        ),
        *_calls_target(kind, rounds),
        Target(name=f"{kind}: failed or went the wrong way", value=_wrong(rounds), limit=0),
    ]


def _calls_target(kind: str, rounds: Rounds) -> list[Target]:
    parts = [each[WEBHOOK]["1 at once"].get("where", {}) for each in rounds]
    found = [each[where.OURS] / each[where.KUEUES] for each in parts if each.get(where.KUEUES)]
    if not found:
        return []
    name = f"{kind}: calls of our webhook at 1 at once, in Kueue's"
    return [Target(name=name, value=round(statistics.median(found), 2), limit=TIMES_KUEUES)]


def values(rounds: Rounds, name: str, point: str, what: str) -> list[float]:
    found = [each[name][point] for each in rounds]
    if what == "perSecond":
        return [each["perSecond"] for each in found]
    if what == "cpu":
        return [sum(each["cpuMilliseconds"].values()) for each in found]
    return [each["latency"][what] for each in found]


def _wrong(rounds: Rounds) -> int:
    wrong = 0
    for found in rounds:
        for name, points in found.items():
            queue = full_queues.NAMES.gpu_queue if name == NOTHING else full_queues.NAMES.cpu_queue
            for result in points.values():
                right = result["notes"].get(f"queue {queue}", 0)
                wrong += sum(result["errors"].values()) + result["calls"] - right
    return wrong


def lines(figures: Figures) -> list[str]:
    found: list[str] = []
    for kind, rounds in figures.items():
        names = (NOTHING, POLICY, WEBHOOK)
        rows = [_row(rounds, point, name) for point in rounds[0][NOTHING] for name in names]
        header = (f"{kind}, {len(rounds)} rounds: median (least-most)", *COLUMNS)
        found += ["", *table(header, rows)]
        parts = {
            name: [each[name]["1 at once"].get("where", {}) for each in rounds] for name in names
        }
        found += ["", *told] if (told := where.lines(parts)) else []
    return found[1:]


def _row(rounds: Rounds, point: str, name: str) -> list[object]:
    before, after = (values(rounds, each, point, "p50") for each in (NOTHING, name))
    return [
        f"{point}, {name}",
        rounds[0][name][point]["calls"],
        *(spread(values(rounds, name, point, what)) for what in OF_INTEREST),
        spread(values(rounds, name, point, "perSecond"), digits=0),
        spread(values(rounds, name, point, "cpu")),
        spread(tuple(map(operator.truediv, after, before))),
    ]
