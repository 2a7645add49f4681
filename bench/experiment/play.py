"""All rounds of a comparison, on one control plane; and the same through `simulate`."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.experiment import objects, remote, rounds
from bench.experiment.arms import RECONSIDER, Arm, Comparison, scenario_of
from bench.experiment.course import Course
from bench.experiment.figures import Figures, overhead_of
from bench.experiment.rounds import STAGGER_SECONDS, Round, Say, Show
from hack.plane import NotReadyError, Plane
from webhook.learn.estimates import RunTimeLearner
from webhook.model.job import DECISION
from webhook.model.policy.fallback_policy import Reconsider
from webhook.simulate.replay import replay
from webhook.simulate.results import Result
from webhook.simulate.scenario import STATIC, Scenario

READY_SECONDS: Final = 300.0
LEARNING: Final = "learning"
# A round may take so many times what it would without any policy, and some time more.
PATIENCE: Final = 2.0
PATIENCE_SECONDS: Final = 120.0

# For each scenario its rounds, each of which holds every arm's Jobs.
Rounds = dict[str, list[dict[str, tuple[Course, ...]]]]
Look = Callable[[Mapping[str, Sequence[Course]]], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """Where Jobs run: on *plane* itself, those for GPUs on the *worker* if there is one."""

    plane: Plane
    worker: Plane | None = None
    stagger_seconds: float = STAGGER_SECONDS
    """Between the beginnings of two arms, whole: so long a burst of Jobs is created."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who is told what happens."""

    say: Say
    show: Show = lambda _courses, _now: None
    """While a round runs."""
    look: Look = lambda _: None
    """When a round has ended, before its Jobs are removed."""


def play(
    site: Site,
    comparison: Comparison,
    *,
    rounds: int,
    time_scale: float,
    audience: Audience,
) -> Rounds:
    """Run all scenarios with all arms at once, so many times."""
    say = audience.say
    for arm in comparison.arms:
        say(f"queues and policies for {arm.title}")
        set_up(site, arm, scenario_of(comparison.scenarios[0], arm), time_scale)
    player = _Player(site, time_scale, audience)
    learning = [arm for arm in comparison.arms if arm.learns]
    if learning:
        for name in comparison.scenarios:
            player.play(name, learning, LEARNING)
    found: Rounds = {name: [] for name in comparison.scenarios}
    for number in range(1, rounds + 1):
        for name, played in found.items():
            say(f"round {number} of {rounds}: {name}")
            played.append(player.play(name, comparison.arms, f"r{number}"))
    return found


class _Player:
    def __init__(self, site: Site, time_scale: float, audience: Audience) -> None:
        self._audience = audience
        self._plane = site.plane
        self._worker, self._stagger_seconds = site.worker, site.stagger_seconds
        self._time_scale = time_scale

    def play(self, name: str, arms: Sequence[Arm], label: str) -> dict[str, tuple[Course, ...]]:
        scenarios = {
            arm.key: (arm, scenario_of(name, arm).faster(self._time_scale)) for arm in arms
        }
        _, scenario = scenarios[arms[0].key]
        expected = replayed(scenario, STATIC).totals.makespan or 0.0
        a_round = Round(
            self._plane,
            scenarios,
            name=f"{label}-{name}",
            stagger_seconds=self._stagger_seconds,
        )
        played = a_round.run(
            timeout_seconds=PATIENCE * expected + PATIENCE_SECONDS,
            say=self._audience.say,
            show=self._audience.show,
        )
        self._audience.look(played)
        rounds.remove_jobs(self._plane, arms)
        if self._worker is not None:
            remote.wait_until_empty(self._worker)
        return played


def set_up(
    site: Site,
    arm: Arm,
    scenario: Scenario,
    time_scale: float,
    policies: Sequence[objects.Object] | None = None,
) -> None:
    """Apply an arm's queues and policies, and wait until they count; None: the scenario's own."""
    queues = objects.queues(scenario, arm)
    plane = site.plane
    if site.worker is not None:
        site.worker.client.apply_all(remote.at_worker(queues))
        queues = remote.at_manager(queues, arm)
    plane.client.apply_all([*objects.nodes(scenario), *queues])
    if policies is None:
        policies = objects.policies(scenario, arm, time_scale=time_scale)
    plane.client.apply_all(policies)
    names = {item["metadata"]["name"] for item in queues if item["kind"] == "ClusterQueue"}
    deadline = time.monotonic() + READY_SECONDS
    while not (_are_active(plane, names) and _decides(plane, arm, scenario, policies)):
        if time.monotonic() > deadline:
            raise NotReadyError(f"the queues of {arm.key} are not active, or nobody decides there")
        time.sleep(0.2)


def _are_active(plane: Plane, names: set[str]) -> bool:
    active = {
        item["metadata"]["name"]
        for item in plane.client.list("kueue.x-k8s.io/v1beta2", "ClusterQueue")
        for condition in item.get("status", {}).get("conditions") or ()
        if condition["type"] == "Active" and condition["status"] == "True"
    }
    return names <= active


def _decides(
    plane: Plane, arm: Arm, scenario: Scenario, policies: Sequence[objects.Object]
) -> bool:
    """Ask with dry runs whether every policy of the arm is known to the webhook.

    Of one that only observes nothing on a Job tells.
    """
    if arm.mode == "Observe":
        return True
    seen = set()
    first = {each.template: each for each in reversed(scenario.submissions)}
    for submission in first.values():
        job = objects.job(scenario, submission, arm, round_name="probe")
        answer = plane.client.create(job, dry_run=True)
        text = answer["metadata"].get("annotations", {}).get(DECISION)
        decision = {} if text is None else json.loads(text)
        if decision.get("option"):
            seen.add(decision["policy"])
    return seen == {item["metadata"]["name"] for item in policies}


def simulated(
    comparison: Comparison,
    measured: Mapping[str, Mapping[str, Sequence[Figures]]],
    *,
    time_scale: float,
) -> dict[str, dict[str, float]]:
    """Replay each scenario with the overhead that was measured; return makespans by arm."""
    found: dict[str, dict[str, float]] = {}
    for name, by_arm in measured.items():
        overhead = overhead_of(each for own in by_arm.values() for each in own)
        found[name] = {}
        for arm in comparison.arms:
            scenario = scenario_of(name, arm, overhead_seconds=overhead * time_scale)
            strategy = STATIC if arm.mode == "Observe" else arm.strategy
            scenario = scenario.faster(time_scale)
            run_times = RunTimeLearner()
            for each in comparison.scenarios if arm.learns else ():
                before = scenario_of(each, arm, overhead_seconds=overhead * time_scale)
                replayed(before.faster(time_scale), strategy, run_times=run_times)
            result = replayed(scenario, strategy, reconsiders=arm.reconsiders, run_times=run_times)
            found[name][arm.key] = result.totals.makespan or 0.0
    return found


def replayed(
    scenario: Scenario,
    strategy: str,
    *,
    reconsiders: bool = False,
    run_times: RunTimeLearner | None = None,
) -> Result:
    (arm,) = scenario.arms([strategy])
    if reconsiders:
        rules = Reconsider.model_validate(RECONSIDER)
        policies = (
            policy.model_copy(update={"spec": policy.spec.model_copy(update={"reconsider": rules})})
            for policy in arm.policies
        )
        arm = dataclasses.replace(arm, policies=tuple(policies))
    return replay(scenario, arm, run_times=run_times)
