"""Decisions by finish time beside 20,000 pending Workloads: their cost, the age of forecasts."""

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Final

from bench import event_loop, objects, reviews
from bench.report import Figures, Scale, Target, table
from bench.state import EVENTS_PER_SECOND, HANDLER_MILLISECONDS, Say
from hack import meters, paper
from hack.install import Installation

OLDEST_SECONDS: Final = 2.0
SAMPLE_SECONDS: Final = 0.1
PREEMPTING: Final = "three levels, preempting"
LOOPS: Final = ("200 queues alone", "one queue, 256 GPUs", "three levels of 200", PREEMPTING)
LOOP_SECONDS: Final = 5.0
"""CPU for 20,000 pending in three priorities of a tree of 200 queues in which Kueue preempts."""
_COVERED: Final = 2
"""Cohorts that one policy has a queue in."""
_AGE: Final = re.compile(r"^kueue_fallback_forecast_age_seconds (\S+)$", re.MULTILINE)
_QUEUES: Final = re.compile(r"^kueue_fallback_forecast_queues (\S+)$", re.MULTILINE)


def measure(installation: Installation, scale: Scale, say: Say) -> Figures:
    plane, port = installation.plane, installation.replicas[0].metrics
    say("policies that decide by finish time, so that all queues are forecast")
    plane.client.apply_all(list(_policies(scale.queues)))
    plane.wait(
        "all queues to be forecast",
        lambda: _read(_QUEUES, port) >= scale.queues,
    )
    say(f"{scale.rate:.0f} reviews a second on a quiet cluster")
    figures: Figures = {"quiet": reviews.at_rate(installation, scale)}
    say(f"the same beside {EVENTS_PER_SECOND:.0f} Workload events a second")
    ages: list[float] = []
    with (
        objects.Events(
            plane, EVENTS_PER_SECOND, workloads=scale.workloads, queues=scale.queues
        ) as events,
        _sampling(port, ages),
    ):
        figures["busy"] = reviews.at_rate(installation, scale)
    ages.sort()
    return {
        **figures,
        "events": events.done,
        "loops": {name: event_loop.measure(name, repeat=1) for name in LOOPS},
        "ages": {
            "samples": len(ages),
            "p50": round(ages[len(ages) // 2], 2),
            "max": round(ages[-1], 2),
        },
    }


def _policies(queues: int) -> Iterator[paper.Object]:
    """Yield the bench's policy by finish time, and some for Jobs that never come."""
    own = paper.policy(objects.NAMES)
    own["spec"]["options"][1]["slowdown"] = 3.5
    own["spec"]["strategy"] = {"type": "FinishTime", "finishTime": {"runTime": "20s"}}
    yield own
    heads = [f"queue-{number}" for number in range(2, queues, objects.COHORT_SIZE)]
    for first in range(0, len(heads), _COVERED):
        options = [{"name": name, "queue": name} for name in heads[first : first + _COVERED]]
        spec = {
            "mode": "Observe",
            "match": {"jobSelector": {"matchLabels": {"bench": "never"}}},
            "options": options,
            "strategy": {"type": "FinishTime"},
        }
        yield {**own, "metadata": {"name": f"covers-{heads[first]}"}, "spec": spec}


@contextlib.contextmanager
def _sampling(port: int, ages: list[float]) -> Iterator[None]:
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_SECONDS):
            ages.append(_read(_AGE, port))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _read(pattern: re.Pattern[str], port: int) -> float:
    found = pattern.search(meters.scrape(port))
    return float(found.group(1)) if found else 0.0


def targets(figures: Figures) -> list[Target]:
    slowest = max(figures[phase]["handler"]["p99"] for phase in ("quiet", "busy"))
    return [
        Target(name="oldest forecast, seconds", value=figures["ages"]["max"], limit=OLDEST_SECONDS),
        Target(name="handler p99, ms", value=slowest, limit=HANDLER_MILLISECONDS),
        Target(
            name="forecast of 20,000 pending with preemption, CPU seconds",
            value=figures["loops"][PREEMPTING]["forecast"],
            limit=LOOP_SECONDS,
        ),
    ]


def lines(figures: Figures) -> list[str]:
    rows = [
        *reviews.rows("quiet", figures["quiet"]),
        *reviews.rows(f"{EVENTS_PER_SECOND:.0f} events/s", figures["busy"]),
    ]
    ages = figures["ages"]
    header = ("age of the forecasts beside the events, s", "samples", "p50", "max")
    loops = [
        [name, *(round(found[key], 2) for key in ("forecast", "lookup", "megabytes"))]
        for name, found in figures["loops"].items()
    ]
    loop = ("forecast of 20,000 pending", "CPU s", "ms a lookup", "MB to send")
    return [
        *table(reviews.HEADER, rows),
        "",
        *table(header, [["", ages["samples"], ages["p50"], ages["max"]]]),
        "",
        *table(loop, loops),
    ]
