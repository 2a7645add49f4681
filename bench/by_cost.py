"""What deciding by cost takes beside deciding by finish time: in this process, by turns.

A policy by cost weighs here all that it can: prices by the hour, power and carbon of devices, and
each Job's deadline. Forecasts are the same for both.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import reviews
from bench.report import Figures, Scale, Target, spread
from bench.serving import Say
from hack import bodies
from webhook.commands.deciding import view_of_state
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.snapshot import Snapshot
from webhook.state.snapshot_file import read_state

BY_FINISH, BY_COST = "by finish time", "by cost"
STRATEGIES: Final[Mapping[str, Mapping[str, Any]]] = {
    BY_FINISH: {"type": "FinishTime", "finishTime": {"runTime": "20m"}},
    BY_COST: {
        "type": "Cost",
        "cost": {"runTime": "20m", "timeValue": "0.5", "carbonPrice": "0.1"},
    },
}
MOST: Final = 1.15
"""Times that deciding by finish time takes: what runs differ by on a shared machine."""
_OURS: Final = "kueue-fallback.dev/v1alpha1"
_PRICES: Final = (
    {
        "apiVersion": _OURS,
        "kind": "Tariff",
        "metadata": {"name": "bench"},
        "spec": {
            "timeZone": "Europe/Berlin",
            "rates": [
                {"flavors": ["gpu"], "resources": {"nvidia.com/gpu": "2", "cpu": "0.04"}},
                {"flavors": ["gpu"], "hours": "20:00-06:00", "resources": {"nvidia.com/gpu": "1"}},
                {"flavors": ["cpu"], "resources": {"cpu": "0.04", "memory": "0.004"}},
            ],
            "electricity": [{"price": "0.24"}, {"hours": "22:00-06:00", "price": "0.19"}],
            "carbon": [{"intensity": "380"}, {"days": ["Sat", "Sun"], "intensity": "300"}],
        },
    },
    {
        "apiVersion": _OURS,
        "kind": "AcceleratorProfile",
        "metadata": {"name": "bench"},
        "spec": {"like": "NVIDIA-L40S", "flavors": ["gpu"]},
    },
)


PARTS: Final = ("p50", "p99")


def measure(scale: Scale, say: Say) -> Figures:
    say(f"{reviews.IN_PROCESS} reviews, {scale.rounds} times by finish time and by cost, by turns")
    texts = _texts()
    states = {name: deciding(strategy) for name, strategy in STRATEGIES.items()}
    found: dict[str, list[float]] = {f"{name}, {part}": [] for part in PARTS for name in states}
    for _ in range(scale.rounds):
        for name, snapshot in states.items():
            taken = reviews.in_process(snapshot, texts)
            for part in PARTS:
                found[f"{name}, {part}"].append(taken[part])
    return {**found}


def deciding(strategy: Mapping[str, Any]) -> Snapshot:
    """Return the saved state as of now, with prices and forecasts for a policy of a strategy."""
    items = json.loads(reviews.SAVED.read_text())["items"]
    policy = next(item for item in items if item["kind"] == "FallbackPolicy")
    policy["spec"]["strategy"] = strategy
    policy["spec"]["options"][1]["slowdown"] = 3.5
    with tempfile.TemporaryDirectory(prefix="kueue-fallback-") as folder:
        path = Path(folder) / "snapshot.json"
        path.write_text(json.dumps({"kind": "List", "items": [*items, *_PRICES]}))
        view = view_of_state(read_state(str(path)), time.time())
    return OccupancyOfSnapshots()(view.snapshot)


def _texts() -> Sequence[str]:
    texts = []
    for number in range(reviews.IN_PROCESS + reviews.WARM_UP):
        review = json.loads(bodies.review(reviews.RESEARCH, f"{number:012d}", is_dry_run=True))
        job = review["request"]["object"]
        job["metadata"]["annotations"] = {"kueue-fallback.dev/deadline": "8h"}
        texts.append(json.dumps(review))
    return texts


def times(figures: Figures, part: str) -> list[float]:
    """Return how many times as long a review by cost takes, round by round."""
    pairs = zip(figures[f"{BY_COST}, {part}"], figures[f"{BY_FINISH}, {part}"], strict=True)
    return [by_cost / by_finish for by_cost, by_finish in pairs]


def targets(figures: Figures) -> list[Target]:
    value = statistics.median(times(figures, "p99"))
    return [
        Target(name="p99 of a review by cost, times that by finish time", value=value, limit=MOST)
    ]


def lines(figures: Figures) -> Sequence[str]:
    shown = {**figures, **{f"times as long, {part}": times(figures, part) for part in PARTS}}
    return [f"{name:<22}{spread(values, digits=3)}" for name, values in shown.items()]
