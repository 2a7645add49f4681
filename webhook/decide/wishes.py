"""Reads what a Job's own annotations and labels ask for. It must not know how options are judged.

What has our prefix and is no key of ours is a mistake, and is named. Times are in seconds:
``max-slowdown``: how many times the first option's run time an option may take. ``deadline``: an
instant, or a duration from the Job's creation. ``max-wait``: take the first option that starts
within it. ``run-time``: what the Job expects to run in the first option. Money, in the cluster's
unit: ``value-of-time`` for an hour until it is done, ``lateness`` for one after its deadline,
``budget`` for the whole Job. ``max-carbon``: kilograms of CO2. ``checkpoint``: it can go on from
one at most so old. ``data``: what it reads, as ``imagenet=120Gi``. What it needs of one device,
in the units of an AcceleratorProfile: ``gpu-memory``, as ``8Gi``; ``gpu-bandwidth`` of its memory,
in GB/s; ``gpu-compute``, in dense TFLOPS by data type, or TOPS for integers, as ``bf16=300``. A
service says all or nothing of ``request-rate``, requests a second, and ``target-latency``, below
which 95 of 100 are answered; and if it likes ``max-replicas``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain, islice
from typing import Final

from webhook.decide.match import POLICY
from webhook.model import quantity
from webhook.model.costs.accelerator_profile import DATA_TYPES
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.job import MOVE_TO, OURS, PROBE, Job
from webhook.model.marks import MARKS
from webhook.model.policy import fallback_policy
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.patterns import COUNT, DECIMAL, DURATION, SUBDOMAIN
from webhook.model.policy.spec import LabelSelector

ALLOW = OURS + "allow"
MAX_SLOWDOWN = OURS + "max-slowdown"
DEADLINE = OURS + "deadline"
MAX_WAIT = OURS + "max-wait"
RUN_TIME = OURS + "run-time"
VALUE_OF_TIME = OURS + "value-of-time"
LATENESS = OURS + "lateness"
BUDGET = OURS + "budget"
MAX_CARBON = OURS + "max-carbon"
CHECKPOINT = OURS + "checkpoint"
DATA = OURS + "data"
HOLD = OURS + "hold"
GPU_MEMORY = OURS + "gpu-memory"
GPU_BANDWIDTH = OURS + "gpu-bandwidth"
GPU_COMPUTE = OURS + "gpu-compute"
REQUEST_RATE = OURS + "request-rate"
TARGET_LATENCY = OURS + "target-latency"
MAX_REPLICAS = OURS + "max-replicas"
NEVER_HOLD = "none"
_DURATION = re.compile(DURATION)
_DECIMAL = re.compile(DECIMAL.removesuffix("$") + r"\Z")
_COUNT = re.compile(COUNT.removesuffix("$") + r"\Z")
_DATA_NAME = re.compile(SUBDOMAIN.removesuffix("$") + r"\Z")
_LONGEST_DATA_NAME = 253
_MOST_DATA = 16
_GIBIBYTE = 1 << 30
_LONGEST = 32
"""Characters of a duration, the same limit as in a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a Job asks for; None where it says nothing about it."""

    max_slowdown: float | None = None
    deadline: float | None = None
    """Seconds from the Job's creation; below 0: it has passed."""
    max_wait: float | None = None
    """Seconds from now until the Job starts."""
    run_time: float | None = None
    """Seconds in the first option."""
    value_of_time: float | None = None
    """Money for an hour until it is done."""
    lateness: float | None = None
    """Money for an hour after its deadline."""
    budget: float | None = None
    """Money for the whole Job."""
    max_carbon: float | None = None
    """Kilograms of CO2."""
    checkpoint: float | None = None
    """Seconds from one checkpoint to the next; None: it begins anew when it is interrupted."""
    data: tuple[tuple[str, float], ...] = ()
    """The names of what it reads, each with its GiB."""
    hold: float | None = None
    """Seconds for which it may be held from admission, even without a deadline; 0: never."""
    gpu_memory: int | None = None
    """Bytes that it needs of the memory of one device."""
    gpu_bandwidth: float | None = None
    """GB/s that it needs of the memory of one device."""
    gpu_compute: tuple[tuple[str, float], ...] = ()
    """Data types, each with the dense TFLOPS, or TOPS, that it needs of one device."""
    request_rate: float | None = None
    """Requests a second that a service expects; None: it says nothing of its load."""
    target_latency: float | None = None
    """Seconds, as the 95th percentile; given beside a rate, and only there."""
    max_replicas: int | None = None
    """The most replicas that it may have."""
    allowed: frozenset[str] | None = None
    """The names of its policy's options that it allows."""


NONE = Wishes()


def wishes_of(job: Job, policy: FallbackPolicy, unix: float) -> Wishes:
    """Read all that a Job, created at *unix*, asks for of the options of its policy.

    Raises:
        FieldError: one of its annotations cannot be read, or has our prefix and is unknown.

    """
    # Most Jobs say nothing with our prefix, so their reviews pay for no more than this.
    ours = [key for texts in (job.annotations, job.labels) for key in texts if key.startswith(OURS)]
    if not ours:
        return NONE
    check_own_keys(job, policy)
    allowed = allowed_options(job, policy)
    wished = read_wishes(job.annotations, unix)
    return wished if allowed is None else replace(wished, allowed=allowed)


def read_wishes(annotations: Mapping[str, str], unix: float) -> Wishes:
    """Read the annotations of a Job that is created at *unix*, in seconds since 1970.

    Raises:
        FieldError: one of them cannot be read.

    """
    # Most Jobs have no annotation of ours, so their reviews pay for no more than this.
    if not any(name.startswith(OURS) for name in annotations):
        return NONE
    hold = annotations.get(HOLD)
    return Wishes(
        max_slowdown=_slowdown(annotations.get(MAX_SLOWDOWN)),
        deadline=_deadline(annotations.get(DEADLINE), unix),
        max_wait=_seconds(annotations.get(MAX_WAIT), MAX_WAIT),
        run_time=_above_zero(annotations.get(RUN_TIME), RUN_TIME),
        value_of_time=_decimal(annotations.get(VALUE_OF_TIME), VALUE_OF_TIME),
        lateness=_decimal(annotations.get(LATENESS), LATENESS),
        budget=_decimal(annotations.get(BUDGET), BUDGET),
        max_carbon=_decimal(annotations.get(MAX_CARBON), MAX_CARBON),
        checkpoint=_seconds(annotations.get(CHECKPOINT), CHECKPOINT),
        data=_data(annotations.get(DATA)),
        hold=0.0 if hold == NEVER_HOLD else _seconds(hold, HOLD),
        gpu_memory=_bytes(annotations.get(GPU_MEMORY), GPU_MEMORY),
        gpu_bandwidth=_bandwidth(annotations.get(GPU_BANDWIDTH)),
        gpu_compute=_compute(annotations.get(GPU_COMPUTE)),
        request_rate=_rate(annotations),
        target_latency=_latency(annotations),
        max_replicas=_most_replicas(annotations.get(MAX_REPLICAS)),
    )


def remaining(wished: Wishes, seconds: float) -> Wishes:
    """Return what a Job asks for so long after its creation, of its deadline what is left."""
    if wished.deadline is None:
        return wished
    return replace(wished, deadline=wished.deadline - seconds)


def allowed_options(job: Job, policy: FallbackPolicy) -> frozenset[str] | None:
    """Return the names of the options that the annotation ``allow`` lists; None: every option.

    Raises:
        FieldError: it lists no option, or one that the policy does not have.

    """
    value = job.annotations.get(ALLOW)
    if value is None:
        return None
    names = frozenset(part.strip() for part in value.split(",") if part.strip())
    known = [option.name for option in policy.spec.options]
    unknown = sorted(names.difference(known))
    if unknown or not names:
        what = f"no option {unknown[0]!r}" if unknown else "no option named"
        message = f"{what}; policy {policy.name} has {', '.join(known)}"
        raise FieldError(f"metadata.annotations[{ALLOW}]", message)
    return names


_LONGEST_SAID = 999_999_999
"""Seconds; more are thirty years."""


def said_seconds(annotations: Mapping[str, str]) -> int:
    """Return how long its owner says a Job runs in the first option; 0: that cannot be told."""
    text = annotations.get(RUN_TIME)
    if text is None:
        return 0
    said, _ = attempted(lambda: _above_zero(text, RUN_TIME), FieldError)
    return min(max(1, round(said)), _LONGEST_SAID) if said else 0


def _slowdown(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    # Below 1 even the first option would be too slow; this comparison refuses NaN as well.
    if not 1.0 <= factor < math.inf:
        raise _unreadable(MAX_SLOWDOWN, 'a number of at least 1 such as "3"', text)
    return factor


def _deadline(text: str | None, unix: float) -> float | None:
    if text is None:
        return None
    if _is_duration(text):
        return fallback_policy.seconds(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-12-01T08:00:00Z, or a duration such as 45m"
        raise _unreadable(DEADLINE, f"a time such as {example}", text) from None
    # A time without a zone is read as UTC, because no review knows the user's own zone.
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - unix


def _seconds(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    if not _is_duration(text):
        raise _unreadable(name, "a duration such as 90s or 1h30m", text)
    return fallback_policy.seconds(text)


def _is_duration(text: str) -> bool:
    return len(text) <= _LONGEST and _DURATION.fullmatch(text) is not None


def _above_zero(text: str | None, name: str) -> float | None:
    duration = _seconds(text, name)
    # A run of no time would win every comparison of finishes.
    if duration == 0.0:
        raise _unreadable(name, "a duration above 0", str(text))
    return duration


def _decimal(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    if not _DECIMAL.match(text):
        raise _unreadable(name, 'a number that is not negative, such as "2.5"', text)
    return float(text)


def _data(text: str | None) -> tuple[tuple[str, float], ...]:
    if text is None:
        return ()
    parts = text.split(",", _MOST_DATA)
    if len(parts) > _MOST_DATA:
        raise FieldError(f"metadata.annotations[{DATA}]", f"expected at most {_MOST_DATA} names")
    amounts: dict[str, float] = {}
    for part in parts:
        name, _, amount = part.strip().partition("=")
        size = _gibibytes(amount)
        if size is None or len(name) > _LONGEST_DATA_NAME or not _DATA_NAME.match(name):
            raise _unreadable(DATA, 'names with sizes such as "imagenet=120Gi"', text)
        amounts[name] = size
    return tuple(amounts.items())


def _bytes(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    size = math.ceil(quantity.exact(text)) if quantity.is_quantity(text) else 0
    # A need of nothing would be met by anything.
    if size <= 0:
        raise _unreadable(name, "an amount of memory such as 8Gi", text)
    return size


def _bandwidth(text: str | None) -> float | None:
    speed = _decimal(text, GPU_BANDWIDTH)
    # As for memory: a need of nothing would be met by anything.
    if speed == 0.0:
        raise _unreadable(GPU_BANDWIDTH, 'a number of GB/s above 0 such as "2000"', str(text))
    return speed


def _compute(text: str | None) -> tuple[tuple[str, float], ...]:
    if text is None:
        return ()
    speeds: dict[str, float] = {}
    # A part more than there are data types is a repetition, and so is refused below.
    for part in text.split(",", len(DATA_TYPES)):
        kind, _, amount = (word.strip() for word in part.partition("="))
        speed = float(amount) if _DECIMAL.match(amount) else 0.0
        if kind not in DATA_TYPES or kind in speeds or speed <= 0.0:
            example = 'a data type with its TFLOPS such as "bf16=300"'
            raise _unreadable(GPU_COMPUTE, f"{example}, of {', '.join(DATA_TYPES)}", text)
        speeds[kind] = speed
    return tuple(speeds.items())


def _rate(annotations: Mapping[str, str]) -> float | None:
    text = annotations.get(REQUEST_RATE)
    if text is None:
        return None
    rate = float(text) if _DECIMAL.match(text) else 0.0
    if rate <= 0.0:
        raise _unreadable(REQUEST_RATE, 'requests a second above 0 such as "120"', text)
    _beside(annotations, TARGET_LATENCY, REQUEST_RATE)
    return rate


def _latency(annotations: Mapping[str, str]) -> float | None:
    text = annotations.get(TARGET_LATENCY)
    if text is None:
        return None
    latency = fallback_policy.seconds(text) if _is_duration(text) else 0.0
    if latency <= 0.0:
        raise _unreadable(TARGET_LATENCY, "a time with its unit such as 200ms or 1.5s", text)
    _beside(annotations, REQUEST_RATE, TARGET_LATENCY)
    return latency


def _most_replicas(text: str | None) -> int | None:
    if text is None:
        return None
    if not _COUNT.match(text):
        raise _unreadable(MAX_REPLICAS, 'a whole number of at least 1 such as "8"', text)
    return int(text)


def _beside(annotations: Mapping[str, str], needed: str, given: str) -> None:
    """Demand one annotation beside another, which says nothing alone."""
    if needed not in annotations:
        message = f"must be given beside {given.removeprefix(OURS)}"
        raise FieldError(f"metadata.annotations[{needed}]", message)


def _gibibytes(text: str) -> float | None:
    """Return a size in GiB; None: it is none."""
    if not quantity.is_quantity(text):
        return None
    size = float(quantity.exact(text)) / _GIBIBYTE
    return size if size >= 0 else None


def _unreadable(name: str, expected: str, text: str) -> FieldError:
    return FieldError(f"metadata.annotations[{name}]", f"expected {expected}, got {text!r}")


WISHES: Final = (
    POLICY,
    ALLOW,
    MAX_SLOWDOWN,
    DEADLINE,
    MAX_WAIT,
    RUN_TIME,
    VALUE_OF_TIME,
    LATENESS,
    BUDGET,
    MAX_CARBON,
    CHECKPOINT,
    DATA,
    HOLD,
    GPU_MEMORY,
    GPU_BANDWIDTH,
    GPU_COMPUTE,
    REQUEST_RATE,
    TARGET_LATENCY,
    MAX_REPLICAS,
    MOVE_TO,
)
"""The annotations by which a Job may ask for something."""
MOST_NAMED: Final = 3
_KNOWN: Final = MARKS | {*WISHES, PROBE}
_NAMES: Final = [key.removeprefix(OURS) for key in WISHES]
_LONGEST_KEY: Final = 63
"""Characters after the prefix that are compared; Kubernetes allows no more in a name."""
_MOST_COMPARED: Final = 100
"""Labels of a Job that are compared with ``WISHES``; an administrator has a few."""


def check_own_keys(job: Job, policy: FallbackPolicy) -> None:
    """Refuse a Job with annotations or labels that have our prefix and that nothing reads.

    Raises:
        FieldError: its path is the first such key, its message names up to ``MOST_NAMED``.

    """
    # No more are looked for than are named, as a Job may have thousands.
    errors = [
        *islice(chain(_annotations(job.annotations), _labels(job.labels, policy)), MOST_NAMED)
    ]
    if errors:
        first, *others = errors
        raise FieldError(first.path, "; ".join([first.message, *map(str, others)]))


def _annotations(keys: Iterable[str]) -> Iterator[FieldError]:
    # A key that only a newer version knows is refused as well: after a rollback the Job is left
    # alone rather than half obeyed (decision 0021).
    for key in sorted(keys):
        if key.startswith(OURS) and key not in _KNOWN:
            near = _nearest(key)
            meant = f"did you mean {near}?" if near else f"a Job may say {', '.join(_NAMES)}"
            yield FieldError(f"metadata.annotations[{key}]", f"not known, {meant}")


def _labels(keys: Iterable[str], policy: FallbackPolicy) -> Iterator[FieldError]:
    expected = MARKS | _used(policy)
    ours = sorted(key for key in keys if key.startswith(OURS) and key not in expected)
    for key in ours[:_MOST_COMPARED]:
        if key in WISHES:
            # The opt-out given as a label was ignored in silence once, and the Job was moved.
            yield FieldError(f"metadata.labels[{key}]", "not read, make it an annotation")
        elif near := _nearest(key):
            meant = f"did you mean the annotation {near}?"
            yield FieldError(f"metadata.labels[{key}]", f"not known, {meant}")


def _nearest(key: str) -> str:
    name = key.removeprefix(OURS)[:_LONGEST_KEY]
    return next(iter(get_close_matches(name.lower(), _NAMES, n=1)), "")


def _used(policy: FallbackPolicy) -> set[str]:
    """Return the names of the labels that the policy itself reads."""
    selector = policy.spec.match.job_selector or LabelSelector()
    selected = (
        *selector.match_labels,
        *(expression.key for expression in selector.match_expressions),
    )
    return {policy.spec.job_class_label or "", *selected}
