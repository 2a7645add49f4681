"""Compare how long Jobs take with a policy and without, in five worlds on the real Kueue.

usage: python -m bench.regret [--worlds NAME,NAME] [--seeds 1,2] [--jobs 120] [--run-time 45]
                             [--reconsider] [--replayed] [--folder FOLDER] [-o json]

Three arms of a world meet the same arrivals at the same time, in queues of their own: in two every
Job stays, in the third the policies decide. Worlds whose Kueue is configured alike run at once. A
class of Jobs is worse off when its mean turnaround is more than 1 % above the mean of the arms in
which all stay, and more than twice the standard error of the Jobs' differences. By how much those
two arms differ is shown beside it. In the first arm a dry run asks before each Job what would be
decided: advice to go is wrong when the Job, which stays, is done sooner than it would have been by
going.
With --replayed, ``simulate`` replays the same arrivals instead, in seconds: many seeds tell what
few cannot, as on a real Kueue even two arms in which all stay differ. Nobody asks for advice then.
With --reconsider, Jobs may also be moved while they wait.
Exits with 1 when a class is worse off, or when more than 2 % of the advice to go is wrong.
"""

import argparse
import copy
import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import report
from bench.experiment import objects, play, rounds
from bench.experiment.arms import Arm, scenario_of
from bench.experiment.course import Course, decided
from bench.plane import installed, say
from hack.api import Object
from hack.controlplane import Options
from hack.plane import NotReadyError, Plane
from webhook.model.job import PRIORITY_LABEL
from webhook.simulate.scenario import STATIC, Scenario
from webhook.simulate.scenario_spec import Scalar
from webhook.state.kueue_config import read_kueue_config
from webhook.state.snapshot import Snapshot, updated

JOBS: Final = 60
RUN_SECONDS: Final = 45.0
GPUS: Final = 4
"""Of each of two teams."""
LOAD: Final = 2.2
"""How much more is asked for than there are GPUs: without a queue nothing is decided."""
MEAN_GPUS: Final = 1.3
GAIN_OF_A_RUN: Final = 0.1
PROBE: Final = "regret-probe"
"""Label of Jobs of which only dry runs are made."""
READY_SECONDS: Final = 60.0
WORSE_AT_MOST: Final = 1.0
WRONG_AT_MOST: Final = 2.0
PATIENCE: Final = 4.0
PATIENCE_SECONDS: Final = 300.0
_NULL: Final = ("stayed", "again")
PLAIN: Final[Object] = {}
FAIR: Final[Object] = {
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A scenario with its parameters, and Kueue's configuration."""

    scenario: str = "shared-gpus"
    given: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    share: float = 0.5
    """The first team's part of all Jobs."""
    kueue: Object = dataclasses.field(default_factory=dict)


WORLDS: Final[Mapping[str, World]] = {
    "priorities": World(),
    "preemption": World(given={"within": "LowerPriority"}),
    "reclaim": World(given={"reclaim": "Any"}, share=0.25),
    "fair": World(given={"reclaim": "Any"}, share=0.25, kueue=FAIR),
    "paper": World(scenario="burst"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many Jobs come to a team's GPUs, and how long they run."""

    jobs: int = JOBS
    run_seconds: float = RUN_SECONDS
    gpus: int = GPUS
    reconsiders: bool = False
    """Whether policies also move Jobs while they wait."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One Job in all arms; seconds from its creation to its end."""

    world: str
    job: str
    priority: str
    stayed: float
    again: float
    """In the second arm in which all stay."""
    decided: float
    is_advised: bool
    """In the first arm, it was advised to go."""
    would_take: float
    """What going would have come to there: its run in that option, and what a Job costs beside."""
    is_gone: bool
    """Where policies enforce, it was sent away."""
    preempted: tuple[int, int, int]
    """How often, in the two arms in which all stay and in the third."""

    @property
    def is_wrong(self) -> bool:
        return self.is_advised and self.stayed < self.would_take

    @property
    def alike(self) -> float:
        """Return what it took where all stay, in the mean of both arms."""
        return (self.stayed + self.again) / 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """What the Jobs of one priority class in one world came to."""

    world: str
    priority: str
    jobs: int
    stayed: float
    """Mean of the two arms in which all stay."""
    decided: float
    worse_percent: float
    noise_percent: float
    """Twice the standard error of the mean difference of Jobs."""
    null_percent: float
    """By how much the second arm in which all stay is above the first."""
    advised: int
    wrong: int
    gone: int
    later: int
    """Of those gone, how many were done sooner where everybody stayed."""
    preempted_stayed: float
    """Preemptions of these Jobs, in the mean of the two arms in which all stay."""
    preempted_decided: int

    @property
    def is_worse(self) -> bool:
        # Two arms alone differ too much by chance to excuse a loss: they are shown beside it.
        return self.worse_percent > max(WORSE_AT_MOST, self.noise_percent)

    @property
    def verdict(self) -> str:
        if self.is_worse:
            return "WORSE"
        return "met" if self.worse_percent <= WORSE_AT_MOST else "noise"


def figures(pairs: Iterable[Pair]) -> list[ClassFigures]:
    """Sum up the pairs of each class of each world, in order of first appearance."""
    classes: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        classes.setdefault((pair.world, pair.priority), []).append(pair)
    return [_figures(own) for own in classes.values()]


def _figures(pairs: Sequence[Pair]) -> ClassFigures:
    first, again = (statistics.mean(getattr(pair, arm) for pair in pairs) for arm in _NULL)
    stayed = (first + again) / 2
    differences = [pair.decided - pair.alike for pair in pairs]
    error = statistics.pstdev(differences) / math.sqrt(max(1, len(pairs) - 1))
    return ClassFigures(
        world=pairs[0].world,
        priority=pairs[0].priority,
        jobs=len(pairs),
        stayed=stayed,
        decided=statistics.mean(pair.decided for pair in pairs),
        worse_percent=100 * statistics.mean(differences) / stayed,
        noise_percent=100 * 2 * error / stayed,
        null_percent=100 * (again - first) / first,
        advised=sum(pair.is_advised for pair in pairs),
        wrong=sum(pair.is_wrong for pair in pairs),
        gone=sum(pair.is_gone for pair in pairs),
        later=sum(pair.is_gone and pair.decided > pair.alike for pair in pairs),
        preempted_stayed=sum(sum(pair.preempted[:2]) for pair in pairs) / 2,
        preempted_decided=sum(pair.preempted[2] for pair in pairs),
    )


def lines(found: Sequence[ClassFigures]) -> list[str]:
    header = (
        *("world", "priority", "jobs", "stay s", "policy s"),
        *("worse %", "noise %", "null %", "verdict"),
        *("advised", "wrong", "gone", "later"),
        *("preempted, stay", "policy"),
    )
    rows = [
        (
            *(row.world, row.priority, row.jobs, row.stayed, row.decided),
            *(row.worse_percent, row.noise_percent, row.null_percent, row.verdict),
            *(row.advised, row.wrong, row.gone, row.later),
            *(row.preempted_stayed, row.preempted_decided),
        )
        for row in found
    ]
    return report.table(header, rows)


def targets(found: Sequence[ClassFigures]) -> list[report.Target]:
    worse = sum(row.is_worse for row in found)
    wrong, advised = (sum(getattr(row, name) for row in found) for name in ("wrong", "advised"))
    share = 100 * wrong / advised if advised else 0.0
    return [
        report.Target(name="classes that are worse off", value=worse, limit=0),
        report.Target(name="advice to go that is wrong, %", value=share, limit=WRONG_AT_MOST),
    ]


def arms_of(name: str, *, reconsiders: bool = False) -> tuple[Arm, Arm, Arm]:
    """Return the two arms of a world in which all stay, and the one in which policies decide."""
    stay, again, policy = (
        Arm(key=f"{name}-{key}", title=f"{name}, {key}", strategy="FinishTime")
        for key in ("stay", "again", "policy")
    )
    return stay, again, dataclasses.replace(policy, reconsiders=reconsiders)


def only_first(policy: Object) -> Object:
    """Let Jobs stay: a policy of one option says how long they take, and nothing else."""
    changed = copy.deepcopy(policy)
    spec = changed["spec"]
    spec["options"] = spec["options"][:1]
    spec["match"]["jobSelector"].setdefault("matchExpressions", []).append(
        {"key": PROBE, "operator": "DoesNotExist"}
    )
    return changed


def for_probes(policy: Object) -> Object:
    """Let the policy decide on dry runs alone."""
    changed = copy.deepcopy(policy)
    changed["metadata"]["name"] += "-probe"
    changed["spec"]["match"]["jobSelector"].setdefault("matchLabels", {})[PROBE] = "true"
    return changed


class Advice:
    """What would be decided on each Job of arms in which all stay."""

    def __init__(self, plane: Plane, arms: Sequence[Arm]) -> None:
        self._plane = plane
        self._keys = {arm.key for arm in arms}
        self.options: dict[tuple[str, str], str] = {}
        """By arm and Job; empty: nothing is decided on it."""

    def ask(self, arm: Arm, job: Object) -> None:
        if arm.key not in self._keys:
            return
        probe = copy.deepcopy(job)
        probe["metadata"]["labels"][PROBE] = "true"
        option, _ = decided(self._plane.client.create(probe, dry_run=True))
        self.options[arm.key, job["metadata"]["name"]] = option


def scenario(name: str, arm: Arm, scale: Scale, seed: int) -> Scenario:
    world = WORLDS[name]
    if world.scenario != "shared-gpus":
        return scenario_of(world.scenario, arm)
    rate = LOAD * 2 * scale.gpus / (MEAN_GPUS * scale.run_seconds)
    given = {
        "run-time": f"{scale.run_seconds}s",
        "minimum-gain": f"{GAIN_OF_A_RUN * scale.run_seconds:.3f}s",
        "gpus": scale.gpus,
        "rate-a": f"{rate * world.share:.4f}/s",
        "rate-b": f"{rate * (1 - world.share):.4f}/s",
        "duration": f"{scale.jobs / rate:.3f}s",
        **world.given,
    }
    return scenario_of(world.scenario, arm, given=given, seed=seed)


def played(
    plane: Plane, names: Sequence[str], scale: Scale, seeds: Sequence[int]
) -> Iterator[Pair]:
    """Run these worlds at once, seed by seed."""
    arms_by_world = {name: arms_of(name, reconsiders=scale.reconsiders) for name in names}
    arms = [arm for own in arms_by_world.values() for arm in own]
    for name in names:
        _set_up(plane, name, scale)
    for seed in seeds:
        say(f"seed {seed}: {', '.join(names)}")
        scenarios = {
            arm.key: (arm, scenario(name, arm, scale, seed))
            for name, own in arms_by_world.items()
            for arm in own
        }
        patience = PATIENCE * max(each.submissions[-1].at for _, each in scenarios.values())
        advice = Advice(plane, [own[0] for own in arms_by_world.values()])
        courses = rounds.Round(plane, scenarios, name=f"s{seed}", before=advice.ask).run(
            timeout_seconds=patience + PATIENCE_SECONDS, say=say
        )
        for name, (stay, again, policy) in arms_by_world.items():
            options = [advice.options[stay.key, course.name] for course in courses[stay.key]]
            stayed = tuple(zip(courses[stay.key], courses[again.key], options, strict=True))
            yield from pairs(name, scenarios[stay.key][1], stayed, courses[policy.key])
        rounds.remove_jobs(plane, arms)


def _set_up(plane: Plane, name: str, scale: Scale) -> None:
    """Apply queues and policies of the arms of a world, and wait until dry runs are decided."""
    stay, again, policy = arms_of(name, reconsiders=scale.reconsiders)
    for arm in (stay, again, policy):
        say(f"queues and policies of {arm.title}")
        given = scenario(name, arm, scale, seed=0)
        own = objects.policies(given, arm, time_scale=1.0)
        as_said = own if arm is policy else [only_first(each) for each in own]
        play.set_up(play.Site(plane), arm, given, 1.0, as_said)
        if arm is stay:
            plane.client.apply_all([for_probes(each) for each in own])
            job = objects.job(given, given.submissions[0], arm, round_name="probe")
            _wait_for_advice(plane, arm, job)


def _wait_for_advice(plane: Plane, arm: Arm, job: Object) -> None:
    advice = Advice(plane, [arm])
    deadline = time.monotonic() + READY_SECONDS
    while not any(advice.options.values()):
        if time.monotonic() > deadline:
            raise NotReadyError(f"nobody decides on dry runs of {arm.title}")
        advice.ask(arm, job)
        time.sleep(1.0)


def pairs(
    world: str,
    given: Scenario,
    stayed: Sequence[tuple[Course, Course, str]],
    went: Sequence[Course],
) -> Iterator[Pair]:
    """Pair what became of each Job in the arms; *stayed* with the option that was advised."""
    costs = [course.overhead_seconds for course in went if course.queue != course.submitted_to]
    cost = statistics.median([seconds for seconds in costs if seconds is not None] or [0.0])
    for submission, (first, again, option), last in zip(
        given.submissions, stayed, went, strict=True
    ):
        labels = given.templates[submission.template]["metadata"]["labels"]
        home = given.policies[0].spec.options[0].name
        is_advised = option not in ("", home)
        yield Pair(
            world=world,
            job=last.name,
            priority=labels.get(PRIORITY_LABEL, "none"),
            stayed=_turnaround(first),
            again=_turnaround(again),
            decided=_turnaround(last),
            is_advised=is_advised,
            would_take=submission.run_seconds[option] + cost if is_advised else 0.0,
            is_gone=last.queue != last.submitted_to,
            preempted=(len(first.lost), len(again.lost), len(last.lost)),
        )


def replayed(names: Sequence[str], scale: Scale, seeds: Sequence[int]) -> Iterator[Pair]:
    """Replay the same arrivals without a control plane, where all stay and as policies decide."""
    for name in names:
        for seed in seeds:
            *_, policy = arms_of(name, reconsiders=scale.reconsiders)
            given = scenario(name, policy, scale, seed)
            given = dataclasses.replace(given, snapshot=_configured(given.snapshot, WORLDS[name]))
            stays = play.replayed(given, STATIC).jobs
            goes = play.replayed(given, policy.strategy, reconsiders=policy.reconsiders).jobs
            for before, after in zip(stays, goes, strict=True):
                stayed, decided = ((job.finish or 0.0) - job.arrival for job in (before, after))
                yield Pair(
                    world=name,
                    job=f"s{seed}-{after.name}",
                    priority=after.priority_class or "none",
                    stayed=stayed,
                    again=stayed,
                    decided=decided,
                    is_advised=False,
                    would_take=0.0,
                    is_gone=after.queue != after.submitted,
                    preempted=(before.preempted, before.preempted, after.preempted),
                )


def _configured(snapshot: Snapshot, world: World) -> Snapshot:
    text = json.dumps({"kind": "Configuration", **world.kueue})
    return updated(snapshot, kueue=read_kueue_config({"metadata": {}, "data": {"config": text}}))


def _turnaround(course: Course) -> float:
    return (course.finished or 0.0) - (course.created or 0.0)


def measured(names: Sequence[str], scale: Scale, seeds: Sequence[int]) -> Iterator[Pair]:
    """Run the worlds; those with the same configuration of Kueue share a control plane."""
    for kueue in (PLAIN, FAIR):
        if alike := [name for name in names if WORLDS[name].kueue == kueue]:
            with installed(Options(kueue_config=kueue)) as installation:
                yield from played(installation.plane, alike, scale, seeds)


def until_interrupted(pairs: Iterable[Pair]) -> tuple[list[Pair], bool]:
    """Return the pairs that come before the program is to end, and whether it is to.

    So hours of plays are kept. With none before it, what ends the program is raised.
    """
    kept: list[Pair] = []
    try:
        for pair in pairs:
            kept.append(pair)  # noqa: PERF402 - what was read before an error is to be kept
    except (KeyboardInterrupt, SystemExit) as end:
        # A control plane that is taken down passes Ctrl-C on as the end of the program.
        if not kept:
            raise
        say(f"{str(end) or 'Interrupted.'} {len(kept)} Jobs of plays that ended are compared.")
        return kept, True
    return kept, False


def main() -> None:
    given = arguments()
    scale = Scale(jobs=given.jobs, run_seconds=given.run_time, reconsiders=given.reconsider)
    compare = replayed if given.replayed else measured
    jobs, is_interrupted = until_interrupted(compare(given.worlds, scale, given.seeds))
    found = figures(jobs)
    # Where nobody asks for advice, none can be wrong.
    wanted = targets(found)[: 1 if given.replayed else None]
    result = {
        "machine": report.machine(),
        "scale": dataclasses.asdict(scale),
        "seeds": given.seeds,
        "isInterrupted": is_interrupted,
        "classes": [dataclasses.asdict(row) for row in found],
        "jobs": [dataclasses.asdict(job) for job in jobs],
    }
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        (given.folder / "regret.json").write_text(json.dumps(result, indent=1))
    if given.output == "json":
        print(json.dumps(result, indent=1))
    else:
        print("\n".join([*lines(found), "", *(target.line() for target in wanted)]))
    sys.exit(0 if all(target.is_met for target in wanted) and not is_interrupted else 1)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make regret", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--worlds", type=_worlds, default=tuple(WORLDS), help="only these, apart by commas"
    )
    parser.add_argument(
        "--seeds", type=_numbers, default=[1], help="as 1,3-5, apart by commas; default 1"
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"of an arm; default {JOBS}")
    parser.add_argument(
        "--run-time", type=float, default=RUN_SECONDS, help=f"seconds; default {RUN_SECONDS:g}"
    )
    parser.add_argument(
        "--reconsider", action="store_true", help="let Jobs be moved while they wait, too"
    )
    parser.add_argument(
        "--replayed", action="store_true", help="without a control plane, by simulate"
    )
    parser.add_argument("--folder", type=Path, help="for regret.json")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args(given)


def _worlds(text: str) -> tuple[str, ...]:
    names = tuple(word for word in text.split(",") if word)
    for name in names:
        if name not in WORLDS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(WORLDS)}")
    return names


def _numbers(text: str) -> list[int]:
    try:
        ends = [tuple(map(int, part.split("-", 1))) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected numbers, got {text}") from error
    return [number for part in ends for number in range(part[0], part[-1] + 1)]


if __name__ == "__main__":
    main()
