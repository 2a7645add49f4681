"""How much is drawn, from which seed: `FUZZ_SEED` and `FUZZ_EXAMPLES`; `make fuzz` gives both."""

from __future__ import annotations

import contextlib
import os
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

SEED: Final = int(os.environ.get("FUZZ_SEED", "1"))
EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", "5"))

T = TypeVar("T")
_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxtuple = 12, 30, 10, 10
_SHORT.maxstring = _SHORT.maxlong = 120
_SHARED: Final = {
    "database": None,
    "deadline": None,
    "print_blob": False,
    # Not explained: that takes minutes for values as large as these.
    "phases": [Phase.generate, Phase.shrink],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def fuzzed(
    strategy: st.SearchStrategy[Any], *, share: float = 1.0
) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Call what takes one value with many, the same for the same seed; *share*: of the examples."""

    def decorate(test: Callable[[Any], None]) -> Callable[[], None]:
        @hypothesis.seed(SEED)
        @settings(max_examples=max(1, round(EXAMPLES * share)), **_SHARED)
        @given(drawn=strategy.map(_Shown))
        def found(drawn: _Shown) -> None:
            try:
                test(drawn.value)
            except Exception as error:
                error.add_note(
                    f"Again: FUZZ_SEED={SEED} FUZZ_EXAMPLES={EXAMPLES} pytest tests/fuzz"
                )
                raise

        return found

    return decorate


class _Shown:
    """A value that is shown cut down, as a failure's long texts tell no more than their begin."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return _SHORT.repr(self.value)


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Draw a list of values, the same for the same seed."""
    found: list[T] = []

    @hypothesis.seed(SEED)
    @settings(**{**_SHARED, "max_examples": count, "phases": [Phase.generate]})
    @given(strategy)
    def take(value: T) -> None:
        found.append(value)

    take()
    return found


class Kept(Generic[T]):
    """One world for many examples; after one that has failed, a new one: it may be broken."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._world = make()

    @contextlib.contextmanager
    def world(self) -> Iterator[T]:
        try:
            yield self._world
        except BaseException:
            self._world = self._make()
            raise
