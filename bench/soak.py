"""Create Jobs for a long time at a fixed rate; watch the webhook's memory and count errors.

usage: python -m bench.soak [--seconds 3600] [--rate 50] [--keep-every 5] [-o json] [--folder F]

On a control plane of its own. The queues are full, so no Job starts; each is deleted when `KEPT`
others came after it, so the cluster stays the same size. A Job that is kept is written a dozen
times until it is gone, so most creates are dry runs: two cores do not sustain more. Exits with 1
when anything failed or the memory of a process was not flat.
"""

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import full_queues, report
from bench.plane import installed, say
from bench.report import Figures, Target, table
from hack import load, meters
from hack.install import Installation

KEPT: Final = 200
KEEP_EVERY: Final = 5
SAMPLE_SECONDS: Final = 60.0
LEAST_SAMPLES: Final = 6
FLAT: Final = 1.10
"""The last third of the samples against the second: what is filled once is full by then."""
COUNTED: Final = (
    "failures_total",
    "patch_verification_failures_total",
    "decision_log_dropped_total",
)


def main() -> None:
    given = _arguments()
    figures = {"machine": report.machine()}
    with installed() as installation:
        figures |= soak(
            installation, seconds=given.seconds, rate=given.rate, keep_every=given.keep_every
        )
    wanted = targets(figures)
    if given.folder:
        _save(figures, given.folder)
    print(json.dumps(figures, indent=1) if given.output == "json" else _text(figures, wanted))
    sys.exit(0 if all(target.is_met for target in wanted) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rate", type=float, default=50.0, help="creates a second")
    parser.add_argument("--keep-every", type=int, default=KEEP_EVERY, help="1: no dry runs")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--folder", type=Path, help="for soak.json and soak.png")
    return parser.parse_args()


def soak(
    installation: Installation, *, seconds: float, rate: float, keep_every: int = KEEP_EVERY
) -> Figures:
    plane = installation.plane
    full_queues.create(plane)
    metrics = installation.replicas[0].metrics
    counters = {name: meters.Counter(metrics, f"kueue_fallback_{name}") for name in COUNTED}
    starts = meters.Counter(metrics, "kueue_fallback_observer_starts_total")
    every = min(SAMPLE_SECONDS, seconds / LEAST_SAMPLES)
    pace = (f"-rate={rate}", f"-seconds={seconds}", f"-every={every}s")
    flags = (*pace, f"-keep={KEPT}", f"-keep-every={keep_every}")
    samples: list[Figures] = []
    with contextlib.closing(load.jobs_meanwhile(full_queues.api_server(plane), *flags)) as results:
        for result in results:
            samples.append({**result, "memoryMegabytes": _memory(installation)})
            say(_line(samples[-1]))
    return {
        "seconds": seconds,
        "rate": rate,
        "keepEvery": keep_every,
        # What is left for the last line is no whole interval.
        "samples": samples[:-1],
        "rest": samples[-1],
        "counted": {name: counter.grown() for name, counter in counters.items()},
        "observerRestarts": starts.grown(),
        "cpuSeconds": _cpu(installation),
    }


def _pids(installation: Installation) -> list[int]:
    names = ("controller", *(replica.name for replica in installation.replicas))
    return [installation.plane.processes.pid(name) for name in names]


def _memory(installation: Installation) -> dict[str, float]:
    return _by_role(map(meters.memory_megabytes, _pids(installation)))


def _cpu(installation: Installation) -> dict[str, float]:
    return _by_role(map(meters.cpu_seconds, _pids(installation)))


def _by_role(families: Iterator[dict[str, float]]) -> dict[str, float]:
    """Add up the processes of one kind: a server is two, and an observer may be another one."""
    total: dict[str, float] = {}
    for family in families:
        for name, value in family.items():
            role = name.split(" ")[0]
            total[role] = round(total.get(role, 0.0) + value, 1)
    return total


def _line(sample: Figures) -> str:
    memory = ", ".join(f"{role} {value} MB" for role, value in sample["memoryMegabytes"].items())
    errors = sum(sample["errors"].values()) + sum(sample["deleted"]["errors"].values())
    return (
        f"{sample['perSecond']:.0f} creates a second, p99 {sample['latency']['p99']:.0f} ms, "
        f"{sample['deleted']['perSecond']:.0f} deletes a second, {errors} errors; {memory}"
    )


def targets(figures: Figures) -> list[Target]:
    samples = [*figures["samples"], figures["rest"]]
    growth = [
        Target(name=f"memory of the {role}, last third to second", value=found, limit=FLAT)
        for role, found in growths(figures["samples"]).items()
    ]
    return [
        *growth,
        Target(name="creates and deletes that failed", value=_errors(samples), limit=0),
        Target(name="creates without a decision", value=_undecided(samples), limit=0),
        Target(
            name="creates a second",
            value=_rate(samples),
            limit=0.98 * figures["rate"],
            at_least=True,
        ),
        Target(name="restarts of the observer", value=figures["observerRestarts"], limit=0),
        *(Target(name=name, value=value, limit=0) for name, value in figures["counted"].items()),
    ]


def growths(samples: Sequence[Figures]) -> dict[str, float]:
    """Return, by process, the median memory of the last third over that of the second."""
    third = len(samples) // 3
    found = {}
    for role in samples[-1]["memoryMegabytes"]:
        values = [sample["memoryMegabytes"].get(role, 0.0) for sample in samples]
        before, after = values[third : 2 * third], values[-third:]
        found[role] = round(statistics.median(after) / statistics.median(before), 3)
    return found


def _errors(samples: Sequence[Figures]) -> int:
    return sum(
        sum(result["errors"].values())
        for sample in samples
        for result in (sample, sample["deleted"])
    )


def _undecided(samples: Sequence[Figures]) -> int:
    return sum(sample["calls"] - sample["notes"].get("decided", 0) for sample in samples)


def _rate(samples: Sequence[Figures]) -> float:
    calls, seconds = (sum(sample[key] for sample in samples) for key in ("calls", "seconds"))
    return float(round(calls / seconds, 1))


def _text(figures: Figures, wanted: Sequence[Target]) -> str:
    samples = figures["samples"]
    rows = [
        [
            f"{number}",
            *(sample["calls"], sample["latency"]["p50"], sample["latency"]["p99"]),
            *sample["memoryMegabytes"].values(),
        ]
        for number, sample in enumerate(samples, start=1)
    ]
    header = ("interval", "creates", "p50 ms", "p99 ms")
    roles = (f"{role} MB" for role in samples[-1]["memoryMegabytes"])
    lines = [", ".join(f"{key} {value}" for key, value in figures["machine"].items())]
    lines += [*table((*header, *roles), rows), ""]
    return "\n".join([*lines, *(target.line() for target in wanted)])


def _save(figures: Figures, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(figures, indent=1))
    try:
        _draw(figures, folder / "soak.png")
    except ImportError:
        say("no picture: matplotlib is missing, `pip install kueue-fallback[plots]`")


def _draw(figures: Figures, path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - it is an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
    minutes, passed = [], 0.0
    for sample in figures["samples"]:
        passed += sample["seconds"] / 60
        minutes.append(passed)
    for role in figures["samples"][-1]["memoryMegabytes"]:
        values = [sample["memoryMegabytes"].get(role) for sample in figures["samples"]]
        above.plot(minutes, values, label=role)
    for share in ("p50", "p99"):
        below.plot(
            minutes, [sample["latency"][share] for sample in figures["samples"]], label=share
        )
    _label(above, "memory, MB")
    _label(below, "a create, ms")
    below.set_xlabel("minutes")
    figure.suptitle(f"{figures['rate']:.0f} creates a second for {figures['seconds']:.0f} s")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _label(axis: Any, text: str) -> None:
    axis.set_ylabel(text)
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
