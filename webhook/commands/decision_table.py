"""A decision as text for a terminal: the options with numbers and reasons, and what it changes.

Both one that was just made and one that a Job carries, with the numbers of when it was made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from webhook.commands import terminal
from webhook.commands.terminal import Line
from webhook.cost.terms import mean_seconds
from webhook.decide import decision_record
from webhook.decide.decision_record import PREFIX, basis_of
from webhook.decide.match import OPT_OUT, POLICY
from webhook.jobs import JobKind
from webhook.model.decision import VERSION, Assessment, CreateOutcome, Decision, Fit, Skipped
from webhook.model.fields import EMPTY, FieldError, child
from webhook.model.forecasts import Basis, Forecast, Start
from webhook.model.holds import hold_json
from webhook.model.job import (
    DECISION,
    ENV_PREFIX,
    OURS,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    REASON,
    UNDONE,
)
from webhook.model.words import brief, figure, harmless, span

if TYPE_CHECKING:
    from rich.text import Text

_MOST_MISMATCHES = 10
_WHY = "WHY"
_NAMES = ("OPTION", "QUEUE", "CLUSTERQUEUE", "CLUSTER")
_COUNTED = (*_NAMES, "FITS", "PENDING", "RESERVING", _WHY)
_FORECAST = (*_NAMES, "PENDING", "STARTS", "RUNS", "DONE", _WHY)
_SPARE: Final = ("RESERVING", "CLUSTERQUEUE", "PENDING", "RUNS", "CLUSTER", "QUEUE")
"""Left out one by one where a terminal is too narrow."""
_TERMS: Final[Mapping[str, str]] = {
    "RATES": "money",
    "POWER": "electricity",
    "CO2": "carbonGrams",
    "LATE": "lateness",
    "TIME": "time",
    "CONGESTION": "congestion",
    "TRANSFER": "transfer",
    "TOTAL": "total",
}
"""Columns of a comparison by cost, and the terms in them, as ``decision_record.cost_json`` names
them; that of a term that is nothing everywhere is left out."""
_HOURLY: Final[Mapping[str, str]] = {
    "RATES": "money",
    "POWER": "electricity",
    "CO2": "carbonGrams",
    "CONGESTION": "congestion",
    "AN HOUR": "total",
}
"""The same of an hour of a service."""
_SERVED: Final = ("OPTION", "QUEUE", "CLUSTER", "REPLICAS", "USED", "LATENCY")
_MAY_BE_NOTHING: Final = ("LATE", "CONGESTION", "TRANSFER")
_MEASURED: Final[Mapping[str, str]] = {
    "RATES": "money",
    "POWER": "electricity",
    "KWH": "kWh",
    "CO2": "carbonGrams",
    "TOTAL": "total",
}
"""The same where costs are only shown."""


def table(
    outcome: CreateOutcome, width: int = terminal.WRAPPED, mismatches: Mapping[str, str] = EMPTY
) -> list[Line]:
    """Return a decision in at most *width* columns: the options with numbers and reasons.

    *mismatches*: the policies that do not match the Job, each with why.
    """
    if isinstance(outcome, Skipped):
        left = f"Left untouched: {outcome.skip.meaning}."
        return [left, *outcome.warnings, *_unmatched(mismatches, width)]
    decision = outcome.decision
    head = f"Policy {decision.policy} ({decision.mode}): {decision.reason}"
    lines: list[Line] = [*terminal.fitted(harmless(head), width)]
    costs = {
        option.option: decision_record.cost_json(option.cost)
        for option in decision.options
        if option.cost is not None
    }
    if decision.hold is not None:
        lines += _hold(hold_json(decision.hold))
    recorded = decision_record.decision_json(decision_record.record_of(decision))["options"]
    if _are_served(recorded):
        header, *rows = _served_cells(recorded)
        return [*lines, "", *_rows(header, rows, decision.option or "", width)]
    if decision.options:
        header, *rows = _cells(decision, costs)
        lines += ["", *_rows(header, rows, decision.option or "", width)]
    if not _are_compared(costs):
        lines += _costs([option.option for option in decision.options], costs, width)
    return lines


def _unmatched(mismatches: Mapping[str, str], width: int) -> Iterator[Line]:
    for name, reason in islice(mismatches.items(), _MOST_MISMATCHES):
        yield from terminal.fitted(harmless(f"Policy {name}: {reason}"), width)
    if (more := len(mismatches) - _MOST_MISMATCHES) > 0:
        yield f"… and {more} more"


_Costs: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Option to its cost, as ``decision_record.cost_json`` writes it."""


def _rows(
    header: Sequence[str], rows: Sequence[Sequence[str]], taken: str, limit: int | None
) -> list[Text]:
    """Return the options in columns, the one that is taken with a mark."""
    cells = [(f"{'>' if row[0] == taken else ' '} {row[0]}", *row[1:]) for row in rows]
    shown = (f"  {header[0]}", *header[1:])
    at = header.index("CLUSTER")
    if not any(row[at] for row in rows):
        shown, *cells = [(*row[:at], *row[at + 1 :]) for row in (shown, *cells)]
    return terminal.table(shown, cells, limit=limit, spare=_SPARE)


def _cells(decision: Decision, costs: _Costs) -> list[tuple[str, ...]]:
    if _are_compared(costs):
        return _compared_cells(decision, costs)
    is_forecast = any(option.forecast is not None for option in decision.options)
    header, cells_of = (_FORECAST, _forecast_cells) if is_forecast else (_COUNTED, _counted)
    return [header, *map(cells_of, decision.options)]


def _are_served(options: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether options were compared by how many replicas of a service they need."""
    return any("replicas" in option for option in options)


def _served_cells(options: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return recorded options of a service in columns, with what an hour costs."""
    costs = [option["cost"] for option in options if isinstance(option.get("cost"), dict)]
    columns = {
        column: term
        for column, term in _HOURLY.items()
        if column not in _MAY_BE_NOTHING or any(cost.get(term) for cost in costs)
    }
    header = (*_SERVED, *columns, _WHY)
    return [header, *(_served_row(option, columns) for option in options)]


def _served_row(option: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[str, ...]:
    used: Any = option.get("utilisation")
    latency: Any = option.get("latency")
    costs = option["cost"] if isinstance(option.get("cost"), dict) else EMPTY
    return (
        *(_text(option, key) for key in ("name", "queue", "cluster")),
        _text(option, "replicas") or "-",
        f"{used:.0%}" if _is_number(used) else "-",
        brief(latency) if _is_number(latency) else "-",
        *(_amount(costs, term) for term in columns.values()),
        _text(option, "rejected") or _text(option, "passedOver") or _learned(option),
    )


def _learned(option: Mapping[str, Any]) -> str:
    points = _text(option, "learnedFrom")
    return f"learned from {points} points" if points else ""


def _are_compared(costs: _Costs) -> bool:
    """Return whether options were compared by their costs, which then have all terms."""
    return any("time" in cost for cost in costs.values())


def _columns(costs: _Costs) -> Mapping[str, str]:
    """Return the columns of costs, each with its term."""
    if not _are_compared(costs):
        return _MEASURED
    return {
        column: term
        for column, term in _TERMS.items()
        if column not in _MAY_BE_NOTHING or any(cost.get(term) for cost in costs.values())
    }


def _compared_cells(decision: Decision, costs: _Costs) -> list[tuple[str, ...]]:
    columns = _columns(costs)
    header = ("OPTION", "QUEUE", "CLUSTER", "STARTS", "DONE", *columns, _WHY)
    rows: list[tuple[str, ...]] = [header]
    for option in decision.options:
        forecast = option.forecast
        starts = "-" if forecast is None else _starts(forecast.start)
        if decision.hold is not None and option.option == decision.option:
            starts = _HELD
        finish = forecast.finish if forecast is not None else None
        cost = costs.get(option.option, EMPTY)
        rows.append(
            (
                *(option.option, option.queue, option.cluster),
                starts,
                "-" if finish is None else _moment(finish),
                *(_amount(cost, term) for term in columns.values()),
                _why_it_costs(option, cost),
            )
        )
    return rows


def _why_it_costs(option: Assessment, cost: Mapping[str, Any]) -> str:
    if option.rejection is not None or option.forecast is None:
        return _why(option)
    because = _rests_on(option, option.forecast)
    run = option.forecast.run
    if run is not None and run.basis is Basis.PROFILE:
        # Its mean counts, which is above its median.
        more = mean_seconds(run) / run.seconds - 1
        because = because.replace("(a guess)", f"(a guess), +{more:.0%} for being one", 1)
    money, congestion = cost.get("money"), cost.get("congestion")
    if money and congestion:
        because += f"; price x{1 + congestion / money:.2g} for congestion"
    return because


def _costs(names: Sequence[str], costs: _Costs, limit: int | None) -> list[Line]:
    """Return what each option would cost, in a table of its own; none where nothing is known."""
    if not any(costs.values()):
        return []
    columns = _columns(costs)
    rows = [
        (name, *(_amount(costs.get(name, EMPTY), term) for term in columns.values()))
        for name in names
    ]
    title = "Expected cost (RATES and POWER are money; ? is not known):"
    if _are_compared(costs):
        title = "Expected cost (money, but for CO2; ? is not known):"
    return ["", title, *terminal.table(("OPTION", *columns), rows, limit=limit, indent=2)]


def _amount(cost: Mapping[str, Any], term: str) -> str:
    amount: Any = cost.get(term)
    if not _is_number(amount):
        return "?"
    return f"{figure(amount)} g" if term == "carbonGrams" else figure(amount)


def _names(option: Assessment) -> tuple[str, ...]:
    return option.option, option.queue, option.cluster_queue, option.cluster


def _why(option: Assessment) -> str:
    return str(option.rejection or option.passed_over or option.detail)


def _counted(option: Assessment) -> tuple[str, ...]:
    counts = _count(option.pending), _count(option.reserving)
    return (*_names(option), _fits(option), *counts, _why(option))


def _forecast_cells(option: Assessment) -> tuple[str, ...]:
    forecast = option.forecast
    if forecast is None:
        return (*_names(option), _count(option.pending), "-", "-", "-", _why(option))
    runs = "-" if forecast.run is None else span(forecast.run.seconds)
    done = "-" if forecast.finish is None else _moment(forecast.finish)
    why = _why(option) if option.rejection is not None else _rests_on(option, forecast)
    return (
        *_names(option),
        _count(option.pending),
        _starts(forecast.start),
        runs,
        done,
        why,
    )


def _starts(start: Start) -> str:
    if not start.is_known:
        return "unknown"
    return "now" if start.seconds == 0.0 else _moment(start.seconds)


def _moment(seconds: float) -> str:
    return "never" if seconds == inf else f"in {span(seconds)}"


def _rests_on(option: Assessment, forecast: Forecast) -> str:
    """Return what the forecast is based on, its range, who is preempted, and what is uncertain."""
    if forecast.run is None:
        return "no run time is known"
    waits = (forecast.dispatch, forecast.delay)
    passed = [str(option.passed_over)] if option.passed_over is not None else []
    parts = [
        *passed,
        f"run: {basis_of(forecast.run)}",
        *(wait.by for wait in waits if wait is not None),
    ]
    if forecast.finish_low is not None and forecast.finish_high is not None:
        parts.append(f"done within {span(forecast.finish_low)} to {span(forecast.finish_high)}")
    if option.preempts or forecast.start.preempts:
        parts.append(f"preempts {option.preempts}" if option.preempts else "may preempt")
    if forecast.start.preempted_by:
        parts.append(f"may be preempted by {forecast.start.preempted_by}")
    if forecast.start.uncertain:
        parts.append(f"uncertain: {', '.join(forecast.start.uncertain)}")
    return "; ".join(parts)


def _fits(option: Assessment) -> str:
    if option.fit is None or option.rejection is not None:
        return "refused"
    if option.starts_now:
        return "now"
    return {Fit.FITS: "yes", Fit.MAY_PREEMPT: "may preempt"}.get(option.fit, "waits")


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


_HEADER = (
    "OPTION",
    "QUEUE",
    "CLUSTERQUEUE",
    "CLUSTER",
    "FITS",
    "PENDING",
    "STARTS",
    "RUNS",
    "DONE",
    "WHY NOT",
)
_MOVES = ("SINCE", "OPTION", "REASON")


_HELD: Final = "held"
"""In place of the start of a Job that is kept from starting."""
_ENDED = dict.fromkeys(("Complete", "Completed", "Succeeded"), "complete") | {"Failed": "failed"}
"""What a Job's condition, or the status of a RayJob or AppWrapper, says of its end."""


def state_of(job: Mapping[str, Any], kind: JobKind) -> str:
    """Return the state of a Job: pending, started, complete or failed."""
    status = job.get("status") or {}
    for key in ("jobDeploymentStatus", "phase"):
        if status.get(key) in _ENDED:
            return _ENDED[status[key]]
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in _ENDED:
            return _ENDED[condition["type"]]
    # Of a Deployment and its like, what Kueue writes in place of suspending stays while pods run.
    waits = kind.is_suspended(job) and not status.get("readyReplicas")
    return "pending" if waits else "started"


def decision_on(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the decision without what undoing it needs; None: there is none that can be read."""
    try:
        record = decision_record.parsed(job["metadata"].get("annotations") or {})
    except FieldError:
        return None
    return {key: value for key, value in record.items() if key != "original"}


def undone_on(job: Mapping[str, Any]) -> str:
    """Return how a Job's decision was undone; empty: it was not."""
    annotations = job["metadata"].get("annotations") or {}
    if DECISION in annotations or annotations.get(POLICY) != OPT_OUT:
        return ""
    reason = str(annotations.get(REASON, ""))
    if not reason and UNDONE in annotations:
        return f"undone: what policy {harmless(annotations[UNDONE])} had decided"
    return harmless(reason.removeprefix(PREFIX))


def as_text(decision: Mapping[str, Any], limit: int | None) -> list[Line]:
    """Return a recorded decision in lines: its sentence, each option with its numbers, the moves.

    *limit* is the number of columns; None: no limit.
    """
    sentence = f"Policy {_text(decision, 'policy')} ({_text(decision, 'mode')}): "
    sentence += _text(decision, "reason")
    lines: list[Line] = [*terminal.fitted(sentence, limit or terminal.WRAPPED)]
    if decision.get("version") != VERSION:
        lines.append(f"Its version is {decision.get('version')}: some of it may not be shown.")
    lines += _hold(decision.get("hold"))
    options = _objects(decision, "options")
    is_held = isinstance(decision.get("hold"), dict)
    if _are_served(options):
        header, *cells = _served_cells(options)
        lines += ["", *_rows(header, cells, _text(decision, "option"), limit)]
    elif options:
        taken = _text(decision, "option")
        rows = [
            _row(option, is_held=is_held and _text(option, "name") == taken) for option in options
        ]
        lines += ["", *_rows(_HEADER, rows, taken, limit)]
        costs = {
            _text(option, "name"): option["cost"]
            for option in options
            if isinstance(option.get("cost"), dict)
        }
        lines += _costs([_text(option, "name") for option in options], costs, limit)
    history = _objects(decision, "history")
    if history:
        stays = [
            tuple(_text(stay, key) for key in ("time", "option", "reason")) for stay in history
        ]
        times = "once" if decision.get("moves") == 1 else f"{decision.get('moves')} times"
        lines += ["", f"Moved {times}:", *terminal.table(_MOVES, stays, limit=limit, indent=2)]
    return lines


def _hold(hold: Any) -> Iterator[str]:
    """Yield until when a Job was held at its decision, if it was."""
    if isinstance(hold, dict):
        until, latest = (_text(hold, key) for key in ("until", "latest"))
        saves = hold.get("saves")
        if isinstance(saves, dict) and saves.get("money") == 0:
            until = "there is room"
        yield f"Held until {until}, at the latest until {latest} (kubectl fallback release)."


def when(decision: Mapping[str, Any]) -> str:
    """Return when the decision was made: ``2026-12-01T08:00:00Z, 5 min ago``."""
    text = _text(decision, "time")
    unix = unix_of(text)
    return text if unix is None else f"{text}, {terminal.ago(max(0.0, time.time() - unix))}"


def unix_of(text: str) -> float | None:
    """Parse a time to seconds since 1970; None: it is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _row(option: Mapping[str, Any], *, is_held: bool) -> tuple[str, ...]:
    refused = _text(option, "rejected")
    fits = "yes" if option.get("fits") is True else "waits" if "fits" in option else "-"
    return (
        _text(option, "name"),
        _text(option, "queue"),
        _text(option, "clusterQueue"),
        _text(option, "cluster"),
        "refused" if refused else fits,
        _text(option, "pending"),
        _HELD if is_held else _in(option.get("startsIn")),
        _lasting(option.get("runs")),
        _in(option.get("finishesIn")),
        refused or _text(option, "passedOver"),
    )


def _in(seconds: Any) -> str:
    if seconds == 0:
        return "now"
    return f"in {_lasting(seconds)}" if _is_number(seconds) else "-"


def _lasting(seconds: Any) -> str:
    return span(seconds) if _is_number(seconds) else "-"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(source: Mapping[str, Any], key: str) -> str:
    value = source.get(key)
    return "" if value is None else harmless(str(value))


def _objects(source: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    listed = source.get(key)
    return tuple(
        entry for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict)
    )


_NAMED: Final = ("name", "key")
"""By which lists of objects are compared: a variable that is added renumbers no other."""
_KEYED: Final[Mapping[str, str]] = {
    "labels": "label",
    "annotations": "annotation",
    "nodeSelector": "node selector",
}
_WHOLE: Final[Mapping[str, str]] = {
    "env": "env",
    "tolerations": "toleration",
    "topologySpreadConstraints": "topology spread",
}
"""Lists whose items are named whole, each by its own name."""
_COMPOSITE: Final = ("toleration ", "topology spread ", "affinity")
"""Things of several values, which are not named one by one."""
_TOPOLOGY: Final = "kueue.x-k8s.io/podset-"
_NONE: Final = "none"
_WORDS: Final[Mapping[str, str]] = {
    QUEUE_LABEL: "queue",
    PRIORITY_LABEL: "priority class",
    "image": "image",
    "runtimeClassName": "runtime class",
}

_Leaf: TypeAlias = tuple[str, tuple[str, ...]]
"""Path of a value as the API server writes it, and its keys one by one."""


def changes(submitted: Mapping[str, Any], decided: Mapping[str, Any]) -> list[str]:
    """Return ``nvidia.com/gpu 1 → none`` for each thing that was changed, the queue first.

    What several containers or both requests and limits have in common is said once; a variable
    that is read from an annotation of ours counts as its value.
    """
    before = dict(_leaves(_resolved(_compared(submitted))))
    after = dict(_leaves(_resolved(_compared(decided))))
    named: dict[str, list[tuple[str | None, str | None]]] = {}
    for leaf in sorted(before.keys() | after.keys(), key=_rank):
        pair = before.get(leaf), after.get(leaf)
        if pair[0] != pair[1]:
            named.setdefault(_name(leaf), []).append(pair)
    return [line for name, pairs in named.items() for line in _said(name, pairs)]


def changed_lines(submitted: Mapping[str, Any], decided: Mapping[str, Any]) -> list[str]:
    """Return ``- path: value`` of what went and ``+ path: value`` of what came, by path."""
    before, after = dict(_leaves(_compared(submitted))), dict(_leaves(_compared(decided)))
    found = []
    for leaf in sorted(before.keys() | after.keys()):
        if before.get(leaf) == after.get(leaf):
            continue
        found += [
            f"{sign} {leaf[0]}: {value[leaf]}"
            for sign, value in (("-", before), ("+", after))
            if leaf in value
        ]
    return found


def _compared(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what people gave: labels, annotations and spec, but for the word that suspends."""
    metadata = {key: job["metadata"].get(key) or {} for key in ("labels", "annotations")}
    spec = {key: value for key, value in (job.get("spec") or {}).items() if key != "suspend"}
    return {"metadata": metadata, "spec": spec}


def _resolved(value: Any, annotations: Mapping[str, Any] | None = None) -> Any:
    """Return an object whose variables have the values that stand in annotations of ours."""
    if isinstance(value, Mapping):
        metadata = value.get("metadata")
        if isinstance(metadata, Mapping):
            annotations = metadata.get("annotations") or {}
        held = _held(value)
        if held and held in (annotations or {}):
            return {"name": value.get("name"), "value": (annotations or {})[held]}
        return {key: _resolved(below, annotations) for key, below in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_resolved(item, annotations) for item in value]
    return value


def _held(entry: Mapping[str, Any]) -> str:
    """Return the annotation of ours that a variable is read from; empty: none."""
    source: Any = entry.get("valueFrom")
    field = source.get("fieldRef") if isinstance(source, Mapping) else None
    path = str(field.get("fieldPath")) if isinstance(field, Mapping) else ""
    named = path.removeprefix("metadata.annotations['").removesuffix("']")
    return named if named.startswith(ENV_PREFIX) else ""


def _leaves(value: Any, path: str = "", keys: tuple[str, ...] = ()) -> Iterator[tuple[_Leaf, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            # Marks of ours, which nobody has to know.
            if not str(key).startswith(OURS) and not (key == "manager" and _is_ours(below)):
                yield from _leaves(below, child(path, key), (*keys, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, below in enumerate(value):
            name = _name_of(below, index)
            yield from _leaves(below, f"{path}[{name}]", (*keys, name))
    else:
        yield (path, keys), value if isinstance(value, str) else json.dumps(value)


def _is_ours(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(OURS)


def _name_of(item: Any, index: int) -> str:
    if isinstance(item, Mapping):
        for key in _NAMED:
            if isinstance(item.get(key), str):
                return str(item[key])
    return str(index)


def _rank(leaf: _Leaf) -> tuple[int, _Leaf]:
    """Order things: the queue, what is asked for, what the containers see, all else."""
    _, keys = leaf
    if keys[-1] == QUEUE_LABEL:
        return 0, leaf
    if "resources" in keys:
        return 1, leaf
    return (2 if "env" in keys else 3), leaf


def _name(leaf: _Leaf) -> str:
    """Return what people call a value."""
    path, keys = leaf
    above, key = ("", *keys)[-2:]
    if key in _WORDS:
        return _WORDS[key]
    if above in ("requests", "limits"):
        return key
    if above == "annotations" and key.startswith(_TOPOLOGY):
        return key.removeprefix(_TOPOLOGY).replace("-", " ")
    if above in _KEYED:
        return f"{_KEYED[above]} {key}"
    for whole, word in _WHOLE.items():
        if whole in keys[:-1]:
            return f"{word} {keys[keys.index(whole) + 1]}"
    return "affinity" if "affinity" in keys else path


def _said(name: str, pairs: Sequence[tuple[str | None, str | None]]) -> Iterator[str]:
    """Yield what became of a thing; of one of several values only that it changed."""
    distinct = list(dict.fromkeys(pairs))
    is_composite = name.startswith(_COMPOSITE) or (name.startswith("env ") and len(distinct) > 1)
    if not is_composite:
        for old, new in distinct:
            yield f"{name} {_shown(old)} → {_shown(new)}"
    elif all(new is None for _, new in distinct):
        yield f"{name} removed"
    else:
        yield f"{name} {'added' if all(old is None for old, _ in distinct) else 'changed'}"


def _shown(value: str | None) -> str:
    return _NONE if value is None else value or '""'
