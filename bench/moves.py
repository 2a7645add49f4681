"""Reviews of new Jobs while pending ones are moved, as fast as the controller ever moves them.

Each move is an update that this webhook edits, and that Kueue follows: the moves are asked for
here, to and fro between two full queues, so that there are always some to make. Phases take turns,
because figures of different minutes differ on a shared machine.
"""

import contextlib
import itertools
from collections.abc import Callable
from typing import Final

from bench import full_queues, phases, reviews
from bench.report import Figures, Scale, Target, spread, table
from bench.serving import Meanwhile
from hack import paper
from hack.api import ApiError, Object
from hack.install import Installation
from webhook.controller.mover import MOST_IN_FLIGHT, STEP_SECONDS
from webhook.model.job import MOVE_TO

MOVES_A_SECOND: Final = MOST_IN_FLIGHT / STEP_SECONDS
"""The controller asks for so many at once, and looks again after so long."""
WORKLOADS_A_JOB: Final = 100
"""Of the scale's Workloads, so many fewer Jobs wait here: 200, or 20."""
LEAST_PART: Final = 0.8
"""Of the moves that were asked for, so many must have been made, or it was no burst."""
PHASES: Final = ("still", "moving", "still again")
OPTIONS: Final = ("gpu", "cpu")
RECONSIDER: Final = {"after": "24h", "maxMoves": 100}

Say = Callable[[str], None]


def measure(installation: Installation, scale: Scale, say: Say) -> Figures:
    plane = installation.plane
    full_queues.create(plane)
    names = [f"moved-{number}" for number in range(scale.workloads // WORKLOADS_A_JOB)]
    say(f"{len(names)} Jobs that wait")
    plane.client.apply(_policy())
    plane.client.create_all([paper.light_job(name, full_queues.NAMES) for name in names])
    plane.wait("their Workloads", lambda: _pending(installation) >= len(names))
    served, mover = reviews.served_by(installation), _Mover(installation, names)
    rounds = []
    for number in range(scale.rounds):
        say(f"round {number + 1} of {scale.rounds}")
        rounds.append(_round(number, served, mover, scale))
    return {"rounds": rounds}


def _policy() -> Object:
    """Return the rule that sends new Jobs to the CPU queue, with decisions that are not final."""
    policy = paper.policy(full_queues.NAMES)
    policy["spec"]["strategy"]["threshold"][1] = {"option": "cpu", "orPendingBelow": 1_000_000}
    # The controller makes no moves of its own: none of the Jobs gets old enough.
    policy["spec"]["reconsider"] = RECONSIDER
    return policy


def _pending(installation: Installation) -> int:
    names = full_queues.NAMES
    return sum(
        installation.plane.client.get(paper.KUEUE, "ClusterQueue", name)
        .get("status", {})
        .get("pendingWorkloads", 0)
        for name in (names.gpu_cluster_queue, names.cpu_cluster_queue)
    )


class _Mover:
    """Asks for one move after the other, each Job in its turn to the other option."""

    def __init__(self, installation: Installation, names: list[str]) -> None:
        self._client = installation.plane.client
        self._turns = itertools.cycle(
            [(name, option) for option in OPTIONS for name in names],
        )
        self.moved = 0

    def move(self) -> None:
        name, option = next(self._turns)
        change = {"metadata": {"annotations": {MOVE_TO: option}}}
        # One that is refused is not counted.
        with contextlib.suppress(ApiError, OSError):
            found = self._client.patch(
                "batch/v1", "Job", name, change, namespace=full_queues.NAMES.namespace
            )
            self.moved += found["metadata"]["labels"][paper.QUEUE_LABEL].startswith(option)


def _round(number: int, served: reviews.Served, mover: _Mover, scale: Scale) -> Figures:
    """Measure each phase once; every other round in the other order."""
    found = {}
    for phase in PHASES[:: -1 if number % 2 else 1]:
        before = mover.moved
        with contextlib.ExitStack() as meanwhile:
            if phase == "moving":
                meanwhile.enter_context(Meanwhile(mover.move, every=1 / MOVES_A_SECOND))
            found[phase] = reviews.measured(served, scale)
        found[phase]["movesASecond"] = round((mover.moved - before) / scale.seconds, 1)
    return found


def targets(figures: Figures) -> list[Target]:
    rounds = figures["rounds"]
    return [
        *(
            phases.target(
                rounds,
                "moving",
                side,
                base="still",
                name=f"{side} p99 while Jobs are moved, times that while none is",
            )
            for side in phases.SIDES
        ),
        Target(
            name="moves a second, at least",
            value=min(each["moving"]["movesASecond"] for each in rounds),
            limit=LEAST_PART * MOVES_A_SECOND,
            at_least=True,
        ),
        Target(name="errors", value=phases.errors(rounds), limit=0),
    ]


def lines(figures: Figures) -> list[str]:
    rounds, rows = figures["rounds"], []
    for phase in PHASES:
        columns = [
            spread([each[phase][key][quantile] for each in rounds])
            for key in phases.SIDES.values()
            for quantile in ("p50", "p99")
        ]
        times = [spread(phases.ratios(rounds, phase, side, base="still")) for side in phases.SIDES]
        moves = spread([each[phase]["movesASecond"] for each in rounds], digits=1)
        rows.append([phase, *columns, *times, moves])
    header = ("median (least-most), ms", "handler p50", "p99", "client p50", "p99")
    return table((*header, "p99 times still: handler", "client", "moves a second"), rows)
