"""What `report` says of a round, beside what was measured in it."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from click.testing import CliRunner

from bench.experiment.course import Course
from bench.report import Target
from hack.plane import Plane
from webhook.commands.report import command

SAVED_OFF_AT_MOST: Final = 10.0
PROMISED_OFF_AT_MOST: Final = 15.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Seconds that Jobs of the enforced arm were done sooner than those of the observed one.

    All of them together, and the last one.
    """

    observed: float
    """All turnarounds of the observed arm, in seconds."""
    measured: float
    saved: float
    promised: float
    measured_makespan: float
    saved_makespan: float
    promised_makespan: float
    off: float | None
    """What the replay of what happened is off by, in percent, as the report says it."""

    def targets(self) -> list[Target]:
        pairs = (
            ("saved", self.saved, self.measured, SAVED_OFF_AT_MOST),
            ("promised", self.promised, self.measured, PROMISED_OFF_AT_MOST),
            ("saved makespan", self.saved_makespan, self.measured_makespan, SAVED_OFF_AT_MOST),
            (
                "promised makespan",
                self.promised_makespan,
                self.measured_makespan,
                PROMISED_OFF_AT_MOST,
            ),
        )
        return [
            Target(name=f"report: {name} is off, %", value=off(said, measured), limit=limit)
            for name, said, measured, limit in pairs
        ]


def off(said: float, measured: float) -> float:
    return 100 * abs(said / measured - 1) if measured else float("inf")


def agreement(
    plane: Plane, played: Mapping[str, Sequence[Course]], *, since_seconds: float
) -> Agreement:
    """Ask for the report of each arm's namespace, and compare."""
    observed, enforced = (_reported(plane, key, since_seconds) for key in ("observe", "enforce"))
    without, with_decisions = played["observe"], played["enforce"]
    return Agreement(
        observed=_turnaround(without),
        measured=_turnaround(without) - _turnaround(with_decisions),
        saved=_saved(enforced),
        promised=_saved(observed),
        measured_makespan=_makespan(without) - _makespan(with_decisions),
        saved_makespan=_between(enforced, "withoutDecisions", "replayed"),
        promised_makespan=_between(observed, "replayed", "withPolicies"),
        off=(enforced["sureness"] or {}).get("turnaroundOffPercent"),
    )


def _reported(plane: Plane, key: str, since_seconds: float) -> dict[str, Any]:
    arguments = ["--since", f"{since_seconds:.0f}s", "-n", f"experiment-{key}", "-o", "json"]
    arguments += ["--kubeconfig", str(plane.kubeconfig)]
    answer = CliRunner().invoke(command, arguments)
    if answer.exit_code:
        raise RuntimeError(f"report ended with {answer.exit_code}: {answer.output}")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def _saved(report: Mapping[str, Any]) -> float:
    return float(sum(row["savedSeconds"] or 0.0 for row in report["rows"]))


def _between(report: Mapping[str, Any], longer: str, shorter: str) -> float:
    spans = report["makespan"]
    return float((spans[longer] or 0.0) - (spans[shorter] or 0.0))


def _turnaround(courses: Iterable[Course]) -> float:
    return sum((each.finished or 0.0) - (each.created or 0.0) for each in courses)


def _makespan(courses: Sequence[Course]) -> float:
    first = min(each.created or 0.0 for each in courses)
    return max(each.finished or 0.0 for each in courses) - first
