"""What has been worked out before is recalled, in a memory that is bounded in bytes too.

Kubernetes takes texts of a megabyte where people write a line: a cache that only counts its
entries is filled by one namespace until the process has no memory left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, Generic, ParamSpec, TypeVar

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


class Memo(Generic[T]):
    """Results by key; when there are too many, all go, and the next ones fill it anew.

    A result takes memory in proportion to the text that it was worked out from, often ten times as
    much, so that text is what is counted: bounding the number alone would let a few hundred Jobs of
    one tenant take tens of megabytes. Threads may share it: at worst work is done twice.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        """Keep *most* results, worked out from at most *most_bytes* bytes together."""
        self._most, self._most_bytes = most, most_bytes
        self._kept: dict[Hashable, T] = {}
        self._bytes = 0

    def recall(self, key: Hashable, size: int, work: Callable[[], T]) -> T:
        """Return the result of *key*, or do *work*; *size*: bytes that it is worked out from."""
        found = self._kept.get(key)
        if found is not None:
            return found
        result = work()
        if size <= self._most_bytes:
            if len(self._kept) >= self._most or self._bytes + size > self._most_bytes:
                self.clear()
            self._kept[key] = result
            self._bytes += size
        return result

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def _size(values: tuple[Any, ...]) -> int:
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, tuple):
            size += _size(value)
    return size
