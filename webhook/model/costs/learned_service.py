"""What one replica of a service was learned to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedServing:
    """What one replica of a class of services does in one place, as its metrics say."""

    per_second: float
    """The most requests a second that it can answer; above 0."""
    latency: float
    """Seconds that a request takes that does not wait, as the 95th percentile."""
    points: int
    """From how many observations it is learned."""
