"""The creates of all contenders as a picture: latency and throughput, with their ranges."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hack.bench.creates import NOTHING, POINTS, POLICY, WEBHOOK, values
from hack.bench.report import Figures

COLOURS: Final = {NOTHING: "#bdc3c7", POLICY: "#e59866", WEBHOOK: "#2b5b84"}
WIDTH: Final = 0.27


def draw(figures: Figures, path: Path) -> None:
    """Write the picture; needs the extra `plots`."""
    import matplotlib as mpl  # noqa: PLC0415 - it is an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    closed = [point.name for point in POINTS if point.at_once]
    every = [point.name for point in POINTS]
    for axis, points, what, title in (
        (axes[0], every, "p50", "p50 of a create, ms"),
        (axes[1], every, "p99", "p99 of a create, ms"),
        (axes[2], closed, "perSecond", "creates a second"),
    ):
        _bars(axis, points, figures, what)
        axis.set_title(title)
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
    axes[0].legend(frameon=False)
    rounds = len(figures["rounds"])
    figure.suptitle(f"Creating Jobs: median of {rounds} interleaved rounds, lines show the range")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axis: Any, points: Sequence[str], figures: Figures, what: str) -> None:
    for shift, (name, colour) in enumerate(COLOURS.items()):
        found = [values(figures, name, point, what) for point in points]
        middle = [statistics.median(each) for each in found]
        below = [m - min(each) for m, each in zip(middle, found, strict=True)]
        above = [max(each) - m for m, each in zip(middle, found, strict=True)]
        places = [n + (shift - 1) * WIDTH for n in range(len(points))]
        axis.bar(places, middle, WIDTH, yerr=(below, above), color=colour, label=name, capsize=2)
    axis.set_xticks(range(len(points)), [point.replace(" ", "\n", 1) for point in points])
    axis.spines[["top", "right"]].set_visible(False)
