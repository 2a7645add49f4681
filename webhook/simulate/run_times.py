"""True run times of Jobs, drawn before the replay. Pure; chance comes in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeAlias

from webhook.model.fields import FieldError
from webhook.model.policy.values import seconds
from webhook.simulate.scenario_spec import RunTime

Plan: TypeAlias = Sequence[tuple[str, RunTime]]
"""Keys with what they are drawn from; each comes after the one that it is relative to."""


def plan(run_times: Mapping[str, RunTime], path: str) -> Plan:
    """Put run times in the order in which they can be drawn.

    Raises:
        FieldError: one is relative to what is not there, or to itself.

    """
    for key, spec in run_times.items():
        if spec.of is not None and spec.of not in run_times:
            known = ", ".join(run_times)
            raise FieldError(f"{path}.{key}.of", f"expected one of {known}, got {spec.of}")
    found: dict[str, RunTime] = {}
    while len(found) < len(run_times):
        ready = {
            key: spec
            for key, spec in run_times.items()
            if key not in found and (spec.of is None or spec.of in found)
        }
        if not ready:
            around = ", ".join(key for key in run_times if key not in found)
            raise FieldError(path, f"expected no circle, found one among {around}")
        found |= ready
    return tuple(found.items())


def draw(planned: Plan, given: float | None, random: Random, path: str) -> Mapping[str, float]:
    """Draw a Job's run times in seconds; *given* came with its arrival.

    Raises:
        FieldError: a run time is relative to one that did not come.

    """
    found: dict[str, float] = {}
    for key, spec in planned:
        found[key] = _middle(spec, found, given, f"{path}.{key}") * _spread(spec.sigma, random)
    return found


def _middle(spec: RunTime, found: Mapping[str, float], given: float | None, path: str) -> float:
    if spec.median is not None:
        return seconds(spec.median)
    base = given if spec.of is None else found[spec.of]
    if base is None:
        raise FieldError(
            f"{path}.times", "expected a run time with each arrival, or `of` another one here"
        )
    return base * (spec.times or 1.0)


def _spread(sigma: float, random: Random) -> float:
    return math.exp(random.gauss(0.0, sigma)) if sigma else 1.0
