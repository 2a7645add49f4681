"""One step of a part of the controller, and what it has counted."""

from collections import Counter
from types import SimpleNamespace

from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.state.snapshot import Snapshot


def at(now=0.0, unix=0.0, *, snapshot=None, feed=None):
    return World(snapshot=snapshot or Snapshot(), feed=feed, now=now, unix=unix)


def values(metrics, name):
    """Return the values of a metric that are not 0, by the label or the labels."""
    found = Counter()
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == f"kueue_fallback_{name}" and sample.value:
                labels = tuple(sample.labels.values())
                found[labels if len(labels) != 1 else labels[0]] = sample.value
    return found


class Metered:
    """A part with metrics of its own, which tell of each step what it has counted."""

    def __init__(self, make, counter):
        """*make* is given the metrics; *counter* is the name of one of them."""
        self.metrics, self._counter = ControllerMetrics(), f"{counter}_total"
        self.part = make(self.metrics)

    def step(self, world):
        before = values(self.metrics, self._counter)
        lines = list(self.part.step(world))
        return SimpleNamespace(lines=lines, counts=values(self.metrics, self._counter) - before)

    def shown(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"kueue_fallback_{name}", labels)
