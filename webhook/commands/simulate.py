"""``simulate``: a scenario or a decision log, replayed under several strategies, side by side."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from webhook.commands import history, manifest, terminal
from webhook.commands.kubectl import output_option
from webhook.hindsight.decision_lines import read_decision_lines
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import FallbackPolicy, seconds
from webhook.model.policy.patterns import DURATION
from webhook.simulate import scenario_file, scenario_spec
from webhook.simulate.scenario import Arm, Scenario
from webhook.simulate.scenario_spec import ScenarioError
from webhook.state.snapshot_file import read_objects

if TYPE_CHECKING:
    from webhook.simulate.results import Result


PROGRESS_FROM = 1_000
PLOTS_MISSING = "needs matplotlib: pip install 'kueue-fallback[plots]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options, as they were given."""

    file: str | None
    decisions: str | None
    snapshot: str | None
    policies: tuple[str, ...]
    run_time: str | None
    clusters: tuple[str, ...]
    strategies: tuple[str, ...]
    assignments: tuple[str, ...]
    seed: int
    output: str
    plot: str | None


@click.command("simulate")
@click.option(
    "-f",
    "--filename",
    "file",
    metavar="SCENARIO",
    help="A scenario, or - for stdin.",
)
@click.option("--decisions", metavar="LOG", help="Replay the server's log instead of a scenario.")
@click.option("--snapshot", metavar="FILE", help="With --decisions: a saved state, for its queues.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    help="With --decisions: policies to use instead of the saved ones.",
)
@click.option(
    "--run-time",
    metavar="TIME",
    help="With --decisions: run time for Jobs whose run time is not known otherwise.",
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=FILE",
    help="With --decisions: a worker cluster's saved state; may be repeated.",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="static, Threshold, FinishTime or a policy; may be repeated. Default: all.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the scenario; may be repeated.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@output_option
@click.option("--plot", metavar="FILE", help="Draw timelines into a .png or .svg file.")
def command(**given: Any) -> None:
    """Replay a scenario's Jobs through a model of its queues, once for each strategy.

    Admission's own code decides each Job, on queues that behave as Kueue's do. The same file,
    parameters and seed give the same result.

    A server's log can be replayed, too (--decisions). Its Jobs arrive as they arrived, and run as
    long as the snapshot and its journal say.

    Exit codes: 0 done, 2 a file or a parameter is wrong.

    \b
    Examples:
      kubectl fallback simulate -f examples/scenarios/uniform.yaml
      kubectl fallback simulate -f uniform.yaml --strategy static --strategy light --plot a.svg
      kubectl fallback simulate -f trace.yaml --set slowdown=10 --seed 7 -o json
      kubectl fallback simulate --decisions server.log --snapshot snapshot.json --policy new.yaml
    """
    asked = SimulateOptions(**given)
    try:
        scenario = _replayed(asked)
        _check_plot(asked.plot, scenario)
        for said in scenario.unknown_requesters() if asked.file is not None else ():
            terminal.say(f"warning: {said}", err=True)
        arms = scenario.arms(asked.strategies)
        results = _results(scenario, arms, asked.file or str(asked.decisions))
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)
    _show(scenario, results, output=asked.output, seed=asked.seed)
    if asked.plot is not None:
        _draw(results, asked.plot, scenario.name)


def _replayed(asked: SimulateOptions) -> Scenario:
    """Read what is to be replayed: a scenario, or a log and what belongs to it."""
    if (asked.file is None) == (asked.decisions is None):
        raise FieldError("", "expected one of --filename and --decisions")
    if asked.file is not None:
        if asked.snapshot or asked.policies or asked.run_time or asked.clusters:
            message = "--snapshot, --policy, --run-time and --cluster go with --decisions"
            raise FieldError("", message)
        return _scenario(asked.file, asked.assignments, asked.seed)
    if asked.decisions is None or asked.snapshot is None:
        raise FieldError("--snapshot", "expected with --decisions: the queues are in it")
    past = history.from_file(asked.snapshot)
    world = past.world(past.until, clusters=asked.clusters)
    if world is None:
        raise FieldError(asked.snapshot, "expected queues")
    if asked.policies:
        # They decide in place of the snapshot's.
        world = world.ruled_by(policy for path in asked.policies for policy in _policies(path))
    return read_decision_lines(
        _text(asked.decisions).splitlines(),
        world,
        entries=past.entries,
        run_seconds=None if asked.run_time is None else _seconds(asked.run_time),
        file=asked.decisions,
    )


def _policies(path: str) -> Iterator[FallbackPolicy]:
    for source, place in read_objects(path):
        try:
            yield scenario_file.policy(source, place)
        except ScenarioError as error:
            raise FieldError("", str(error)) from error


def _seconds(written: str) -> float:
    if re.fullmatch(DURATION, written) is None:
        raise FieldError("--run-time", f"expected a duration such as 90s or 1h30m, got {written}")
    return seconds(written)


def _check_plot(path: str | None, scenario: Scenario) -> None:
    """Fail before the replay, not after it, if the picture cannot be written."""
    if path is None:
        return
    from webhook.simulate.plot import FORMATS

    if Path(path).suffix not in FORMATS:
        raise FieldError(
            "--plot", f"expected a file that ends in {' or '.join(FORMATS)}, got {path}"
        )
    if not Path(path).absolute().parent.is_dir():
        raise FieldError("--plot", f"no such folder: {Path(path).parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise FieldError("--plot", PLOTS_MISSING)
    if not scenario.submissions:
        raise FieldError("--plot", "draws Jobs, and the scenario has none")


def _scenario(file: str, assignments: Sequence[str], seed: int) -> Scenario:
    name = "stdin" if file == "-" else file
    folder = Path() if file == "-" else Path(file).parent
    try:
        documents = list(manifest.read_documents(_text(file)))
    except manifest.ManifestError as error:
        raise FieldError(f"{name}:{error.line}" if error.line else name, error.message) from error
    if len(documents) != 1:
        raise FieldError(name, f"expected one document, found {len(documents)}")
    given = scenario_spec.assignments(assignments)
    try:
        return scenario_file.read_scenario(
            documents[0].value,
            read_text=lambda path: _text(str(folder / path)),
            given=given,
            seed=seed,
        )
    except ScenarioError as error:
        raise FieldError("", _located(error.errors, name, documents[0])) from error


def _located(errors: Sequence[FieldError], name: str, document: manifest.ManifestObject) -> str:
    """Return one line for each mistake, with its line in the scenario if it has one."""
    return "\n".join(
        f"{name}:{document.line(error.path)}: {error}"
        if _first(error.path) in document.lines
        else f"{name}: {error}"
        for error in errors
    )


def _first(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0] or "-"


def _text(file: str) -> str:
    try:
        return manifest.read_text(file)
    except manifest.ManifestError as error:
        raise FieldError(file, error.message) from error


def _results(scenario: Scenario, arms: Sequence[Arm], file: str) -> list[Result]:
    """Replay each strategy, and always the static one, to compare each Job with it."""
    from webhook.server.lifecycle import collect_seldom
    from webhook.simulate.comparison import replay_all
    from webhook.simulate.results import compared

    # A replay makes thousands of values in a second, and hardly a cycle among them.
    collect_seldom()
    asked = {arm.name: arm for arm in (*scenario.arms(["static"]), *arms)}
    with _progress(len(asked) * len(scenario.submissions)) as progress:
        try:
            replayed = replay_all(scenario, tuple(asked.values()), progress=progress)
        except FieldError as error:
            raise FieldError(file, str(error)) from error
    return [compared(replayed[arm.name], replayed["static"]) for arm in arms]


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[int], None]]:
    """Show how many Jobs have arrived, on a terminal and if it takes a while."""
    if not sys.stderr.isatty() or count < PROGRESS_FROM:
        yield lambda _: None
        return
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("Replaying", total=count)
        yield lambda number: bar.update(task, completed=number)


def _show(scenario: Scenario, results: Sequence[Result], *, output: str, seed: int) -> None:
    from webhook.simulate import comparison

    if output in ("text", "wide"):
        terminal.tell(comparison.table(scenario, results), output=output)
    else:
        terminal.say(terminal.dump(comparison.to_json(scenario, results, seed=seed), output))


def _draw(results: Sequence[Result], path: str, title: str) -> None:
    from webhook.simulate import plot

    plot.draw(results, path, title=title)
    terminal.say(f"Timelines are drawn in {path}.", err=True)
