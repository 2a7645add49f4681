"""What those use who are not held, beside whom held Jobs are planned: by the hour, and at present.

Learned while somebody leads; what it comes to is published, so that the next leader goes on with
it. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import exp
from typing import Final, NamedTuple, TypeAlias

from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import Held

HOURS: Final = 24
QueueCell: TypeAlias = tuple[str, FlavorResource]
"""ClusterQueue, and flavor and resource."""
_HOUR_SECONDS: Final = 3600.0
_LEARNED_AT_ONCE: Final = 0.02
"""Each minute counts so much: an hour of a day weighs about as much as all before it."""
_FADES_SECONDS: Final = 7200.0
"""After so long a third (1/e) is left of what runs now beyond what is usual at that hour."""


class ReleasedJob(NamedTuple):
    """A Job that was held and runs: it is planned for by its own run time."""

    until: float
    """When it is expected to end, in seconds since 1970."""
    queue: str
    usage: Amounts


class OthersUse:
    """What those use who are not held, in each ClusterQueue.

    Until an hour was seen, what is used when the first one is seen stands for it.
    """

    def __init__(self) -> None:
        self.typical: dict[QueueCell, list[float]] = {}
        """By the hour of the day, UTC."""
        self.present: dict[QueueCell, float] = {}
        """When last noted."""
        self.released: list[ReleasedJob] = []

    def note(self, held: Mapping[str, Held], unix: float) -> None:
        """Learn from what is used now in ClusterQueues, without what released Jobs use of it."""
        self.released = [job for job in self.released if job.until > unix]
        ours: Counter[QueueCell] = Counter()
        for job in self.released:
            for cell, amount in job.usage.items():
                ours[job.queue, cell] += amount
        cells = {used for used in self.typical if used[0] in held}
        cells.update((queue, cell) for queue, contents in held.items() for cell in contents.usage)
        hour = _hour(unix)
        for used in cells:
            queue, cell = used
            others = float(max(0, held[queue].usage.get(cell, 0) - ours[used]))
            self.present[used] = others
            hours = self.typical.setdefault(used, [others] * HOURS)
            hours[hour] += _LEARNED_AT_ONCE * (others - hours[hour])

    def expected(self, used: QueueCell, at: float, unix: float) -> float:
        """Return how much others are expected to use at a moment.

        Those who run at *unix*, which is now, end by and by, and the usual ones come: soon the
        present tells most, later what is usual at that hour.
        """
        hours = self.typical.get(used)
        if hours is None:
            return 0.0
        usual, present = hours[_hour(at)], self.present.get(used, 0.0)
        still = exp(-max(0.0, at - unix) / _FADES_SECONDS)
        return max(0.0, usual + (present - hours[_hour(unix)]) * still)


def _hour(unix: float) -> int:
    return int(unix // _HOUR_SECONDS) % HOURS
