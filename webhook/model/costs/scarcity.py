"""What is scarce at present: congestion prices as the leading controller publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

LASTS_SECONDS: Final = 900.0
"""Published prices that are older count as 0: nobody leads, or it cannot write."""


class ScarceCell(NamedTuple):
    """One resource of one ResourceFlavor in one tree of cohorts."""

    tree: str
    """As ``kueue.quota.tree_names`` names it."""
    flavor: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CongestionPrices:
    """Money for one unit and hour of what is scarce, beside its rate; what is not there is 0."""

    at: float = 0.0
    """When they were computed, in seconds since 1970."""
    prices: Mapping[ScarceCell, float] = field(default_factory=dict)
    waits: Mapping[ScarceCell, float] = field(default_factory=dict)
    """Seconds that the median request of each was expected to wait then."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Policy to how many times its price of lateness counts; what is not there counts once."""

    def at_moment(self, unix: float) -> CongestionPrices:
        """Return them as they count at *unix*, in seconds since 1970."""
        return self if unix - self.at <= LASTS_SECONDS else NO_CONGESTION


NO_CONGESTION: Final = CongestionPrices()
