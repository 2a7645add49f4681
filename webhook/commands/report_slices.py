"""``report --slices``: how devices are better cut, by what Jobs waited. It applies nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from webhook.api.kubernetes_api import Forbidden
from webhook.commands import terminal
from webhook.commands.kubectl import listed
from webhook.cost.slice_geometry import Geometry
from webhook.hindsight.freed_slices import cut_in_words
from webhook.hindsight.slice_advice import CutAdvice, units_of
from webhook.model.words import rfc3339
from webhook.state.snapshot_file import read_objects

if TYPE_CHECKING:
    from webhook.api.client import Client

_PREFIX: Final = "nvidia.com/mig-"
_LABEL: Final = "nvidia.com/mig.config"
_DONE: Final = r"'{.metadata.labels.nvidia\.com/mig\.config\.state}'=success"
_Layout: TypeAlias = tuple[Geometry, ...]
"""How the devices of a Node are cut, one after another."""


def objects_of_file(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a saved state, Nodes and Pods among them.

    Raises:
        FieldError: it cannot be read.

    """
    return (source for source, _ in read_objects(path))


def objects_of_cluster(client: Client) -> Iterator[Mapping[str, Any]]:
    """List Nodes and Pods with the user's rights; without Pods it is said what is not known.

    Raises:
        Forbidden: Nodes may not be listed.

    """
    for node in listed(client, "/api/v1/nodes"):
        yield {**node, "kind": "Node"}
    try:
        for pod in listed(client, "/api/v1/pods"):
            yield {**pod, "kind": "Pod"}
    except Forbidden as error:
        terminal.say(f"{error}: it is not known which Jobs must end", err=True)


def as_json(
    models: Sequence[CutAdvice], left_out: Sequence[str], *, since: float, until: float
) -> dict[str, Any]:
    """Return the report on a time, in seconds since 1970."""
    changed = [change for model in models for change in model.changed()]
    names = _config_names([cuts for _, cuts in changed], rfc3339(until)[:10])
    configs = {name: _config(cuts) for cuts, name in names.items()}
    return {
        "since": rfc3339(since),
        "until": rfc3339(until),
        "models": [_model(model) for model in models],
        "nodes": [
            {"name": node.name, "migConfig": names[cuts], "mustEnd": list(node.jobs)}
            for node, cuts in changed
        ],
        "migParted": {"version": "v1", "mig-configs": configs} if configs else None,
        "commands": [
            command
            for node, cuts in changed
            for command in (
                f"kubectl cordon {node.name}",
                f"kubectl label node {node.name} {_LABEL}={names[cuts]} --overwrite",
                f"kubectl wait node {node.name} --timeout=15m --for=jsonpath={_DONE}",
                f"kubectl uncordon {node.name}",
            )
        ],
        "leftOut": list(left_out),
    }


def _config_names(layouts: Iterable[_Layout], day: str) -> Mapping[_Layout, str]:
    different = list(dict.fromkeys(layouts))
    if len(different) == 1:
        return {different[0]: f"kf-{day}"}
    return {cuts: f"kf-{day}-{number}" for number, cuts in enumerate(different, 1)}


def _config(cuts: _Layout) -> list[Mapping[str, Any]]:
    """Return a config of the file for mig-parted: the devices by their numbers."""
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


def _model(advice: CutAdvice) -> dict[str, Any]:
    low, high = advice.saved_by_day
    cuts = {"now": advice.before, "then": advice.after}
    units = {when: units_of(so, advice.device) for when, so in cuts.items()}
    waited = {"now": sum(advice.now.values()), "then": sum(advice.then.values())}
    return {
        "model": advice.device.name,
        "devices": len(advice.before),
        "jobs": advice.jobs,
        "waitedDeviceHours": {
            when: round(hours, 2) if isfinite(hours) else None for when, hours in waited.items()
        },
        "saved": round(advice.saved, 3),
        "savedByDay": {"low": round(low, 3), "high": round(high, 3)},
        "fragmentation": {when: round(advice.fragmentation(so), 3) for when, so in cuts.items()},
        **{
            when: [
                {"devices": count, "slices": _profiles(cut)}
                for cut, count in sorted(Counter(so).items())
            ]
            for when, so in cuts.items()
        },
        "quotas": {
            name: {when: of[name] for when, of in units.items()}
            for name in sorted({*units["now"], *units["then"]})
            if units["now"][name] != units["then"][name]
        },
        "whyNot": advice.why_not or None,
    }


def as_text(shown: Mapping[str, Any]) -> str:
    """Return the report, as JSON has it, for people."""
    lines = [f"By the Jobs from {shown['since']} on, simulated. Nothing is applied."]
    for model in shown["models"]:
        lines += ["", *_of_model(model)]
    if shown["migParted"]:
        lines += [
            "",
            "For mig-parted, to be added to the ConfigMap that the MIG manager reads:",
            "",
        ]
        lines += terminal.dump(shown["migParted"], "yaml").split("\n")
        lines += [
            "",
            "Then, Node by Node; a Node's Jobs must have ended between the first two:",
            "",
        ]
        ending = {f"kubectl cordon {node['name']}": node["mustEnd"] for node in shown["nodes"]}
        for command in shown["commands"]:
            lines.append(command)
            if jobs := ending.get(command):
                lines.append(f"# until these have ended: {', '.join(jobs)}")
    if shown["leftOut"]:
        lines += ["", *(f"Left out: {why}." for why in shown["leftOut"])]
    return "\n".join(lines)


def _of_model(model: Mapping[str, Any]) -> Iterator[str]:
    waited, useless = model["waitedDeviceHours"], model["fragmentation"]
    hours = {when: "endless" if n is None else f"{n:.1f}" for when, n in waited.items()}
    yield (
        f"{model['model']}: {model['jobs']} Jobs waited {hours['now']} device-hours"
        f" for {model['devices']} devices."
    )
    yield f"As they are cut, at least {useless['now']:.0%} are of no use to the average Job."
    if model["whyNot"]:
        yield f"Nothing is to be gained: {model['whyNot']}."
        return
    low, high = model["savedByDay"].values()
    yield (
        f"Cut otherwise, {hours['then']} device-hours would have been waited,"
        f" {model['saved']:.0%} less"
    )
    yield f"(by day {low:.0%} to {high:.0%}), and at least {useless['then']:.0%} are of no use:"
    yield ""
    yield "   NOW  THEN  CUT INTO"
    counts = {
        when: {cut_in_words(cut["slices"]): cut["devices"] for cut in model[when]}
        for when in ("now", "then")
    }
    for cut in dict.fromkeys((*counts["now"], *counts["then"])):
        yield f"  {counts['now'].get(cut, 0):4}  {counts['then'].get(cut, 0):4}  {cut}"
    yield ""
    yield "Quotas to change with it, as long as they are what the nodes have:"
    for resource, change in model["quotas"].items():
        yield f"  {resource}: {change['now']} -> {change['then']}"
