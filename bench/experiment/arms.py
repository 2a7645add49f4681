"""What is compared: scenarios, and ways to decide that run side by side, each on its own queues."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from webhook.commands import manifest
from webhook.simulate.scenario import STATIC, Scenario
from webhook.simulate.scenario_file import read_scenario
from webhook.simulate.scenario_spec import Scalar

SCENARIOS: Final = Path(__file__).resolve().parents[2] / "examples" / "scenarios"
TRUE_SLOWDOWN: Final = 3.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to decide; `key` is part of the names of its objects."""

    key: str
    title: str
    strategy: str
    # What its policies believe of the slowdown on CPUs, relative to the truth.
    wrong: float = 1.0
    # Its classes of Jobs stay the same from round to round, and one round of each scenario comes
    # before the first.
    learns: bool = False
    # Pending Jobs of policies with a choice are looked at again.
    reconsiders: bool = False
    mode: str = "Enforce"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Scenarios on the same queues, and the arms that meet each of them."""

    scenarios: tuple[str, ...]
    arms: tuple[Arm, ...]

    def only(self, keys: tuple[str, ...]) -> "Comparison":
        """Keep some arms; raise ValueError for a key that none has."""
        by_key = {arm.key: arm for arm in self.arms}
        for key in keys:
            if key not in by_key:
                raise ValueError(f"{key} is none of {', '.join(by_key)}")
        return dataclasses.replace(self, arms=tuple(by_key[key] for key in keys or by_key))


NONE: Final = Arm(key="static", title="static", strategy=STATIC)
PAPER: Final = Comparison(
    scenarios=("uniform", "burst"),
    arms=(
        NONE,
        Arm(key="threshold", title="Threshold", strategy="Threshold"),
        Arm(key="priors", title="FinishTime, priors", strategy="FinishTime"),
        Arm(key="learned", title="FinishTime, learned", strategy="FinishTime", learns=True),
    ),
)
# What is believed, and wrong; nothing was learned before.
WRONG: Final = Comparison(
    scenarios=PAPER.scenarios,
    arms=(
        NONE,
        Arm(key="over", title="slowdown x1.5", strategy="FinishTime", wrong=1.5),
        Arm(key="under", title="slowdown /1.5", strategy="FinishTime", wrong=1 / 1.5),
        Arm(key="far-over", title="slowdown x3", strategy="FinishTime", wrong=3.0),
        Arm(key="far-under", title="slowdown /3", strategy="FinishTime", wrong=1 / 3.0),
    ),
)
RECONSIDERED: Final = Arm(
    key="moves",
    title="the same, reconsidered",
    strategy="FinishTime",
    learns=True,
    reconsiders=True,
)
MOVES: Final = Comparison(
    scenarios=PAPER.scenarios,
    arms=(
        NONE,
        Arm(key="learned", title="FinishTime, learned", strategy="FinishTime", learns=True),
        RECONSIDERED,
        Arm(
            key="over-moves",
            title="slowdown x1.5, reconsidered",
            strategy="FinishTime",
            wrong=1.5,
            reconsiders=True,
        ),
    ),
)
# What `report` says of the second is held against what is measured between the two.
REPORT: Final = Comparison(
    scenarios=("burst",),
    arms=(
        Arm(key="observe", title="observed", strategy="FinishTime", mode="Observe"),
        Arm(key="enforce", title="enforced", strategy="FinishTime"),
    ),
)
# All that is promised of the paper's scenarios, at once.
EVERY: Final = Comparison(
    scenarios=PAPER.scenarios, arms=(*PAPER.arms, RECONSIDERED, *WRONG.arms[1:])
)
COMPARISONS: Final[Mapping[str, Comparison]] = {
    "paper": PAPER,
    "wrong": WRONG,
    "moves": MOVES,
    "report": REPORT,
    "every": EVERY,
}
RECONSIDER: Final = {"after": "2s", "minimumGain": {"time": "3s", "percent": 3}, "maxMoves": 2}


def scenario_of(
    name: str,
    arm: Arm,
    *,
    overhead_seconds: float = 0.0,
    given: Mapping[str, Scalar] | None = None,
    seed: int = 0,
) -> Scenario:
    """Read one of the scenarios that ship, as the arm's policies believe it to be.

    *given*: its parameters in place of the experiment's.
    """
    path = SCENARIOS / f"{name}.yaml"
    (document,) = manifest.read_documents(path.read_text())
    if given is None:
        slowdown = round(TRUE_SLOWDOWN * arm.wrong, 3)
        believed: Mapping[str, Scalar] = {
            "slowdown": slowdown,
            "overhead": f"{overhead_seconds:.3f}s",
        }
        known = document.value.get("parameters", {})
        given = {name: value for name, value in believed.items() if name in known}
    return read_scenario(
        document.value,
        read_text=lambda file: (path.parent / file).read_text(),
        given=given,
        seed=seed,
    )
