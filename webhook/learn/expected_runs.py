"""How long a Job is expected to run in an option, and what that rests on.

What the Job's owner wrote stands above all that was learned of others: as it is in the first
option, elsewhere by how much longer runs were seen to take there, else by the policy's slowdown.
Where nothing is written, in this order: runs of its class on these flavors; runs of its coarse
class there; its runs on the first option's flavors, slowed down; what the policy says. A few runs
of others in its coarse class come last: they say less of this Job than who wrote the policy.
Otherwise it is not known, and nothing is made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from webhook.learn.learning import PRIOR_SIGMA, TENTH
from webhook.model.forecasts import ENOUGH_RUNS, Basis, Estimates, RunTime
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.policy.values import seconds
from webhook.model.run_keys import JobClass

MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
"""The label by which Kueue ends a Workload that has run for so long."""
_LONGEST_LIMIT = 9
"""Digits of a time limit in seconds; thirty years have nine."""
_TELLING_SECONDS = 5.0
"""What must be left of a run for it to be told apart from its start: Kueue's times are whole
seconds, and pods that have ended count as ready."""
_COARSE_SIGMA = 0.5
"""Between the classes of one coarse class, at the least: their numbers differ."""
_SAID_SIGMA = 0.4
"""Of what a Job's owner or a policy says."""
_SLOWDOWN_SIGMA = 0.3
"""Of a slowdown that a policy says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expecting:
    """One Job, as far as its run time is concerned."""

    run_times: Estimates
    job_class: JobClass
    policy: FallbackPolicy
    first_flavors: str = ""
    """What it would get in the first option; empty: not known."""
    said: float | None = None
    """The Job's annotation ``run-time``, in seconds."""
    start_delays: Estimates = field(default_factory=dict)
    """Of which the one in the first option is no slower elsewhere."""


def estimate(expecting: Expecting, option: Option, flavors: str) -> RunTime | None:
    """Expect a run time under *option*, on *flavors*; None: nothing is known."""
    if expecting.said is not None:
        return _of_owner(expecting, expecting.said, option, flavors)
    found = _on(expecting, flavors)
    if found is not None and not _is_hearsay(expecting, flavors, found):
        return found
    return _believed(expecting, option) or found


def _of_owner(expecting: Expecting, said: float, option: Option, flavors: str) -> RunTime | None:
    """Take what the Job says of its run in the first option, as much longer as it is elsewhere."""
    first = _around(said, _SAID_SIGMA, Basis.ANNOTATION)
    if option.name == expecting.policy.spec.options[0].name:
        return first
    return _scaled(expecting, first, flavors) or _by_slowdown(expecting, first, option)


def _by_slowdown(expecting: Expecting, first: RunTime, option: Option) -> RunTime | None:
    slowdown = slowdown_of(expecting.policy, option)
    return None if slowdown is None else _slowed(first, slowdown)


def _scaled(expecting: Expecting, first: RunTime, flavors: str) -> RunTime | None:
    """Scale a run in the first option as learned runs differ; None: too few were seen of either."""
    here, there = _on(expecting, flavors), _on(expecting, expecting.first_flavors)
    if here is None or there is None or min(here.runs, there.runs) < ENOUGH_RUNS:
        return None
    if flavors == expecting.first_flavors:
        return first
    own, firsts = (
        _without_start(expecting, here, flavors),
        _without_start(expecting, there, expecting.first_flavors),
    )
    if (own is here) is not (firsts is there):
        own, firsts = here, there
    sigma = PRIOR_SIGMA * math.sqrt(1 / here.runs + 1 / there.runs)
    scaled = _widened(_times(first, own.seconds / firsts.seconds), sigma)
    return replace(scaled, runs=min(here.runs, there.runs))


def _believed(expecting: Expecting, option: Option) -> RunTime | None:
    """Take the run in the first option, slowed down: as learned there, or as it is said."""
    slowdown = slowdown_of(expecting.policy, option)
    if slowdown is None:
        return None
    is_first = option.name == expecting.policy.spec.options[0].name
    learned, said = _on(expecting, expecting.first_flavors), _said(expecting)
    if is_first or learned is None:
        return said if said is None or is_first else _slowed(said, slowdown)
    if said is not None and _is_hearsay(expecting, expecting.first_flavors, learned):
        return _slowed(said, slowdown)
    own = _without_start(expecting, learned, expecting.first_flavors)
    return replace(_slowed(own, slowdown), basis=Basis.SLOWDOWN)


def _is_hearsay(expecting: Expecting, flavors: str, found: RunTime) -> bool:
    """Tell whether it rests on a few runs of other classes alone."""
    own = (expecting.job_class.key, flavors) in expecting.run_times
    return not own and found.runs < ENOUGH_RUNS


def within_limits(job: Job) -> RunTime | None:
    """Take a run that is ended after some time to last any part of it; None: none is ended.

    Its range holds the middle 80 %.
    """
    limit = min((seconds for _, seconds in limits_of(job)), default=0)
    if not limit:
        return None
    return RunTime(seconds=limit / 2, low=limit / 10, high=limit * 9 / 10, basis=Basis.POLICY)


def limits_of(job: Job) -> Iterator[tuple[str, int]]:
    """List what ends a run of the Job: its name, and after how many seconds."""
    if job.active_deadline_seconds is not None:
        yield "activeDeadlineSeconds", job.active_deadline_seconds
    written = job.labels.get(MAX_EXECUTION, "")
    if written.isascii() and written.isdigit() and len(written) <= _LONGEST_LIMIT:
        yield f"its label {MAX_EXECUTION}", int(written)


def slowdown_of(policy: FallbackPolicy, option: Option) -> float | None:
    """Tell an option's slowdown; the first one's is 1, an other's is known only if it is given."""
    return 1.0 if option.name == policy.spec.options[0].name else option.slowdown


def _without_start(expecting: Expecting, learned: RunTime, flavors: str) -> RunTime:
    """Take off what the class' pods took to be ready on *flavors*.

    A run that is short beside that tells little of itself: there the whole stands for it.
    """
    found = expecting.start_delays.get((expecting.job_class.key, flavors))
    if found is None or found.runs < ENOUGH_RUNS:
        return learned
    left = learned.seconds - found.seconds
    return _times(learned, left / learned.seconds) if left >= _TELLING_SECONDS else learned


def _said(expecting: Expecting) -> RunTime | None:
    finish_time = expecting.policy.spec.strategy.finish_time
    if finish_time is None or finish_time.run_time is None:
        return None
    return _around(seconds(finish_time.run_time), _SAID_SIGMA, Basis.POLICY)


def _on(expecting: Expecting, flavors: str) -> RunTime | None:
    """Take what is learned on given flavors, from the class or by way of its coarse class."""
    run_times, job_class = expecting.run_times, expecting.job_class
    exact = run_times.get((job_class.key, flavors))
    if exact is not None and exact.runs >= ENOUGH_RUNS:
        return exact
    coarse = _coarse(expecting, flavors)
    if coarse is None or exact is None:
        return exact or coarse
    return exact if coarse.runs <= exact.runs else _together(exact, coarse)


def _coarse(expecting: Expecting, flavors: str) -> RunTime | None:
    """Take the coarse class' runs, scaled by how the class' own differ in the first option."""
    run_times, (key, coarse) = expecting.run_times, expecting.job_class
    found = run_times.get((coarse, flavors))
    if found is None:
        return None
    wide = _widened(found, _COARSE_SIGMA)
    own = run_times.get((key, expecting.first_flavors))
    pooled = run_times.get((coarse, expecting.first_flavors))
    if flavors == expecting.first_flavors or own is None or pooled is None:
        return wide
    return _times(wide, own.seconds / pooled.seconds)


def _together(exact: RunTime, coarse: RunTime) -> RunTime:
    """Weigh a few runs of the class against its coarse class by what each leaves uncertain.

    Both as normal distributions of logarithms: the prior's variance against that of a mean.
    """
    prior, noise = _sigma(coarse) ** 2, PRIOR_SIGMA**2
    weight = exact.runs * prior / (exact.runs * prior + noise)
    middle = weight * math.log(exact.seconds) + (1 - weight) * math.log(coarse.seconds)
    sigma = math.sqrt(noise + prior * noise / (exact.runs * prior + noise))
    return replace(_around(math.exp(middle), sigma, Basis.LEARNED), runs=exact.runs)


def _slowed(first: RunTime, slowdown: float) -> RunTime:
    return _widened(_times(first, slowdown), _SLOWDOWN_SIGMA)


def _times(found: RunTime, factor: float) -> RunTime:
    return replace(
        found, seconds=found.seconds * factor, low=found.low * factor, high=found.high * factor
    )


def _around(middle: float, sigma: float, basis: Basis) -> RunTime:
    factor = math.exp(TENTH * sigma)
    return RunTime(seconds=middle, low=middle / factor, high=middle * factor, basis=basis)


def _widened(found: RunTime, sigma: float) -> RunTime:
    """Add an uncertainty that is independent of the range's own."""

    def further(bound: float) -> float:
        return math.exp(math.hypot(math.log(bound / found.seconds), TENTH * sigma))

    return replace(
        found,
        low=found.seconds / further(found.low),
        high=found.seconds * further(found.high),
    )


def _sigma(found: RunTime) -> float:
    return math.log(found.high / found.low) / (2 * TENTH)
