"""The makespan of each arm in each scenario as bars, with the range over all rounds."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.experiment.arms import Arm
from bench.experiment.figures import Figures, saved

COLOURS: Final = ("#2b5b84", "#e59866", "#82b366", "#9673a6")
INCHES_PER_ARM: Final = 1.5


def draw(
    scenarios: Mapping[str, Mapping[str, Sequence[Figures]]],
    simulated: Mapping[str, Mapping[str, float]],
    arms: Sequence[Arm],
    path: Path,
) -> None:
    """Write the picture; needs the extra `plots`."""
    import matplotlib as mpl  # noqa: PLC0415 - it is an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axis = plt.subplots(figsize=(2 + INCHES_PER_ARM * len(arms), 5.5), layout="constrained")
    width = 0.8 / len(scenarios)
    for number, (name, rounds) in enumerate(scenarios.items()):
        places = [place + (number + 0.5) * width - 0.4 for place in range(len(arms))]
        _bars(axis, places, [rounds[arm.key] for arm in arms], width, COLOURS[number], name)
        _savings(axis, places, rounds, arms)
        beside = [simulated.get(name, {}).get(arm.key) for arm in arms]
        marks = [(x, y) for x, y in zip(places, beside, strict=True) if y is not None]
        label = None if number else "simulated"
        for x, y in marks:
            axis.scatter([x], [y], marker="D", s=14, color="black", zorder=3, label=label)
            label = None
    axis.set_xticks(range(len(arms)), [arm.title.replace(", ", ",\n") for arm in arms])
    axis.set_ylabel("makespan, seconds")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="best")
    count = len(next(iter(next(iter(scenarios.values())).values())))
    axis.set_title(
        f"Mean of {count} rounds, lines show the range; saved against static", loc="left"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(
    axis: Any,
    places: Sequence[float],
    found: Sequence[Sequence[Figures]],
    width: float,
    colour: str,
    name: str,
) -> None:
    spans = [[each.makespan for each in own] for own in found]
    means = [statistics.mean(each) for each in spans]
    below = [mean - min(each) for mean, each in zip(means, spans, strict=True)]
    above = [max(each) - mean for mean, each in zip(means, spans, strict=True)]
    axis.bar(places, means, width * 0.95, yerr=(below, above), color=colour, capsize=2, label=name)


def _savings(
    axis: Any, places: Sequence[float], rounds: Mapping[str, Sequence[Figures]], arms: Sequence[Arm]
) -> None:
    static = rounds.get("static")
    for place, arm in zip(places, arms, strict=True):
        own = rounds[arm.key]
        if static is None or own is static:
            continue
        text = f"{-statistics.mean(saved(own, static)):+.0f} %"
        axis.annotate(text, (place, 4), ha="center", color="white", fontsize=8)
