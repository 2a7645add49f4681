"""How much longer a run is expected to take where its pods are spread over domains: a guess.

Pods on devices that NVLink joins lose it between Nodes: by published measurements twice and three
times as long on V100s and 1.4 to 1.6 times on P100s where they are not together, and no longer on
slower devices (Gavel, OSDI 2020). Half as long again is the careful end of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from webhook.kueue.topology_placement import SPREAD
from webhook.learn.device_prior import DevicePart, Guess
from webhook.learn.expected_runs import Expecting, estimate, guessed, without_start
from webhook.learn.run_records import at_level
from webhook.model.forecasts import Basis, RunTime
from webhook.model.policy.fallback_policy import Option
from webhook.model.snapshot_parts import KueueSetup

_SPREAD_TIMES: Final = 1.5
_SPREAD_SIGMA: Final = 0.5
"""Of the natural logarithm."""
_NVLINK: Final = "nvlink"
_WHOLE: Final = Guess(1.0, 0.0)


class GangPlace(NamedTuple):
    """Where the pods of a Job would run."""

    flavors: str
    level: str
    """The lowest level of which one domain has all of them, or ``SPREAD``; empty: unknown."""
    part: DevicePart | None
    """What they use of a device; None: none, or it is not known."""

    @property
    def is_spread(self) -> bool:
        return self.level == SPREAD


def as_placed(
    expecting: Expecting,
    runs: Sequence[RunTime | None],
    *,
    places: Sequence[GangPlace],
    setup: KueueSetup,
) -> list[RunTime | None]:
    """Return the runs in a policy's options, guessed where the class has never run so placed.

    As by devices, in all options but the first. A ``slowdown`` of the policy comes before it.
    """
    first, *others = places
    rest = zip(expecting.policy.spec.options[1:], runs[1:], others, strict=True)
    found = [
        _guessed(expecting, option, run, (first, here), setup)
        if run is not None and here.level and option.slowdown is None
        else run
        for option, run, here in rest
    ]
    return [runs[0], *found]


def _guessed(
    expecting: Expecting,
    option: Option,
    run: RunTime,
    places: tuple[GangPlace, GangPlace],
    setup: KueueSetup,
) -> RunTime:
    """Return the run as guessed, where its pods will be otherwise than those it is known from.

    Those are runs on the same flavors, or the first option's, of which something is said or from
    which devices' speeds lead here.
    """
    first, here = places
    if any(_seen(expecting, _levels(here, setup, spread=here.is_spread))):
        return run
    own, there = (run if first.level else None), _loss(first.part, spread=first.is_spread)
    if run.basis is Basis.LEARNED:
        others = _seen(expecting, _levels(here, setup, spread=not here.is_spread))
        most = _most(estimate(expecting, option, other) for other in others)
        own = None if most is None else without_start(expecting, most, here.flavors)
        there = _loss(here.part, spread=not here.is_spread)
    ratio = _loss(here.part, spread=here.is_spread) / there
    return run if own is None or ratio == 1.0 else guessed(own, Guess(ratio, _SPREAD_SIGMA))


def _most(runs: Iterable[RunTime | None]) -> RunTime | None:
    """Return what is learned from the most runs."""
    learned = (run for run in runs if run is not None and run.basis is Basis.LEARNED)
    return max(learned, key=lambda run: run.runs, default=None)


def _loss(part: DevicePart | None, *, spread: bool) -> float:
    """Return how many times as long as in one domain a run takes."""
    return _SPREAD_TIMES if spread and _is_linked(part) else 1.0


def _levels(place: GangPlace, setup: KueueSetup, *, spread: bool) -> Iterator[str]:
    """Yield what runs there are kept by: those that were spread, or those in one domain."""
    if spread:
        yield from at_level(place.flavors, SPREAD)
        return
    for name in place.flavors.split(","):
        flavor = setup.flavors.get(name)
        topology = setup.topologies.get(flavor.topology) if flavor is not None else None
        for level in topology.levels if topology is not None else ():
            yield from at_level(place.flavors, level)


def _seen(expecting: Expecting, places: Iterable[str]) -> Iterator[str]:
    """Yield the places where runs of the class, or of its coarse class, were seen."""
    for place in places:
        if any((key, place) in expecting.run_times for key in expecting.job_class):
            yield place


def _is_linked(part: DevicePart | None) -> bool:
    """Tell whether NVLink joins whole devices; parts of them are not joined."""
    return part is not None and part.loss == _WHOLE and part.device.link.lower() == _NVLINK
