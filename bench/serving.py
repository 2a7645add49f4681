"""The load program alone against the server: bursts, connections that stall, a busy observer."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from bench import reviews
from bench.report import Figures, Scale, Target, table
from bench.reviews import Served
from hack import load, meters
from hack.api import ApiClient
from hack.install import Installation

HANDLER_MILLISECONDS: Final = 2.0
ABOVE_HANDLER_MILLISECONDS: Final = 1.0
BESIDE_STALLED_MILLISECONDS: Final = 50.0
RELIST_AFTER: Final = 0.2
"""Of the time: a list of 20,000 Workloads then falls into what is left of it."""
LISTED_SECONDS: Final = 60.0
"""How long to wait for a list to come to its end: only then is it counted."""
KILLS: Final = 2

BURSTS: Final = (
    ("64 from one client", ("-burst=64",)),
    ("64 from each of three clients", ("-burst=64", "-clients=3")),
    ("256 from one client", ("-burst=256",)),
)
STALLS: Final = (
    ("200 silent TLS connections", ("-silent=200",)),
    ("200 half handshakes", ("-half-handshakes=200",)),
    # Long enough that the first ones are dropped and others take their place.
    ("64 half-sent bodies", ("-half-bodies=64", "-settle=3s")),
)
PHASES: Final = (
    ("quiet", "idle observer"),
    ("relist", "during relists"),
    ("observerKilled", "observer killed"),
)

Say = Callable[[str], None]


def measure(installation: Installation, scale: Scale, say: Say) -> Figures:
    served = reviews.served_by(installation)
    breaker = _WatchBreaker(installation.plane.client)
    figures = {**three_phases(served, breaker.end_watches, scale, say), "bursts": {}, "stalls": {}}
    for words, flags in BURSTS:
        say(f"bursts of {words}")
        rounds = (f"-rounds={scale.burst_rounds}", "-pause=200ms")
        figures["bursts"][words] = load.reviews(served.target, *flags, *rounds)
    for words, flags in STALLS:
        say(words)
        figures["stalls"][words] = load.stall(served.target, *flags)
    return figures


def three_phases(
    served: Served, end_watches: Callable[[], None], scale: Scale, say: Say
) -> Figures:
    """Measure a server at the scale's rate while its observer is idle, lists again, and is killed.

    *end_watches* has the observer list again.
    """
    say(f"{scale.rate:.0f} reviews a second beside an idle observer")
    found = {"quiet": reviews.measured(served, scale)}
    say("the same during relists")
    found["relist"] = _during_relists(served, end_watches, scale)
    say("the same while the observer is killed and comes back")
    found["observerKilled"] = _while_killed(served, scale)
    return found


def _during_relists(served: Served, end_watches: Callable[[], None], scale: Scale) -> Figures:
    relists = meters.Counter(served.metrics, "kueue_fallback_watch_relists_total")
    with Meanwhile(end_watches, every=scale.seconds * RELIST_AFTER, times=1):
        found = reviews.measured(served, scale)
    until = time.monotonic() + LISTED_SECONDS
    while not (count := relists.grown()) and time.monotonic() < until:
        time.sleep(0.5)
    return {**found, "relists": count}


def _while_killed(served: Served, scale: Scale) -> Figures:
    starts = meters.Counter(served.metrics, "kueue_fallback_observer_starts_total")

    def kill() -> None:
        os.kill(meters.observer(served.pid), signal.SIGKILL)

    with Meanwhile(kill, every=scale.seconds / (KILLS + 1)):
        found = reviews.measured(served, scale)
    return {**found, "observerStarts": starts.grown()}


class _WatchBreaker:
    """Changes the definition of Workloads: the API server ends their watches and forgets events.

    So whoever watched is told that it is too late to resume, and lists again.
    """

    NAME: Final = "workloads.kueue.x-k8s.io"

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._turn = 0

    def end_watches(self) -> None:
        self._turn += 1
        change: dict[str, Any] = {"spec": {"names": {"categories": [f"bench-{self._turn}"]}}}
        definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", self.NAME)
        # Its connection may be among what is ended; there is a next time.
        with contextlib.suppress(OSError):
            self._client.patch(*definition, change)


class Meanwhile:
    """Does something again and again while the `with` block runs; first after a whole interval.

    At most *times* times, if that is given.
    """

    def __init__(self, act: Callable[[], None], *, every: float, times: int = sys.maxsize) -> None:
        self._act = act
        self._every = every
        self._times = times
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while self._times and not self._over.wait(self._every):
            self._act()
            self._times -= 1


def targets(figures: Figures) -> list[Target]:
    found = latency_targets(figures)
    found += [
        Target(
            name=f"first answer beside {words}, ms",
            value=stall["first"],
            limit=BESIDE_STALLED_MILLISECONDS,
        )
        for words, stall in figures["stalls"].items()
    ]
    return [*found, Target(name="errors", value=_errors(figures), limit=0)]


def latency_targets(figures: Figures) -> list[Target]:
    """Hold the three phases to their targets, and to have been what they are called."""
    found = []
    for phase, words in PHASES:
        handler, client = (figures[phase][side]["p99"] for side in ("handler", "latency"))
        found += [
            Target(name=f"handler p99, {words}, ms", value=handler, limit=HANDLER_MILLISECONDS),
            Target(
                name=f"client's p99 above the handler's, {words}, ms",
                value=round(client - handler, 2),
                limit=ABOVE_HANDLER_MILLISECONDS,
            ),
        ]
    happened = (figures["relist"]["relists"], figures["observerKilled"]["observerStarts"])
    return found + [
        Target(name=f"{what} meanwhile", value=times, limit=1, at_least=True)
        for what, times in zip(("relists", "starts of the observer"), happened, strict=True)
    ]


def _errors(figures: Figures) -> int:
    results = [*figures["bursts"].values(), *(figures[phase] for phase, _ in PHASES)]
    stalls = figures["stalls"].values()
    kinds = [found["errors"] for found in (*results, *stalls)]
    kinds += [found["newConnectionErrors"] for found in stalls]
    return sum(sum(kind.values()) for kind in kinds)


def lines(figures: Figures) -> list[str]:
    bursts = [
        [words, found["calls"], found["errors"] or 0, found["dials"], *found["latency"].values()]
        for words, found in figures["bursts"].items()
    ]
    stalls = [
        [words, found["first"], found["latency"]["max"], found["newConnectionLatency"]["max"]]
        for words, found in figures["stalls"].items()
    ]
    return [
        *latency_lines(figures),
        "",
        *table(("bursts", "reviews", "errors", "dials", "p50", "p90", "p99", "max"), bursts),
        "",
        *table(("answers beside, ms", "first", "kept, max", "new, max"), stalls),
    ]


def latency_lines(figures: Figures) -> list[str]:
    rows = [row for phase, words in PHASES for row in reviews.rows(words, figures[phase])]
    return table(reviews.HEADER, rows)
