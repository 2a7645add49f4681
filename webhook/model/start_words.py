"""Says when a pending Workload is expected to start, how sure that is, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from webhook.model.forecasts import Start
from webhook.model.words import span

_DOUBTS: Final[Mapping[str, str]] = {
    "preemption": "Workloads that come later may preempt others in its ClusterQueue",
    "fairSharing": "Kueue shares quota between queues by what they use",
    "cohortReclaim": "other ClusterQueues may take back quota that they have lent",
    "admissionFairSharing": "Kueue orders its queue by what LocalQueues have used",
    "admissionChecks": "AdmissionChecks follow once it has quota",
    "podsReady": "Kueue admits one Workload at a time until its pods are ready",
    "topology": "it needs domains of a Topology with enough room",
    "depth": "so many wait that preemptions are forecast only at first",
    "runTimes": "some run times are not known and are taken to be like those of the others",
    "arrivals": "Workloads that usually come may come before it",
}
_NO_ORDER: Final[Mapping[str, str]] = {
    "fairSharing": "Kueue shares quota between queues by what they use",
    "partialAdmission": "a Workload may be admitted with fewer pods",
    "concurrentAdmission": "Kueue admits the first of several Workloads of one Job",
    "topology": "which domains of a Topology have room is not known",
}


def expected(start: Start) -> str:
    """Return when it starts: ``now``, ``in 12 min``, or ``not foreseen`` where no time is."""
    if start.seconds == inf:
        return "not foreseen"
    return "now" if start.seconds <= 0 else f"in {span(start.seconds)}"


def between(start: Start) -> str:
    """Return the range of about 80 % of cases; empty: there is none."""
    if start.seconds == inf or start.high <= 0:
        return ""
    high = "any time" if start.high == inf else span(start.high)
    return f"{span(start.low)} to {high}"


def rests_on(start: Start) -> tuple[str, ...]:
    """Return what the start rests on that may turn out otherwise; empty: nothing is in doubt."""
    parts = []
    if start.seconds == inf:
        parts.append("there is never room for it as things are")
    if start.unseen:
        whose = "1 Workload" if start.unseen == 1 else f"{start.unseen} Workloads"
        parts.append(f"how long {whose} ahead of it will run is a guess: no such run was seen")
    if start.unordered:
        parts.append(f"who is next cannot be foreseen: {_NO_ORDER[start.unordered]}")
    parts += [_DOUBTS[doubt] for doubt in start.uncertain if doubt != start.unordered]
    if start.unseen and _DOUBTS["runTimes"] in parts:
        parts.remove(_DOUBTS["runTimes"])
    return tuple(parts)
