"""The run time and the delays to expect of a Job in an option, and what the expectation rests on.

The annotation of the Job's owner comes first, scaled to other options by learned ratios or the
policy's slowdown; then runs of the class, of its coarse class, of the first option slowed down, the
policy's run time, the first option's by the speed of devices where costs decide, and last a few
runs of other classes. Otherwise it is unknown: nothing is made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import hypot, inf
from typing import Final, NamedTuple, TypeAlias

from webhook.kueue import multikueue
from webhook.kueue.topology_placement import SPREAD
from webhook.learn.device_runs import DevicePart, Guess
from webhook.learn.estimates import PRIOR_SIGMA
from webhook.learn.run_records import at_level, split_place
from webhook.model.forecasts import (
    ENOUGH_RUNS,
    SIGMAS_OF_A_SIDE,
    Basis,
    Delay,
    Dispatch,
    Estimates,
    Forecast,
    JobClass,
    OfSaid,
    RunTime,
    Start,
)
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, seconds
from webhook.model.queues import AdmissionCheck, ClusterQueue
from webhook.model.snapshot_parts import KueueSetup
from webhook.model.words import span

MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
"""The label by which Kueue ends a Workload that has run for so long."""
_LONGEST_LIMIT = 9
"""Digits of a time limit in seconds; nine are thirty years."""
_TELLING_SECONDS = 5.0
"""Least rest of a run after its start delay is subtracted: Kueue's times are whole seconds, and
pods that have ended count as ready."""
_COARSE_SIGMA = 0.5
"""Least spread between the classes of one coarse class: the numbers in their commands differ."""
_SAID_SIGMA = 0.4
"""Spread of a run time that a Job's owner or a policy states."""
_SLOWDOWN_SIGMA = 0.3
"""Spread of a slowdown that a policy states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expecting:
    """One Job, as far as its run time is concerned."""

    run_times: Estimates
    job_class: JobClass
    policy: FallbackPolicy
    first_flavors: str = ""
    """Flavors that it would get in the first option; empty: not known."""
    said: float | None = None
    """The Job's annotation ``run-time``, in seconds."""
    start_delays: Estimates = field(default_factory=dict)
    """Start delays by class and flavors; they are not scaled by a slowdown."""
    slowdowns: tuple[tuple[str, float], ...] = ()
    """Flavors that it would get in other options, each with what the policy says of that one."""
    prior: Guess | None = None
    """How much longer it runs in the option than in the first, by their devices; None: unknown."""


def estimate(expecting: Expecting, option: Option, flavors: str) -> RunTime | None:
    """Return the expected run time under *option*, on *flavors*; None: nothing is known."""
    if expecting.said is not None:
        return _of_owner(expecting, expecting.said, option, flavors)
    learned = _on(expecting, flavors)
    if learned is not None and not _is_hearsay(expecting, flavors, learned):
        return learned
    return _believed(expecting, option) or _by_devices(expecting) or learned


def _of_owner(expecting: Expecting, said: float, option: Option, flavors: str) -> RunTime | None:
    """Return the annotated run time, scaled from the first option to this one."""
    first = _around(said, _SAID_SIGMA, Basis.ANNOTATION)
    if option.name == expecting.policy.spec.options[0].name:
        return first
    observed = _of_said(expecting, flavors)
    told = first if observed is not None else _times(first, _as_wrong(expecting))
    believed = (
        _scaled(expecting, first, flavors)
        or _by_slowdown(expecting, told, option)
        or (guessed(told, expecting.prior) if expecting.prior is not None else None)
    )
    return believed if observed is None else _observed(expecting, said, believed, observed)


def _of_said(expecting: Expecting, flavors: str) -> OfSaid | None:
    learned = expecting.run_times.get((expecting.job_class.key, flavors))
    return learned.of_said if learned is not None else None


def _observed(
    expecting: Expecting, said: float, believed: RunTime | None, observed: OfSaid
) -> RunTime:
    """Return a run that is as much longer than said as runs of its class were on these flavors.

    Until enough were observed, what is believed counts beside them.
    """
    factor, weight = observed.middle - _bias(expecting), 1.0
    if believed is not None and observed.runs < ENOUGH_RUNS:
        before = math.log(believed.seconds / said)
        weight = _weight(observed, factor - before, _sigma(believed) ** 2 - _SAID_SIGMA**2)
        factor = before + weight * (factor - before)
    sigma = observed.sigma * math.sqrt(1 + weight / observed.runs)
    run = _around(said * math.exp(factor), sigma, Basis.ANNOTATION)
    return replace(run, runs=max(1, round(observed.runs)))


def _bias(expecting: Expecting) -> float:
    """Return by how much owners are off in the first option itself, as a logarithm."""
    of_first = _of_said(expecting, expecting.first_flavors)
    return of_first.middle * _weight(of_first, of_first.middle, 0.0) if of_first else 0.0


def _weight(observed: OfSaid, gap: float, variance: float) -> float:
    """Return how much runs count against a belief from which they differ by *gap*.

    The further they are from it, the larger its own *variance* must be than it was taken to be.
    """
    noise = observed.sigma**2 / observed.runs
    own = max(variance, gap**2 - noise, 0.0)
    return own / (own + noise)


def _as_wrong(expecting: Expecting) -> float:
    """Return how many times as long as believed a run takes where none of its class has ended.

    It is half as far off as the slowdowns of other options were, which runs there have shown: what
    is wrong may be with the first option, from which all count, or with those options alone.
    """
    offs = [
        observed.middle - _bias(expecting) - math.log(slowdown)
        for flavors, slowdown in expecting.slowdowns
        if (observed := _of_said(expecting, flavors)) is not None
    ]
    return math.exp(sum(offs) / len(offs) / 2) if offs else 1.0


def _by_devices(expecting: Expecting) -> RunTime | None:
    """Return the run in the first option, as much longer as its device is faster than this one."""
    learned = _on(expecting, expecting.first_flavors)
    if learned is None or _is_hearsay(expecting, expecting.first_flavors, learned):
        first = _said(expecting)
    else:
        first = without_start(expecting, learned, expecting.first_flavors)
    prior = expecting.prior
    return None if first is None or prior is None else guessed(first, prior)


def guessed(first: RunTime, prior: Guess) -> RunTime:
    """Return a run that is as much longer than *first* as is guessed."""
    scaled = _widened(_times(first, prior.ratio), prior.sigma)
    return replace(scaled, basis=Basis.PROFILE, runs=0)


def _by_slowdown(expecting: Expecting, first: RunTime, option: Option) -> RunTime | None:
    slowdown = slowdown_of(expecting.policy, option)
    return None if slowdown is None else _slowed(first, slowdown)


def _scaled(expecting: Expecting, first: RunTime, flavors: str) -> RunTime | None:
    """Scale a run in the first option by the ratio of learned runs; None: too few of either."""
    here, there = _on(expecting, flavors), _on(expecting, expecting.first_flavors)
    if here is None or there is None or min(here.runs, there.runs) < ENOUGH_RUNS:
        return None
    if flavors == expecting.first_flavors:
        return first
    own, firsts = (
        without_start(expecting, here, flavors),
        without_start(expecting, there, expecting.first_flavors),
    )
    if (own is here) is not (firsts is there):
        own, firsts = here, there
    sigma = PRIOR_SIGMA * math.sqrt(1 / here.runs + 1 / there.runs)
    scaled = _widened(_times(first, own.seconds / firsts.seconds), sigma)
    return replace(scaled, runs=min(here.runs, there.runs))


def _believed(expecting: Expecting, option: Option) -> RunTime | None:
    """Return the run in the first option, slowed down: as learned there, or as the policy says."""
    slowdown = slowdown_of(expecting.policy, option)
    if slowdown is None:
        return None
    is_first = option.name == expecting.policy.spec.options[0].name
    learned, said = _on(expecting, expecting.first_flavors), _said(expecting)
    if is_first or learned is None:
        return said if said is None or is_first else _slowed(said, slowdown)
    if said is not None and _is_hearsay(expecting, expecting.first_flavors, learned):
        return _slowed(said, slowdown)
    own = without_start(expecting, learned, expecting.first_flavors)
    return replace(_slowed(own, slowdown), basis=Basis.SLOWDOWN)


def _is_hearsay(expecting: Expecting, flavors: str, learned: RunTime) -> bool:
    """Return whether it rests on only a few runs of other classes."""
    own = (expecting.job_class.key, flavors) in expecting.run_times
    return not own and learned.runs < ENOUGH_RUNS


def within_limits(job: Job) -> RunTime | None:
    """Return a run of unknown length that a limit ends; None: there is no limit.

    Any length up to the limit is equally likely; the range holds the middle 80 %.
    """
    limit = min((seconds for _, seconds in limits_of(job)), default=0)
    if not limit:
        return None
    return RunTime(seconds=limit / 2, low=limit / 10, high=limit * 9 / 10, basis=Basis.POLICY)


def limits_of(job: Job) -> Iterator[tuple[str, int]]:
    """Yield what ends a run of the Job: its name, and after how many seconds."""
    if job.active_deadline_seconds is not None:
        yield "activeDeadlineSeconds", job.active_deadline_seconds
    written = job.labels.get(MAX_EXECUTION, "")
    if written.isascii() and written.isdigit() and len(written) <= _LONGEST_LIMIT:
        yield f"its label {MAX_EXECUTION}", int(written)


def slowdown_of(policy: FallbackPolicy, option: Option) -> float | None:
    """Return an option's slowdown: 1 for the first option, None if the policy gives none."""
    return 1.0 if option.name == policy.spec.options[0].name else option.slowdown


def without_start(expecting: Expecting, learned: RunTime, flavors: str) -> RunTime:
    """Subtract the time until the class's pods are ready on *flavors*.

    A run that is short beside that is used whole, as the rest would say little.
    """
    delay = expecting.start_delays.get((expecting.job_class.key, flavors))
    if delay is None or delay.runs < ENOUGH_RUNS:
        return learned
    left = learned.seconds - delay.seconds
    return _times(learned, left / learned.seconds) if left >= _TELLING_SECONDS else learned


def _said(expecting: Expecting) -> RunTime | None:
    run_time = expecting.policy.spec.strategy.run_time
    return None if run_time is None else _around(seconds(run_time), _SAID_SIGMA, Basis.POLICY)


def _on(expecting: Expecting, flavors: str) -> RunTime | None:
    """Return what is learned on given flavors, from the class or by way of its coarse class."""
    run_times, job_class = expecting.run_times, expecting.job_class
    exact = run_times.get((job_class.key, flavors))
    if exact is not None and exact.runs >= ENOUGH_RUNS:
        return exact
    coarse = _coarse(expecting, flavors)
    if coarse is None or exact is None:
        return exact or coarse
    return exact if coarse.runs <= exact.runs else _together(exact, coarse)


def _coarse(expecting: Expecting, flavors: str) -> RunTime | None:
    """Return the coarse class's runs, scaled by how the class's own differ in the first option."""
    run_times, (key, coarse) = expecting.run_times, expecting.job_class
    learned = run_times.get((coarse, flavors))
    if learned is None:
        return None
    wide = _widened(learned, _COARSE_SIGMA)
    own = run_times.get((key, expecting.first_flavors))
    pooled = run_times.get((coarse, expecting.first_flavors))
    if flavors == expecting.first_flavors or own is None or pooled is None:
        return wide
    return _times(wide, own.seconds / pooled.seconds)


def _together(exact: RunTime, coarse: RunTime) -> RunTime:
    """Weigh a few runs of the class against its coarse class by their uncertainties.

    Both as normal distributions of logarithms: the prior's variance against that of a mean.
    """
    prior, noise = _sigma(coarse) ** 2, PRIOR_SIGMA**2
    weight = exact.runs * prior / (exact.runs * prior + noise)
    middle = weight * math.log(exact.seconds) + (1 - weight) * math.log(coarse.seconds)
    sigma = math.sqrt(noise + prior * noise / (exact.runs * prior + noise))
    return replace(_around(math.exp(middle), sigma, Basis.LEARNED), runs=exact.runs)


def _slowed(first: RunTime, slowdown: float) -> RunTime:
    return _widened(_times(first, slowdown), _SLOWDOWN_SIGMA)


def _times(run_time: RunTime, factor: float) -> RunTime:
    return replace(
        run_time,
        seconds=run_time.seconds * factor,
        low=run_time.low * factor,
        high=run_time.high * factor,
    )


def _around(middle: float, sigma: float, basis: Basis) -> RunTime:
    factor = math.exp(SIGMAS_OF_A_SIDE * sigma)
    return RunTime(seconds=middle, low=middle / factor, high=middle * factor, basis=basis)


def _widened(run_time: RunTime, sigma: float) -> RunTime:
    """Add an uncertainty that is independent of the range's own."""

    def further(bound: float) -> float:
        return math.exp(math.hypot(math.log(bound / run_time.seconds), SIGMAS_OF_A_SIDE * sigma))

    return replace(
        run_time,
        low=run_time.seconds / further(run_time.low),
        high=run_time.seconds * further(run_time.high),
    )


def _sigma(run_time: RunTime) -> float:
    return math.log(run_time.high / run_time.low) / (2 * SIGMAS_OF_A_SIDE)


_Ranged: TypeAlias = Start | Delay | RunTime
_OF_ALL = ""
_UNSURE = math.exp(SIGMAS_OF_A_SIDE * PRIOR_SIGMA)
"""Factor on a wait so far to the end of its range."""


def dispatch(recent: Dispatch | None, now: float) -> Delay | None:
    """Return how long AdmissionChecks take; None: none has passed or waited for them yet.

    A Workload that waits at *now*, on the clock of ``Snapshot.as_of``, is not dispatched yet: the
    expectation is at least its wait.
    """
    if recent is None:
        return None
    waited = 0.0 if recent.waiting_since is None else max(0.0, now - recent.waiting_since)
    known = recent.learned
    if known is None:
        by = f"one has waited {span(waited)} to be dispatched"
        return Delay(seconds=waited, low=waited, high=waited * _UNSURE, by=by)
    by = f"dispatched in {span(known.seconds)}, from {known.runs} of late"
    if waited <= known.seconds:
        return Delay(seconds=known.seconds, low=known.low, high=known.high, by=by)
    high = max(known.high, waited * _UNSURE)
    by = f"{by}, but one has waited {span(waited)}"
    return Delay(seconds=waited, low=max(known.low, waited), high=high, by=by)


def transfer(recent: Dispatch | None, option: Option) -> Delay | None:
    """Return how long it takes to reach a worker cluster whose own queue is known; None: unknown.

    At most the option's ``startDelay``: a dispatch lasts until the worker has quota, so after a
    burst even the shortest recent one contains a wait there.
    """
    if recent is None or recent.learned is None:
        return None
    least = min(float(recent.least), seconds(option.start_delay))
    if least <= 0.0:
        return None
    by = f"dispatched in {span(least)} at best"
    return Delay(seconds=least, low=least, high=least, by=by)


def later(start: Start, lasts: Delay | RunTime | None) -> Start:
    """Return the end of something that begins at *start*; None: it takes no time.

    Start and duration vary independently.
    """
    if lasts is None or start.seconds == inf:
        return start
    middle, low, high = _added(start, lasts)
    # Not by replace(), which is slow: this runs in reviews.
    return Start(
        seconds=middle,
        low=low,
        high=high,
        uncertain=start.uncertain,
        unseen=start.unseen,
        unordered=start.unordered,
        is_next=start.is_next,
        preempts=start.preempts,
        preempts_later=start.preempts_later,
        preempted_by=start.preempted_by,
    )


def start_up(starts: Estimates, job_class: JobClass, flavors: str) -> Delay | None:
    """Return how long pods take to be ready: of the class, or of all.

    None: too few were observed.
    """
    for key in (job_class.key, job_class.coarse, _OF_ALL):
        observed = starts.get((key, flavors))
        if observed is not None and observed.runs >= ENOUGH_RUNS:
            by = f"pods ready in {span(observed.seconds)}, from {observed.runs} of late"
            return Delay(seconds=observed.seconds, low=observed.low, high=observed.high, by=by)
    return None


def before_run(
    option: Option, run: RunTime | None, *, on_way: Delay | None, started: Delay | None
) -> Delay | None:
    """Return the delay before the run, besides AdmissionChecks or the way to a cluster; None: none.

    The option's ``startDelay`` is that and *on_way* together, until either is learned.
    """
    if run is not None and run.basis is Basis.LEARNED:
        return None
    if started is not None:
        return started
    said = seconds(option.start_delay) - (on_way.seconds if on_way is not None else 0.0)
    if said <= 0.0:
        return None
    return Delay(seconds=said, low=said, high=said, by=f"{span(said)} by the policy's startDelay")


def added(one: Delay | None, other: Delay | None) -> Delay | None:
    if one is None or other is None:
        return one or other
    middle, low, high = _added(one, other)
    return Delay(seconds=middle, low=low, high=high, by=f"{one.by}; {other.by}")


def lasting(forecast: Forecast | None) -> RunTime | None:
    """Return how long quota is held: the run, and all delays before it; None: unknown."""
    if forecast is None or forecast.run is None:
        return None
    return after(added(forecast.dispatch, forecast.delay), forecast.run)


def time_in_quota(expecting: Expecting, option: Option, flavors: str) -> RunTime | None:
    """Return how long quota is held on *flavors*, where no AdmissionCheck is waited for."""
    run = estimate(expecting, option, flavors)
    started = start_up(expecting.start_delays, expecting.job_class, flavors)
    before = before_run(option, run, on_way=None, started=started)
    return run if run is None else after(before, run)


def after(before: Delay | None, run: RunTime) -> RunTime:
    if before is None:
        return run
    middle, low, high = _added(before, run)
    return replace(run, seconds=middle, low=low, high=high)


def _added(one: _Ranged, other: _Ranged) -> tuple[float, float, float]:
    """Add middles and ranges of what varies independently."""
    middle = one.seconds + other.seconds
    earlier = hypot(one.seconds - one.low, other.seconds - other.low)
    after = hypot(one.high - one.seconds, other.high - other.seconds)
    return middle, max(0.0, middle - earlier), middle + after


NOTHING_LENT: Final[Mapping[str, RunTime]] = {}


def lent(
    recorded: Estimates,
    names: Iterable[str],
    cluster_queues: Mapping[str, ClusterQueue],
    checks: Mapping[str, AdmissionCheck],
) -> Mapping[str, Mapping[str, RunTime]]:
    """Return what the manager's records say of each worker cluster's runs: cluster, then class.

    *names* are the worker clusters, *recorded* the manager's estimates. Only the flavors that lead
    to worker clusters count. Where a cluster's own runs are few, those in all clusters together are
    taken if they are more; but not how warm they were, as their data is in other clusters.
    """
    behind = multikueue.flavors_behind(KueueSetup(cluster_queues=cluster_queues, checks=checks))
    by_cluster: dict[str, dict[str, RunTime]] = {"": {}, **{name: {} for name in names}}
    for (job_class, place), run_time in recorded.items():
        flavors, cluster = split_place(place)
        known = by_cluster.get(cluster)
        if known is not None and behind.issuperset(flavors.split(",")):
            known[job_class] = _surer(known.get(job_class), run_time)
    anywhere = {key: replace(run_time, warm=0.0) for key, run_time in by_cluster.pop("").items()}
    return {
        name: {**anywhere, **{key: _own(own, anywhere.get(key)) for key, own in known.items()}}
        for name, known in by_cluster.items()
    }


def together(
    lent_here: Mapping[str, RunTime], own: Estimates, cluster_queues: Mapping[str, ClusterQueue]
) -> Estimates:
    """Fill a cluster's own estimates, where runs are few, with those of the manager's records."""
    groups = chain.from_iterable(queue.groups for queue in cluster_queues.values())
    flavors = {flavor for group in groups for flavor in group.flavors}
    borrowed = {
        (name, flavor): run_time for name, run_time in lent_here.items() for flavor in flavors
    }
    return {
        **borrowed,
        **{place: _own(run_time, borrowed.get(place)) for place, run_time in own.items()},
    }


def _own(own: RunTime, other: RunTime | None) -> RunTime:
    """Return the nearer estimate, unless it rests on a few runs and the other on more."""
    if other is None or own.runs >= ENOUGH_RUNS:
        return own
    return replace(_surer(own, other), warm=max(own.warm, other.warm))


def _surer(one: RunTime | None, other: RunTime) -> RunTime:
    return other if one is None or one.runs < other.runs else one


_SPREAD_TIMES: Final = 1.5
"""How much longer a run takes where its pods are spread over domains: a guess.

Pods on devices that NVLink joins lose it between Nodes: by published measurements twice and three
times as long on V100s and 1.4 to 1.6 times on P100s where they are not together, and no longer on
slower devices (Gavel, OSDI 2020). Half as long again is the careful end of that.
"""
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
        runs = (estimate(expecting, option, other) for other in others)
        learned = [other for other in runs if other is not None and other.basis is Basis.LEARNED]
        most = max(learned, key=lambda other: other.runs, default=None)
        own = None if most is None else without_start(expecting, most, here.flavors)
        there = _loss(here.part, spread=not here.is_spread)
    ratio = _loss(here.part, spread=here.is_spread) / there
    return run if own is None or ratio == 1.0 else guessed(own, Guess(ratio, _SPREAD_SIGMA))


def _loss(part: DevicePart | None, *, spread: bool) -> float:
    """Return how many times as long as in one domain a run takes."""
    # NVLink joins whole devices; parts of them are not joined.
    is_linked = part is not None and part.loss == _WHOLE and part.device.link.lower() == _NVLINK
    return _SPREAD_TIMES if spread and is_linked else 1.0


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
