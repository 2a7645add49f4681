"""What a round's Jobs have cost on the control plane, beside what a replay of it costs.

A Job is billed for the quota that its Workload held, from its start to its end, by the prices of
those seconds; a replay begins at the same second with the same prices.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bench.experiment import objects
from bench.experiment.arms import Arm, Beginning, scenario_of
from bench.experiment.course import Course, as_result
from bench.report import Target, table
from hack.paper import KUEUE
from hack.plane import Plane
from webhook.decide.wishes import Wishes, read_wishes
from webhook.simulate.results import JobCost, Result, costed
from webhook.simulate.scenario import Scenario
from webhook.state.workload import read_workload

POINTS_AT_MOST: Final = 5.0
KNOWN_SECONDS: Final = 3.0
"""Until all observers have read a series that was written anew."""

Played = Mapping[str, Sequence[Course]]
Replay = Callable[[Arm, Scenario], Result]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one arm's Jobs came to in one round."""

    arm: str
    measured: JobCost
    replayed: JobCost


def write_series(plane: Plane, name: str, arm: Arm) -> float | None:
    """Let a scenario's prices begin now; return when, in seconds since 1970. None: it has none."""
    if scenario_of(name, arm).prices is None:
        return None
    begin = float(round(time.time()))
    scenario = scenario_of(name, arm, at=Beginning(jobs=begin, prices=begin))
    plane.client.apply_all([dict(item) for item in scenario.objects if item["kind"] == "ConfigMap"])
    time.sleep(KNOWN_SECONDS)
    return begin


def with_quota(plane: Plane, arms: Sequence[Arm], played: Played) -> dict[str, tuple[Course, ...]]:
    """Return the Jobs with the quota that each held, before their Workloads are removed."""
    found = {}
    for arm in arms:
        held = {}
        for source in plane.client.list(KUEUE, "Workload", namespace=objects.namespace_of(arm)):
            workload = read_workload(source)
            held[source["metadata"]["ownerReferences"][0]["name"]] = {
                (flavor.removesuffix(f"-{arm.key}"), resource): amount
                for (flavor, resource), amount in workload.charge
            }
        found[arm.key] = tuple(
            dataclasses.replace(course, held=held.get(course.name, {}))
            for course in played[arm.key]
        )
    return found


def bills(
    name: str,
    arms: Sequence[Arm],
    rounds: Sequence[tuple[Played, Mapping[str, Beginning]]],
    *,
    overhead: float,
    replay: Replay,
) -> list[list[Bill]]:
    """Return the bills of each round of a scenario; none of one without prices."""
    found: list[list[Bill]] = []
    for played, beginnings in rounds:
        if not beginnings:
            continue
        found.append([])
        for arm in arms:
            at = beginnings[arm.key]
            scenario = scenario_of(name, arm, overhead_seconds=overhead, at=at)
            measured = _measured(played[arm.key], scenario)
            replayed = replay(arm, scenario).totals.costs
            if measured is not None and replayed is not None:
                found[-1].append(Bill(arm=arm.key, measured=measured, replayed=replayed))
    return found


def _measured(courses: Sequence[Course], scenario: Scenario) -> JobCost | None:
    if scenario.prices is None:
        return None
    jobs = [as_result(course) for course in courses]
    wishes: dict[str, Wishes] = {}
    for course, submission in zip(courses, scenario.submissions, strict=True):
        metadata: Mapping[str, Any] = scenario.manifest(submission)["metadata"]
        wishes[course.name] = read_wishes(metadata.get("annotations") or {}, 0.0)
    done = costed(jobs, scenario.prices, scenario.policies, wishes)
    return Result(strategy="", jobs=done).totals.costs


def lines(arms: Sequence[Arm], rounds: Sequence[Sequence[Bill]]) -> list[str]:
    """Lay out what each arm has paid, and what it paid less than the first one."""
    titles = {arm.key: arm.title for arm in arms}
    header = ("round", "", "money", "simulated", "saves %", "simulated %", "in all", "simulated")
    rows = []
    for number, of_round in enumerate(rounds, 1):
        first, *_ = of_round
        for bill in of_round:
            of_all = (bill.measured.total or 0.0, bill.replayed.total or 0.0)
            paid = (bill.measured.money or 0.0, bill.replayed.money or 0.0)
            less = (
                ("-", "-") if bill is first else tuple(f"{each:.1f}" for each in saved(bill, first))
            )
            rows.append(
                (
                    number,
                    titles[bill.arm],
                    *(f"{each:.1f}" for each in paid),
                    *less,
                    *(f"{each:.1f}" for each in of_all),
                )
            )
    return table(header, rows)


def saved(bill: Bill, first: Bill) -> tuple[float, float]:
    """Return by how many percent less money an arm took than the first one: measured, simulated."""
    pairs = (
        (bill.measured.money, first.measured.money),
        (bill.replayed.money, first.replayed.money),
    )
    measured, replayed = (100 * (1 - (own or 0.0) / (of or 1.0)) for own, of in pairs)
    return measured, replayed


def targets(rounds: Sequence[Sequence[Bill]]) -> list[Target]:
    """Hold what a replay says of money to what was measured."""
    found = []
    for number, (first, *others) in enumerate(rounds, 1):
        for bill in others:
            measured, replayed = saved(bill, first)
            name = f"round {number}: the money that {bill.arm} saves is off in simulate, points"
            found.append(Target(name=name, value=abs(measured - replayed), limit=POINTS_AT_MOST))
    return found
