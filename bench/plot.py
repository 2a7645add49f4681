"""The creates of all contenders as a picture: latency and throughput, with their ranges."""

import statistics
from pathlib import Path
from typing import Any, Final

from bench.creates import NOTHING, POLICY, WEBHOOK, Rounds, values
from bench.report import Figures

COLOURS: Final = {NOTHING: "#bdc3c7", POLICY: "#e59866", WEBHOOK: "#2b5b84"}
WIDTH: Final = 0.27
TITLES: Final = {
    "p50": "p50 of a create, ms",
    "p99": "p99 of a create, ms",
    "perSecond": "creates a second",
}


def draw(figures: Figures, path: Path) -> None:
    """Write the picture, a row for each kind of create; needs the extra `plots`."""
    import matplotlib as mpl  # noqa: PLC0415 - it is an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    size = (13, 4 * len(figures))
    figure, grid = plt.subplots(len(figures), 3, figsize=size, layout="constrained", squeeze=False)
    for axes, (kind, rounds) in zip(grid, figures.items(), strict=True):
        for axis, (what, title) in zip(axes, TITLES.items(), strict=True):
            _bars(axis, rounds, what)
            axis.set_title(f"{title} ({kind})")
    grid[0][0].legend(frameon=False)
    count = len(next(iter(figures.values())))
    figure.suptitle(f"Creating Jobs: median of {count} interleaved rounds, lines show the range")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axis: Any, rounds: Rounds, what: str) -> None:
    is_latency = what != "perSecond"
    points = [name for name in rounds[0][NOTHING] if is_latency or name.endswith("at once")]
    for shift, (name, colour) in enumerate(COLOURS.items()):
        found = [values(rounds, name, point, what) for point in points]
        middle = [statistics.median(each) for each in found]
        below = [m - min(each) for m, each in zip(middle, found, strict=True)]
        above = [max(each) - m for m, each in zip(middle, found, strict=True)]
        places = [n + (shift - 1) * WIDTH for n in range(len(points))]
        axis.bar(places, middle, WIDTH, yerr=(below, above), color=colour, label=name, capsize=2)
    axis.set_xticks(range(len(points)), [point.replace(" ", "\n", 1) for point in points])
    if is_latency:
        axis.set_yscale("log")
    axis.spines[["top", "right"]].set_visible(False)
