"""What is remembered of runs in a saved or a live cluster, for a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.learn import learning
from webhook.learn.begun_delays import OF_ALL
from webhook.learn.estimates import RunTimes
from webhook.learn.failing import Failing, Refusal
from webhook.learn.run_records import Record, unpack_runs
from webhook.model.forecasts import Estimates, RunTime
from webhook.model.policy.fallback_policy import FallbackPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    records: Mapping[str, Record]
    estimates: Estimates
    refusals: Mapping[Refusal, float]
    """When each ends, in seconds since 1970."""
    starts: Mapping[str, RunTime] = field(default_factory=dict)
    """Flavors to how long pods take to be ready there."""
    dispatches: Mapping[str, RunTime] = field(default_factory=dict)
    """ClusterQueue to how long its AdmissionChecks take."""


NOTHING: Final = Learned(records={}, estimates={}, refusals={})


def learned(runs: RunTimes, policies: tuple[FallbackPolicy, ...], unix: float) -> Learned:
    """Sum up what is known at *unix*, in seconds since 1970."""
    failing = Failing()
    failing.look(runs.records, runs.records, policies, unix)
    starts, dispatches = runs.delays.starts(None), runs.delays.dispatches
    passed = {name: learning.learned(unpack_runs(each)) for name, each in dispatches.items()}
    return Learned(
        records=runs.records,
        estimates=runs.estimates(None),
        refusals=dict(failing.ends),
        starts={flavors: each for (key, flavors), each in starts.items() if key == OF_ALL},
        dispatches={name: each for name, each in passed.items() if each is not None},
    )
