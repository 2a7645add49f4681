"""What is remembered of runs in a saved or a live cluster, for a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from webhook.cluster.failing import Failing, Refusal
from webhook.cluster.run_times import RunTimes
from webhook.model.forecasts import Estimates
from webhook.model.policy import FallbackPolicy
from webhook.model.runs import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    records: Mapping[str, Record]
    estimates: Estimates
    refusals: Mapping[Refusal, float]
    """When each ends, in seconds since 1970."""


NOTHING: Final = Learned(records={}, estimates={}, refusals={})


def learned(runs: RunTimes, policies: tuple[FallbackPolicy, ...], unix: float) -> Learned:
    """Sum up what is known at *unix*, in seconds since 1970."""
    failing = Failing()
    failing.look(runs.records, runs.records, policies, unix)
    return Learned(
        records=runs.records, estimates=runs.estimates(None), refusals=dict(failing.ends)
    )
