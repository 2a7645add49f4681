"""What has been worked out before is recalled, in a memory that is bounded in bytes too.

Kubernetes takes texts of a megabyte where people write a line: a cache that only counts its
entries is filled by one namespace until the process has no memory left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def recalling(*, most: int, longest: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep *most* results; what is asked with more than *longest* characters is kept by nobody."""

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        kept: Callable[..., T] = lru_cache(maxsize=most)(work)

        @wraps(work)
        def recall(*args: P.args, **kwargs: P.kwargs) -> T:
            if _size(args) > longest:
                return work(*args, **kwargs)
            return kept(*args, **kwargs)

        return recall

    return decorate


def _size(values: tuple[Any, ...]) -> int:
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, tuple):
            size += _size(value)
    return size
