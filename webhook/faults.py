"""What may be said of an unexpected error: never its text, which may hold parts of a Job."""

from __future__ import annotations

import traceback

_PLACES = 4


def describe(error: BaseException) -> str:
    """Name an error by its class and by where it came from, the innermost place last."""
    frames = traceback.extract_tb(error.__traceback__)[-_PLACES:]
    places = (f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {' > '.join(places)}"
