"""Tells how devices are better cut: figures, a file for mig-parted, and commands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import yaml

from webhook.cost.geometries import Geometry
from webhook.hindsight import coverage
from webhook.hindsight.coverage import Coverage
from webhook.hindsight.device_pools import DeviceNode, DevicePool
from webhook.hindsight.repartition import PoolAdvice, Waits
from webhook.model.words import rfc3339

_PREFIX: Final = "nvidia.com/mig-"
_LABEL: Final = "nvidia.com/mig.config"
_DONE: Final = r"'{.metadata.labels.nvidia\.com/mig\.config\.state}'=success"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """How the devices of one Node are to be cut."""

    node: DeviceNode
    cuts: tuple[Geometry, ...]
    config: str
    """Its name in the file for mig-parted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesReport:
    since: float
    until: float
    """Both in seconds since 1970: from the first Job's creation to the last one's end."""
    advice: tuple[PoolAdvice, ...]
    plans: tuple[NodePlan, ...]
    left_out: tuple[str, ...]
    covered: Coverage


def slices_report(
    pools: Sequence[DevicePool],
    advice: Sequence[PoolAdvice],
    left_out: Sequence[str],
    *,
    covered: Coverage,
    unix: float,
) -> SlicesReport:
    """Return the report; *unix*: now, in seconds since 1970."""
    changed: list[tuple[DeviceNode, tuple[Geometry, ...]]] = []
    for pool, advised in zip(pools, advice, strict=True):
        changed += _changed_nodes(pool, advised)
    layouts = list(dict.fromkeys(cuts for _, cuts in changed))
    day = rfc3339(unix)[:10]
    names = {
        cuts: f"kf-{day}" if len(layouts) == 1 else f"kf-{day}-{number}"
        for number, cuts in enumerate(layouts, 1)
    }
    times = [demand for pool in pools for demand in pool.demands]
    return SlicesReport(
        since=min((demand.at for demand in times), default=unix),
        until=max((demand.at + demand.seconds for demand in times), default=unix),
        advice=tuple(advice),
        plans=tuple(NodePlan(node=node, cuts=cuts, config=names[cuts]) for node, cuts in changed),
        left_out=tuple(left_out),
        covered=covered,
    )


def _changed_nodes(
    pool: DevicePool, advised: PoolAdvice
) -> Iterator[tuple[DeviceNode, tuple[Geometry, ...]]]:
    """Yield the Nodes that change, first those on which the fewest Jobs have to end."""
    surplus = Counter(advised.before) - Counter(advised.after)
    missing = list((Counter(advised.after) - Counter(advised.before)).elements())
    for node in sorted(pool.nodes, key=lambda node: (len(node.jobs), node.name)):
        cuts = list(node.cuts)
        for place, cut in enumerate(cuts):
            if surplus[cut] and missing:
                surplus[cut] -= 1
                cuts[place] = missing.pop(0)
        if tuple(cuts) != node.cuts:
            yield node, tuple(cuts)


def mig_parted(report: SlicesReport) -> Mapping[str, Any]:
    """Return the file for mig-parted: each config once, with its devices by their numbers."""
    configs = {plan.config: _config(plan.cuts) for plan in report.plans}
    return {"version": "v1", "mig-configs": configs}


def _config(cuts: Sequence[Geometry]) -> list[Mapping[str, Any]]:
    by_cut: defaultdict[Geometry, list[int]] = defaultdict(list)
    for number, cut in enumerate(cuts):
        by_cut[cut].append(number)
    return [
        {
            "devices": numbers,
            "mig-enabled": bool(cut),
            **({"mig-devices": _profiles(cut)} if cut else {}),
        }
        for cut, numbers in by_cut.items()
    ]


def _profiles(cut: Geometry) -> dict[str, int]:
    return {resource.removeprefix(_PREFIX): count for resource, count in cut}


def commands(report: SlicesReport) -> Iterator[str]:
    """Yield the commands that would apply it, Node by Node."""
    for plan in report.plans:
        name = plan.node.name
        yield f"kubectl cordon {name}"
        yield f"kubectl label node {name} {_LABEL}={plan.config} --overwrite"
        yield f"kubectl wait node {name} --timeout=15m --for=jsonpath={_DONE}"
        yield f"kubectl uncordon {name}"


def as_json(report: SlicesReport) -> dict[str, Any]:
    return {
        "since": rfc3339(report.since),
        "until": rfc3339(report.until),
        "models": [_model(advice) for advice in report.advice],
        "nodes": [
            {
                "name": plan.node.name,
                "migConfig": plan.config,
                "mustEnd": list(plan.node.jobs),
            }
            for plan in report.plans
        ],
        "migParted": mig_parted(report) if report.plans else None,
        "commands": list(commands(report)),
        "leftOut": list(report.left_out),
        "journalHours": coverage.as_json(report.covered),
    }


def _model(advice: PoolAdvice) -> dict[str, Any]:
    low, high = by_day(advice)
    return {
        "model": advice.model,
        "devices": sum(advice.before.values()),
        "jobs": advice.jobs,
        "waitedDeviceHours": {
            "now": round(advice.now.waited, 2) if isfinite(advice.now.waited) else None,
            "then": round(advice.then.waited, 2) if isfinite(advice.then.waited) else None,
        },
        "saved": round(advice.saved, 3),
        "savedByDay": {"low": round(low, 3), "high": round(high, 3)},
        "fragmentation": {
            "now": round(advice.now.fragmentation, 3),
            "then": round(advice.then.fragmentation, 3),
        },
        "fragmentedDeviceHours": {
            "now": round(advice.now.fragmented, 1),
            "then": round(advice.then.fragmented, 1),
        },
        "now": _cut_list(advice.before),
        "then": _cut_list(advice.after),
        "quotas": {
            resource: {"now": now, "then": then}
            for resource, (now, then) in sorted(quotas(advice).items())
        },
        "whyNot": advice.why_not or None,
    }


def _cut_list(cuts: Mapping[Geometry, int]) -> list[dict[str, Any]]:
    return [{"devices": count, "slices": _profiles(cut)} for cut, count in sorted(cuts.items())]


def by_day(advice: PoolAdvice) -> tuple[float, float]:
    """Return which part of what was waited would be saved on the worst day, and on the best."""
    shares = [
        1 - advice.then.by_day.get(day, 0.0) / waited
        for day, waited in advice.now.by_day.items()
        if waited > 0
    ]
    return min(shares, default=0.0), max(shares, default=0.0)


def quotas(advice: PoolAdvice) -> Mapping[str, tuple[int, int]]:
    """Return how many units of each resource the model's Nodes have, now and then."""
    now, then = _units(advice.before), _units(advice.after)
    return {name: (now[name], then[name]) for name in {*now, *then} if now[name] != then[name]}


def _units(cuts: Mapping[Geometry, int]) -> Counter[str]:
    units: Counter[str] = Counter()
    for cut, devices in cuts.items():
        for resource, count in cut or (("nvidia.com/gpu", 1),):
            units[resource] += count * devices
    return units


def as_text(report: SlicesReport) -> str:
    days = (report.until - report.since) / 86_400
    lines = [
        f"By the Jobs of {days:.1f} days, from {rfc3339(report.since)} on. Nothing is applied."
    ]
    for advice in report.advice:
        lines += ["", *_lines(advice)]
    if report.plans:
        lines += ["", *_steps(report)]
    if report.left_out:
        lines += ["", *(f"Left out: {why}." for why in report.left_out)]
    if told := coverage.as_text(report.covered):
        lines += ["", told]
    return "\n".join(lines)


def _lines(advice: PoolAdvice) -> Iterator[str]:
    devices, now, then = sum(advice.before.values()), advice.now, advice.then
    yield (
        f"{advice.model}: {advice.jobs} Jobs waited {_hours(now)} device-hours"
        f" for {devices} devices."
    )
    yield f"Of what was free, {now.fragmentation:.0%} were of no use to the average Job."
    if advice.why_not:
        yield f"Nothing is to be gained: {advice.why_not}."
        return
    low, high = by_day(advice)
    yield (
        f"Cut otherwise, {_hours(then)} device-hours would have been waited,"
        f" {advice.saved:.0%} less"
    )
    yield f"(by day {low:.0%} to {high:.0%}), and {then.fragmentation:.0%} of no use:"
    yield ""
    yield "   NOW  THEN  CUT INTO"
    for cut in sorted({*advice.before, *advice.after}):
        yield f"  {advice.before.get(cut, 0):4}  {advice.after.get(cut, 0):4}  {_words(cut)}"
    yield ""
    yield "Quotas to change with it, as long as they are what the nodes have:"
    for resource, (before, after) in sorted(quotas(advice).items()):
        yield f"  {resource}: {before} -> {after}"


def _hours(waits: Waits) -> str:
    return f"{waits.waited:.1f}" if isfinite(waits.waited) else "endless"


def _words(cut: Geometry) -> str:
    slices = (f"{count} x {profile}" for profile, count in _profiles(cut).items())
    return ", ".join(slices) or "whole"


def _steps(report: SlicesReport) -> Iterator[str]:
    yield "For mig-parted, to be added to the ConfigMap that the MIG manager reads:"
    yield ""
    yield from yaml.safe_dump(mig_parted(report), sort_keys=False).rstrip().split("\n")
    yield ""
    yield "Then, Node by Node; a Node's Jobs must have ended between the first two:"
    yield ""
    ending = {plan.node.name: plan.node.jobs for plan in report.plans}
    for command in commands(report):
        yield command
        *_, name = command.split()
        if command.startswith("kubectl cordon") and ending.get(name):
            yield f"# until these have ended: {', '.join(ending[name])}"
