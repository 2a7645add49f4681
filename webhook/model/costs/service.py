"""How a service does with so many replicas, and who else sets their number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """How a service does with so many replicas."""

    replicas: int
    utilisation: float
    """Rate by what all replicas can answer; at 1 and above, the line grows without end."""
    latency: float
    """Seconds, as the 95th percentile."""
    is_guess: bool = False
    """Whether what a replica does is derived from the devices' data sheets alone."""
    points: int = 0
    """From how many observations what a replica does is learned; 0: the policy says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """The bounds of somebody's HorizontalPodAutoscaler, which owns the replicas of a service."""

    name: str
    least: int
    most: int
