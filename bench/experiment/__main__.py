"""Run the paper's experiment on a control plane of its own, every strategy side by side.

usage: python -m bench.experiment [--rounds 5] [--time-scale 1] [--arms KEY,KEY] [--quick]
                                 [--set paper|wrong|moves|report|every]
                                 [--clusters 2] [--folder FOLDER] [-o json]

Each arm has a namespace, queues and a policy of its own, so that all meet the same machine at the
same time. Takes 8 minutes a round in real time. Exits with 1 when a target is missed.
"""

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import report
from bench.experiment import figures, play, remote, reports
from bench.experiment.arms import COMPARISONS, Comparison
from bench.experiment.course import Course, as_result
from bench.experiment.figures import Figures
from bench.experiment.reports import Agreement
from bench.plane import installed, say
from hack.install import Installation
from hack.plane import Plane
from webhook.simulate import plot
from webhook.simulate.results import Result

QUICK_ROUNDS, QUICK_TIME_SCALE, QUICK_ARMS = 1, 4.0, ("static", "threshold")


def main() -> None:
    given = arguments()
    try:
        comparison = COMPARISONS[given.set].only(given.arms)
    except ValueError as error:
        sys.exit(f"--arms: {error}")
    agreements: list[Agreement] = []
    with _installed(given.clusters, comparison) as (installation, worker):
        plane, began = installation.plane, time.time()

        def look(played: Mapping[str, Sequence[Course]]) -> None:
            nonlocal began
            if given.set == "report":
                ago = time.time() - began
                agreements.append(reports.agreement(plane, played, since_seconds=ago))
                began = time.time()

        rounds = play.play(
            play.Site(plane, worker),
            comparison,
            rounds=given.rounds,
            time_scale=given.time_scale,
            audience=play.Audience(say=say, look=look),
        )
    agree = _tell_agreements(agreements)
    sys.exit(0 if _tell(rounds, comparison, given) and agree else 1)


@contextlib.contextmanager
def _installed(
    clusters: int, comparison: Comparison
) -> Iterator[tuple[Installation, Plane | None]]:
    if clusters == 1:
        with installed() as installation:
            yield installation, None
    else:
        with remote.installed(comparison.arms) as found:
            yield found


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make experiment", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=_positive, default=5, help="that count; default 5")
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="divides all times; default 1"
    )
    parser.add_argument("--arms", type=_words, default=(), help="only these, apart by commas")
    parser.add_argument(
        "--quick", action="store_true", help="one round of two arms, four times as fast"
    )
    parser.add_argument(
        "--set", choices=tuple(COMPARISONS), default="paper", help="what is compared"
    )
    parser.add_argument(
        "--clusters", type=int, choices=(1, 2), default=1, help="2: the GPUs are on a worker"
    )
    parser.add_argument("--folder", type=Path, help="for experiment.json and the pictures")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    found = parser.parse_args(given)
    if found.quick:
        found.rounds, found.time_scale = QUICK_ROUNDS, QUICK_TIME_SCALE
        found.arms = found.arms or (QUICK_ARMS if found.set == "paper" else ())
    return found


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of rounds, got {text}")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _tell_agreements(agreements: Sequence[Agreement]) -> bool:
    """Print what reports said beside what was measured, and tell whether they agree."""
    wanted = []
    for each in agreements:
        say(f"report: {dataclasses.asdict(each)}")
        wanted += each.targets()
    for target in wanted:
        say(target.line())
    return all(target.is_met for target in wanted)


def _tell(played_rounds: play.Rounds, comparison: Comparison, given: argparse.Namespace) -> bool:
    """Print the figures, write the files, and tell whether every target is met."""
    measured = {
        scenario: {
            arm.key: [figures.figures(played[arm.key]) for played in rounds]
            for arm in comparison.arms
        }
        for scenario, rounds in played_rounds.items()
    }
    simulated = play.simulated(comparison, measured, time_scale=given.time_scale)
    found = {
        "machine": report.machine(),
        "timeScale": given.time_scale,
        "rounds": {name: figures.as_json(rounds) for name, rounds in measured.items()},
        "simulated": simulated,
    }
    wanted = [
        target
        for name, rounds in measured.items()
        for target in figures.targets(name, rounds, simulated[name], clusters=given.clusters)
    ]
    if given.output == "json":
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(_text(measured, simulated, comparison, given.time_scale)))
        print("\n".join(["", *(target.line() for target in wanted)]))
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        (given.folder / "experiment.json").write_text(json.dumps(found, indent=1))
        _draw(played_rounds, measured, simulated, comparison, given.folder)
    return all(target.is_met for target in wanted)


def _text(
    measured: dict[str, dict[str, list[Figures]]],
    simulated: dict[str, dict[str, float]],
    comparison: Comparison,
    time_scale: float,
) -> list[str]:
    lines = [", ".join(f"{key} {value}" for key, value in report.machine().items())]
    for name, rounds in measured.items():
        lines += ["", f"== {name} ==", *figures.lines(rounds, comparison.arms, simulated[name])]
        lines += ["", *figures.by_template_lines(rounds, comparison.arms)]
        if places := figures.places_lines(rounds, comparison.arms):
            lines += ["", *places]
        lines += ["", _overhead(rounds), *figures.complaints(rounds, time_scale=time_scale)]
    return lines


def _overhead(rounds: dict[str, list[Figures]]) -> str:
    found = figures.overhead_of(each for own in rounds.values() for each in own)
    return (
        f"A Job held its quota {found:.1f} s longer than its pod ran, until the next one had it; "
        "simulate counts the same."
    )


def _draw(
    played_rounds: play.Rounds,
    measured: dict[str, dict[str, list[Figures]]],
    simulated: dict[str, dict[str, float]],
    comparison: Comparison,
    folder: Path,
) -> None:
    try:
        from bench.experiment import picture  # noqa: PLC0415 - matplotlib is an extra

        picture.draw(measured, simulated, comparison.arms, folder / "experiment.png")
        for name, rounds in played_rounds.items():
            results = [
                Result(strategy=arm.title, jobs=tuple(map(as_result, rounds[0][arm.key])))
                for arm in comparison.arms
            ]
            title = f"{name}, the first round"
            plot.draw(results, str(folder / f"timeline-{name}.svg"), title=title)
    except ImportError:
        say("no picture: matplotlib is missing, `pip install kueue-fallback[plots]`")


if __name__ == "__main__":
    main()
