"""Replays of one scenario under several strategies: of a long one each has a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait

from webhook.model.policy.fallback_policy import StrategyType
from webhook.simulate.replay import replay
from webhook.simulate.results import Result
from webhook.simulate.scenario import Arm, Scenario

LONG_FROM = 2_000
"""Jobs. A process takes a tenth of a second to begin, and so many Jobs take half a second."""
_LOOK_SECONDS = 0.2
_TELL_EVERY = 100


def replay_all(
    scenario: Scenario, arms: Sequence[Arm], *, progress: Callable[[int], None] = lambda _: None
) -> Mapping[str, Result]:
    """Replay all *arms*; *progress* is told how many Jobs have come, over all of them.

    What is found does not depend on whether they ran at the same time.

    Raises:
        FieldError: as ``replay`` has it.

    """
    processes = min(len(arms), _processors())
    if processes > 1 and len(scenario.submissions) >= LONG_FROM:
        return _at_once(scenario, arms, progress, processes)
    return _one_by_one(scenario, arms, progress)


def _processors() -> int:
    # Elsewhere a process begins with nothing, and would have to be sent the whole scenario.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _one_by_one(
    scenario: Scenario, arms: Iterable[Arm], progress: Callable[[int], None]
) -> Mapping[str, Result]:
    found: dict[str, Result] = {}

    def tell(come: int) -> None:
        progress(len(found) * len(scenario.submissions) + come)

    for arm in arms:
        found[arm.name] = replay(scenario, arm, progress=tell)
    return found


def _at_once(
    scenario: Scenario,
    arms: Sequence[Arm],
    progress: Callable[[int], None],
    processes: int,
) -> Mapping[str, Result]:
    context = multiprocessing.get_context("fork")
    counts = context.Array("l", len(arms), lock=False)
    # Those that forecast take longest.
    order = sorted(range(len(arms)), key=lambda number: not _forecasts(arms[number]))
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_inherit, initargs=(scenario, arms, counts)
    ) as pool:
        futures = {number: pool.submit(_replay_one, number) for number in order}
        left: set[Future[Result]] = set(futures.values())
        try:
            while left:
                ended, left = wait(left, timeout=_LOOK_SECONDS)
                progress(sum(counts))
                for each in ended:
                    each.result()
        finally:
            # After a failure, what has not begun is not to begin.
            pool.shutdown(wait=False, cancel_futures=True)
    return {arm.name: futures[number].result() for number, arm in enumerate(arms)}


def _forecasts(arm: Arm) -> bool:
    return any(each.spec.strategy.type is StrategyType.FINISH_TIME for each in arm.policies)


_INHERITED: list[tuple[Scenario, Sequence[Arm], MutableSequence[int]]] = []
"""Of a process that was forked: what its parent had, without having been sent."""


def _inherit(scenario: Scenario, arms: Sequence[Arm], counts: MutableSequence[int]) -> None:
    _INHERITED[:] = [(scenario, arms, counts)]


def _replay_one(number: int) -> Result:
    ((scenario, arms, counts),) = _INHERITED

    def tell(come: int) -> None:
        if come % _TELL_EVERY == 0 or come == len(scenario.submissions):
            counts[number] = come

    return replay(scenario, arms[number], progress=tell)
