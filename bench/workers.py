"""Ten worker clusters, one of which is slow: what that costs the reviews. No control plane runs.

The clusters are played, so that one can answer late or byte by byte while the others do not; the
server process and the load program are the real ones. Phases take turns, because figures of
different minutes differ on a shared machine; what they differ by anyway is measured beside it.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench import phases, played, reviews
from bench.report import Figures, Scale, Target, spread, table
from bench.reviews import Served
from bench.serving import Meanwhile
from hack import bodies, load, meters
from hack.embedded import many_workers
from hack.embedded.api_server import EmbeddedServer
from hack.embedded.faults import Mood
from hack.embedded.many_workers import NAMES, WORKERS

SETTLE_SECONDS: Final = 10.0
"""After a mood has changed: a watch that was open before it ends within nine."""
EVENT_SECONDS: Final = 1.0
"""Between two changes on each of the workers."""
READY_SECONDS: Final = 60.0
STALE_SECONDS: Final = 15.0
SLOW: Final = WORKERS[0]
PHASES: Final = {
    "prompt": Mood.PROMPT,
    "late": Mood.LATE,
    "dripping": Mood.DRIPPING,
    "prompt again": Mood.PROMPT,
}
_AGE: Final = re.compile(
    r'^kueue_fallback_cluster_state_age_seconds\{cluster="(.*)"\} (\S+)$', re.MULTILINE
)

Say = Callable[[str], None]


def measure(scale: Scale, say: Say) -> Figures:
    load.program()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kueue-fallback-")))
        _, workers = stack.enter_context(many_workers.played(folder))
        say(f"starting the webhook beside {len(WORKERS)} played clusters")
        served = stack.enter_context(
            played.served(
                folder,
                many_workers.kubeconfig_path(folder),
                bodies.review(NAMES, is_dry_run=True),
                watch_workers=True,
            )
        )
        _wait_until_all_are_heard_of(served.metrics)
        stack.enter_context(Meanwhile(lambda: _change(workers), every=EVENT_SECONDS))
        rounds = []
        for number in range(scale.rounds):
            say(f"round {number + 1} of {scale.rounds}")
            rounds.append(_round(number, workers[SLOW], served, scale))
    return {"rounds": rounds}


def _change(workers: Mapping[str, EmbeddedServer]) -> None:
    """Say something of each worker: what nobody has anything to say of cannot be late."""
    for worker in workers.values():
        worker.apply(many_workers.workload("waits-0"))


def _round(number: int, slow: EmbeddedServer, served: Served, scale: Scale) -> Figures:
    """Measure each phase once; every other round in the other order."""
    found = {}
    for phase in list(PHASES)[:: -1 if number % 2 else 1]:
        slow.faults.mood = PHASES[phase]
        time.sleep(SETTLE_SECONDS)
        answered = reviews.measured(served, scale)
        found[phase] = {**answered, "ages": _ages(served.metrics)}
    return found


def _ages(metrics: int) -> dict[str, float]:
    return {name: float(age) for name, age in _AGE.findall(meters.scrape(metrics))}


def _wait_until_all_are_heard_of(metrics: int) -> None:
    until = time.monotonic() + READY_SECONDS
    while len(_ages(metrics)) < len(WORKERS):
        if time.monotonic() > until:
            raise TimeoutError("the webhook has not heard of all clusters")
        time.sleep(0.2)


def targets(figures: Figures) -> list[Target]:
    rounds = figures["rounds"]
    slow = [
        phases.target(
            rounds,
            phase,
            side,
            base="prompt",
            name=f"{side} p99, one of ten {phase}, times that of ten prompt",
        )
        for side in phases.SIDES
        for phase in ("late", "dripping")
    ]
    ages = [phase["ages"] for each in rounds for phase in each.values()]
    others = max(age for each in ages for name, age in each.items() if name != SLOW)
    return [
        *slow,
        Target(name="oldest state of the nine others, seconds", value=others, limit=STALE_SECONDS),
        Target(name="errors", value=phases.errors(rounds), limit=0),
    ]


def lines(figures: Figures) -> list[str]:
    rows = []
    for phase in PHASES:
        found = [each[phase] for each in figures["rounds"]]
        ages = [each["ages"][SLOW] for each in found]
        columns = [
            spread([each[key][quantile] for each in found])
            for key in phases.SIDES.values()
            for quantile in ("p50", "p99")
        ]
        times = [
            spread(phases.ratios(figures["rounds"], phase, side, base="prompt"))
            for side in phases.SIDES
        ]
        rows.append([phase, *columns, *times, spread(ages, digits=0)])
    header = ("median (least-most), ms", "handler p50", "p99", "client p50", "p99")
    return table((*header, "p99 times prompt: handler", "client", "its age, s"), rows)
