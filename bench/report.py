"""Figures as people read them: tables, targets met or missed, and the machine."""

import dataclasses
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.model.tables import aligned

Figures = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    workloads: int = 20_000
    queues: int = 200
    rate: float = 200.0
    seconds: float = 20.0
    rounds: int = 5
    # Of the creates at each point.
    share: float = 1.0


QUICK: Final = Scale(workloads=2_000, queues=20, seconds=5.0, rounds=2, share=0.25)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure and what it must not be above, or below."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        sign, verdict = ">=" if self.at_least else "<=", "met" if self.is_met else "MISSED"
        return f"{self.name:<60}{self.value:9.2f} {sign} {self.limit:g}: {verdict}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Align the first column left and the others right."""
    return aligned([header, *([_text(cell) for cell in row] for row in rows)])


def _text(cell: object) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def spread(values: Sequence[float], *, digits: int = 2) -> str:
    """Spell the median with the range."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def machine() -> Figures:
    """Say where and when: figures of different machines, or hours, are not to be compared."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit.stdout.strip(),
        "cpus": os.cpu_count(),
        "processor": model,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "loadAverage": os.getloadavg()[0],
    }
