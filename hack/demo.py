"""Show what a policy saves: a number at once, then a burst of Jobs on a real Kueue.

The number comes from the simulation in the README. The burst is the published experiment's, with
all times divided by a factor; it runs on a control plane of its own, of which nothing is left.
"""

import argparse
import signal
import sys
from pathlib import Path
from typing import Final

HEADLINE: Final = """\
A day's 347 Jobs on three tiers of GPUs: 4h4m each as they are submitted, 41m with one policy.
Simulated; the picture: docs/tiers.png. To simulate it again:
  kubectl fallback simulate -f examples/scenarios/tiers.yaml"""
TIME_SCALE: Final = 4.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--faster", type=float, default=TIME_SCALE, help=f"divides all times; default {TIME_SCALE}"
    )
    parser.add_argument("--output", type=Path, default=Path("demo.png"), help="the picture's file")
    given = parser.parse_args()
    print(HEADLINE, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Here, as it takes a second to import, and the number comes first.
        from hack import played_burst  # noqa: PLC0415

        return played_burst.show(faster=given.faster, picture=given.output)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing is left running.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
