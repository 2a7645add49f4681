"""Show what a policy saves: a burst of Jobs, three ways side by side, and what one asks next.

The burst is that of the paper's experiment, with all times divided by a factor. It runs on a
cluster of its own, of which nothing is left: by default on one that is played in this process,
which needs nothing but Python.
"""

import argparse
import contextlib
import dataclasses
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.experiment.rounds import STAGGER_SECONDS, RoundError
from hack import played_burst
from hack.controlplane import ControlPlane
from hack.embedded.played_plane import PlayedPlane
from hack.install import PATIENT, Installation
from hack.plane import NotReadyError, Plane
from hack.played_burst import DemoError, Pace
from hack.waiting import WaitedInVainError

PACE: Final = Pace(faster=8.0, stagger_seconds=2.0)
KUEUE_PACE: Final = Pace(faster=4.0, stagger_seconds=STAGGER_SECONDS)
"""What Kubernetes takes to create a Job, and to start and end a pod, has to be little beside it."""
PLAYED: Final = """\
Real:   the webhook's server with the certificates that it makes, its observer, the controller, the
        policies, the decisions and their patches, the moves, and HTTP and TLS between them all.
Played: the API server (a small one, in memory), Kueue (by the simulator that forecasts run on,
        which tests compare with Kueue) and the nodes (Jobs last as long as they say).
"""
KUEUE: Final = """\
Real:   etcd, the API server, Kubernetes' controllers, Kueue, and all of kueue-fallback.
Played: the nodes, by KWOK (pods last as long as they say).
Programs that are not there yet are built first.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument("--kueue", action="store_true", help="on a real API server with a Kueue")
    parser.add_argument(
        "--faster",
        type=float,
        help=f"divides all times; default {PACE.faster:g}, with --kueue {KUEUE_PACE.faster:g}",
    )
    parser.add_argument("--output", type=Path, default=Path("demo.png"), help="the picture's file")
    given = parser.parse_args()
    pace = KUEUE_PACE if given.kueue else PACE
    if given.faster:
        pace = dataclasses.replace(pace, faster=given.faster)
    # Also where a shell that runs it in the background lets it ignore one of them.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        print(KUEUE if given.kueue else PLAYED, flush=True)
        with _cluster(kueue=given.kueue) as installation:
            played_burst.play_on(installation, pace, picture=given.output)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing is left running.", file=sys.stderr)
        return 130
    except (DemoError, NotReadyError, RoundError, WaitedInVainError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 3
    return 0


@contextlib.contextmanager
def _cluster(*, kueue: bool) -> Iterator[Installation]:
    """Start a cluster with this project in it; end it, and delete its files."""
    with tempfile.TemporaryDirectory(prefix="kueue-fallback-demo-") as folder:
        state = Path(folder)
        plane: Plane = ControlPlane(state, report=_starting) if kueue else PlayedPlane(state)
        _starting("the cluster")
        with plane:
            _starting("kueue-fallback")
            with Installation(
                plane, chart_values=PATIENT, certificates="selfManaged"
            ) as installation:
                yield installation


def _starting(what: str) -> None:
    print(f"starting {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
