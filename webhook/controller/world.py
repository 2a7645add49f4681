"""What each part of the controller is given at a step, and what the loop has to know of a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from webhook.api.resources import Resource
from webhook.api.watch import WatchUpdate
from webhook.state.feed import Feed
from webhook.state.snapshot import Snapshot

Lines: TypeAlias = Sequence[str]
"""What happened, for the log."""
Take: TypeAlias = Callable[[WatchUpdate], Lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is known of the cluster at one moment."""

    snapshot: Snapshot
    feed: Feed
    now: float
    """On the clock of ``Snapshot.as_of``, which is monotonic."""
    unix: float
    """The same moment in seconds since 1970."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """Kind to the number of objects that cannot be read."""

    def knows_workloads(self, max_state_age: float) -> bool:
        """Return whether Workloads are listed, and all is known as of *max_state_age* ago."""
        return self.feed.lists_workloads and self.now - self.snapshot.as_of <= max_state_age


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of the table of what the controller does in a turn."""

    name: str
    """As metrics and the log name it where it fails, one of ``CONTROLLER_PARTS``."""
    step: Callable[[World], Lines]
    """Do what is due; asks whether we lead right before each write."""
    takes: Mapping[str, Take] = field(default_factory=dict)
    """Kind to what takes its watch updates, of which it needs more than the snapshot has."""
    follows: tuple[Resource, ...] = ()
    """What is watched for it alone, from the beginning."""
    hastened_by: str = ""
    """A kind that is no part of the snapshot, and whose changes are not to wait for a turn."""
    start: Callable[[], None] = lambda: None
    begin: Callable[[], None] = lambda: None
    """Called when a term of leading begins: writes may be due, and others have written."""
    wait: Callable[[], float] = lambda: inf
    """Return the longest time until the next turn, in seconds."""
    follows_workloads: Callable[[Snapshot], bool] = lambda _: False
    """Tell whether Workloads must be known for it."""
    show: Callable[[World], None] = lambda _: None
    """Set metrics that change with time alone; called at a scrape, in another thread."""
