"""Do what a newcomer does who has read the README alone, and write down what was printed.

usage: python -m hack.newcomer [--output docs/newcomer.md]
"""

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.install import ROOT

PAGE: Final = ROOT / "docs/newcomer.md"
_OWN: Final = ".venv/bin/kueue-fallback"
BEFORE: Final = (
    "cd kueue-fallback",
    "make demo",
    f"{_OWN} explain -f examples/light-job.yaml --snapshot examples/snapshot.json",
    f"{_OWN} simulate -f examples/scenarios/tiers.yaml --strategy static --strategy FinishTime",
    "make up",
)
"""What the README says, after the clone."""
AFTER: Final = (
    "kubectl wait -n research --for=condition=Complete job -l workload-type=light-gpu --timeout=5m",
    "kubectl fallback status",
    "kubectl fallback report",
    "make down",
)
"""What follows on what ``make up`` says."""
MOST_SECONDS: Final = 600.0
_NEXT: Final = "Type next:"
_LONG: Final = 10.0
"""Seconds from which on it is said how long a command took."""
_HEAD: Final = """\
# A newcomer's first minutes

This page shows what a newcomer types who has only the README, and what was printed.
It leads from a clone to the first report.
The commands after `make up` are those that `make up` suggests.

Made by `python -m hack.newcomer` on {machine}, beside other work.
All of it took {minutes:.1f} minutes; the control plane's programs were built before.

```console
$ git clone https://… kueue-fallback
"""


class NewcomerError(Exception):
    """A command did not end well, or all of them took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    command: str
    output: str
    seconds: float


class Shell:
    """Runs each command where the one before has ended, with what that has exported."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = folder / "exported"

    def run(self, command: str) -> Typed:
        """Type a command and return what it printed.

        Raises:
            NewcomerError: it failed.

        """
        began = time.monotonic()
        before = f". {self._state}; " if self._state.exists() else ""
        # The next command begins where this one ends, with what it exports.
        after = f'code=$?; (export -p; echo cd "$PWD") > {self._state}; exit $code'
        done = subprocess.run(
            ["bash", "-c", f"{before}{command}\n{after}"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NewcomerError(f"$ {command}\n{done.stdout}")
        seconds = time.monotonic() - began
        return Typed(command=command, output=done.stdout.rstrip(), seconds=seconds)


def typed(shell: Shell) -> Iterator[Typed]:
    """Type all commands, one after the other.

    Raises:
        NewcomerError: one of them failed.

    """
    for command in BEFORE:
        yield (up := shell.run(command))
    for command in said_next(up.output):
        yield shell.run(command)
    for command in AFTER:
        yield shell.run(command)


def said_next(output: str) -> list[str]:
    """Return the commands that ``make up`` says come next, but the one that ends the cluster."""
    _, _, said = output.partition(f"{_NEXT}\n")
    lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    return [line for line in lines if not line.startswith("make down")]


def page(all_typed: list[Typed], machine: str) -> str:
    minutes = sum(each.seconds for each in all_typed) / 60
    shown = (_shown(each) for each in all_typed)
    return "".join([_HEAD.format(machine=machine, minutes=minutes), *shown, "```\n"])


def _shown(ran: Typed) -> str:
    took = f"  # {ran.seconds:.0f} s" if ran.seconds >= _LONG else ""
    # A command that was printed was not typed: it stands a little to the right.
    printed = [f"  {line}" if line.startswith("$ ") else line for line in ran.output.splitlines()]
    return "\n".join([f"$ {ran.command}{took}", *printed, ""])


def _machine() -> str:
    text = Path("/proc/cpuinfo").read_text()
    (name, *others) = re.findall(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return f"{1 + len(others)} CPUs ({name})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kueue-fallback-newcomer-") as name:
        folder = Path(name)
        clone = folder / "kueue-fallback"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        all_typed = []
        try:
            for each in typed(Shell(folder)):
                print(f"{each.seconds:5.0f} s  {each.command}", flush=True)
                all_typed.append(each)
        finally:
            subprocess.run(
                ["make", "--silent", "down"], cwd=clone, check=False, capture_output=True
            )
    if (seconds := sum(each.seconds for each in all_typed)) > MOST_SECONDS:
        raise NewcomerError(f"it took {seconds:.0f} s")
    given.output.write_text(page(all_typed, _machine()))


if __name__ == "__main__":
    main()
