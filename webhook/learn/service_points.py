"""What services were observed to do, packed: how many requests they answered, and how fast. Pure.

What a replica does is made of that elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

POINT_SECONDS: Final = 900.0
"""Between two points of one service."""
MOST_POINTS: Final = 96
"""Kept of a class in one place: those of a day of one service, with its busy and its idle hours."""
SERVICE_POINT: Final = struct.Struct("<IHHff")
MOST_REPLICAS: Final = 0xFFFF


class ServicePoint(NamedTuple):
    """What one service did at one time; equal values in all fields are the same point."""

    at: int
    """Seconds since 1970."""
    service: int
    """16 bits of a digest of its name."""
    replicas: int
    rate: float
    """Requests a second that all of them answered."""
    latency: float
    """Seconds, as the 95th percentile."""


def pack_points(points: Iterable[ServicePoint]) -> bytes:
    return b"".join(SERVICE_POINT.pack(*point) for point in points)


def unpack_points(packed: bytes) -> tuple[ServicePoint, ...]:
    """Unpack points.

    Raises:
        ValueError: it is not what ``pack_points`` made.

    """
    if len(packed) % SERVICE_POINT.size:
        raise ValueError(f"expected a multiple of {SERVICE_POINT.size} bytes, got {len(packed)}")
    return tuple(map(ServicePoint._make, SERVICE_POINT.iter_unpack(packed)))


def merged_points(one: bytes, other: bytes) -> bytes:
    if one == other:
        return one
    return pack_points(sorted({*unpack_points(one), *unpack_points(other)})[-MOST_POINTS:])
