"""Clocks that stand until they are set, and a list of what was told."""

from datetime import UTC, datetime

import pytest

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clocks:
    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds

    def now(self):
        return NOW.timestamp() + self.seconds


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def told():
    return []
