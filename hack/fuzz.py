"""Hunt for objects and reviews that harm others: round after round, each from another seed.

usage: python -m hack.fuzz [--seconds 3600] [--seed N] [--examples 300]

A round runs the tests of tests/fuzz and the one of raw reviews, with many more examples than
`make test` takes. Ends with the first round that fails, and says how to run that one again.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = ("tests/fuzz", "tests/contract/test_hostile_reviews.py")
EXAMPLES: Final = 300
SEEDS: Final = 1 << 31
ROUND_SECONDS: Final = 7_200
"""For one test: what hangs is found, too."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="0: one round")
    parser.add_argument("--seed", type=int, help="of the first round; default: a new one")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="of each test in a round")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(SEEDS) if given.seed is None else given.seed
    began = time.monotonic()
    number = 0
    while not number or time.monotonic() - began < given.seconds:
        say(began, f"round {number + 1}: seed {seed + number}, {given.examples} examples")
        if code := _round(seed + number, given.examples):
            print(f"\nAgain: make fuzz SECONDS=0 SEED={seed + number} EXAMPLES={given.examples}")
            sys.exit(code)
        number += 1
    say(began, f"{number} rounds from seed {seed}: nothing found")


def say(began: float, text: str) -> None:
    print(f"[{time.monotonic() - began:6.0f} s] {text}", flush=True)


def _round(seed: int, examples: int) -> int:
    """Run all tests once; return pytest's exit code."""
    given = {"FUZZ_SEED": str(seed), "FUZZ_EXAMPLES": str(examples), "PYTHONPATH": str(ROOT)}
    pytest = [sys.executable, "-m", "pytest", "-n", "2", "--timeout", str(ROUND_SECONDS)]
    return subprocess.run(
        [*pytest, *TESTS], cwd=ROOT, env={**os.environ, **given}, check=False
    ).returncode


if __name__ == "__main__":
    main()
