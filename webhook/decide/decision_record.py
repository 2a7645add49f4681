"""Writes a decision as the JSON and the sentence of a Job's annotations, and reads the JSON back.

It must not know how the record is signed, nor what an undo does with the submitted values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    FailFast,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from webhook.admission.patch import to_pointer
from webhook.model import fields
from webhook.model.costs.prices import Cost
from webhook.model.costs.service import ServiceLevel
from webhook.model.decision import (
    VERSION,
    Assessment,
    CreateOutcome,
    Decision,
    DecisionWith,
    Fit,
    ShownText,
    Skipped,
)
from webhook.model.edits import ABSENT, Edit
from webhook.model.fields import FieldError, field_errors
from webhook.model.forecasts import Basis, Forecast, RunTime
from webhook.model.job import DECISION, REASON
from webhook.model.policy.fallback_policy import Mode
from webhook.model.words import clip, plain_number, three_digits

PREFIX = "kueue-fallback: "
LONGEST = 65_536
"""Most characters of a recorded decision that is read; our own have a few thousand."""
_REASON_LIMIT = 256
"""Characters of the annotation ``reason``."""
_WHOLE_FROM = 100.0
_MOST_OF_COSTS = 1000
"""Characters of all costs in a recorded decision, which the API server stores with each Job."""
_PATH = f"metadata.annotations[{DECISION}]"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_AS_WRITTEN = ConfigDict(alias_generator=to_camel, allow_inf_nan=False)


def _number(given: Any) -> int | float | None:
    return given if type(given) in (int, float) else None


_Amount: TypeAlias = int | float
_Seconds = Annotated[_Amount | None, BeforeValidator(_number)]
"""What is no number cannot be meant, and counts as not known."""
_Count = Annotated[int | None, BeforeValidator(lambda given: given if type(given) is int else None)]
_COSTS: Final[Mapping[str, str]] = {
    "money": "money",
    "electricity": "electricity",
    "carbonGrams": "carbon_grams",
    "kWh": "kwh",
    "time": "time",
    "lateness": "lateness",
    "congestion": "congestion",
    "transfer": "transfer",
}
"""Key of a recorded cost to the field of ``Cost``."""


def cost_json(cost: Cost) -> dict[str, float]:
    """Return what an option costs, to three digits; what is not known is left out."""
    amounts = {key: getattr(cost, name) for key, name in _COSTS.items()} | {"total": cost.total}
    return {name: three_digits(amount) for name, amount in amounts.items() if amount is not None}


def _cost(given: Any) -> Cost | None:
    """Read what ``cost_json`` writes; what is no number is not known."""
    if not isinstance(given, dict):
        return None
    amounts = {
        field: given[key]
        for key, field in _COSTS.items()
        if type(given.get(key)) in (int, float) and isfinite(given[key])
    }
    return Cost(**amounts) if amounts else None


_Cost = Annotated[Cost | None, BeforeValidator(_cost), PlainSerializer(cost_json, dict[str, Any])]


def _cluster_json(there: Assessment) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": there.cluster}
    if there.cluster_queue:
        entry["clusterQueue"] = there.cluster_queue
    if there.fit is not None:
        entry |= {"fits": there.fit is Fit.FITS, "pending": there.pending}
    # JSON has no number for infinity: what never starts is left out.
    if there.forecast is not None and there.forecast.start.seconds < inf:
        entry["startsIn"] = _seconds(there.forecast.start.seconds)
    if there.rejection is not None:
        entry["rejected"] = there.rejection.detail
    return entry


_Clusters = Annotated[tuple[Mapping[str, Any], ...], BeforeValidator(lambda _: ())]
"""They are for who reads the JSON: nothing asks a recorded decision about them."""
_Range = tuple[_Amount, _Amount] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOption:
    """What a decision said of one option; times in seconds from then on, None: not known.

    A field that has its default is not written.
    """

    # Anybody who may edit the Job can have changed it, so every field is checked and bounded.
    __pydantic_config__ = _AS_WRITTEN

    name: ShownText = ""
    queue: ShownText = ""
    cluster_queue: ShownText = ""
    cluster: ShownText = ""
    """The worker cluster where it was expected to run; empty: this one, or not known."""
    clusters: _Clusters = ()
    fits: bool | None = None
    preempts: _Count = None
    pending: _Count = None
    unknown_ahead: _Count = None
    """How many Workloads of unknown run time it would wait for."""
    start_unknown: ShownText = ""
    """Why it is not known what would be admitted before it."""
    starts_in: _Seconds = None
    starts_between: _Range = None
    """As all ranges: it holds about 80 %."""
    may_be_preempted_by: _Count = None
    uncertain: Annotated[tuple[ShownText, ...], FailFast()] = ()
    starts_by: ShownText = ""
    delay: _Seconds = None
    delay_by: ShownText = ""
    runs: _Seconds = None
    runs_between: _Range = None
    runs_by: ShownText = ""
    """What ``runs`` rests on, so that people can judge it (docs/log.md)."""
    finishes_in: _Seconds = None
    finishes_between: _Range = None
    replicas: _Count = None
    """Of a service that says its request rate, whose ``cost`` is that of an hour."""
    utilisation: _Seconds = None
    """Its rate by what all replicas can answer."""
    learned_from: _Count = None
    """From how many points what a replica does was learned; None: the policy says it."""
    latency: _Seconds = None
    """The 95th percentile, in seconds."""
    cost: _Cost = None
    rejected: ShownText = ""
    """Why it was refused, in words after the ``Reason``; empty: it was not."""
    passed_over: ShownText = ""
    """Why it was not taken though it was better, in words after the value of ``Stayed``; empty: it
    was not."""

    @property
    def rejected_for(self) -> str:
        """The ``Reason`` of its refusal alone; empty: it was not refused."""
        return self.rejected.partition(":")[0]

    @property
    def passed_over_for(self) -> str:
        """The value of ``Stayed`` alone; empty: it was not passed over."""
        return self.passed_over.partition(":")[0]


Recorded: TypeAlias = DecisionWith[RecordedOption]
"""A decision as it is read back from a Job; of a newer version only the version is read."""
_RECORDED: Final = TypeAdapter(Recorded)
_ABSENT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("id", "time", "policy", "reason"), ""),
    "mode": Mode.OBSERVE,
    "from": None,
    "stateAge": None,
}
"""What counts where a field is not there that we always write."""


def whole(source: Any) -> Any:
    """Return a recorded decision's JSON with what counts where it leaves something out."""
    return {**_ABSENT, **source} if isinstance(source, dict) else source


_ON_JOB: Final = {
    "original": True,
    "reason": True,
    "options": {"__all__": {"runs_between", "finishes_between"}},
}
"""What an annotation leaves out: neither an undo nor ``explain`` needs it, or it stands elsewhere.
``original`` is written as it is."""
_FOR_PEOPLE: Final = {"original"}
"""What the log and answers leave out: only an undo needs it."""


def record_of(decision: Decision) -> Recorded:
    """Return what is recorded of a decision."""
    made: Any = decision
    recorded: Recorded = replace(made, options=tuple(map(_recorded_option, decision.options)))
    return recorded


def elsewhere(recorded: Recorded, queue: str) -> frozenset[str]:
    """Return the ClusterQueues of all options except that of the LocalQueue *queue*."""
    # An option whose queues were not found has no ClusterQueue.
    cluster_queues = {
        option.queue: option.cluster_queue for option in recorded.options if option.cluster_queue
    }
    others = {there for name, there in cluster_queues.items() if name and name != queue}
    return frozenset(others - {cluster_queues.get(queue)})


def _written(record: Recorded, left_out: Any) -> dict[str, Any]:
    """Return a record as JSON, without some fields and those that have their defaults."""
    written = _RECORDED.dump_python(
        record,
        mode="json",
        by_alias=True,
        exclude=left_out,
        exclude_defaults=True,
        # Whole numbers stay so, where a fraction is possible.
        warnings=False,
    )
    return {"version": record.version, **written, "options": written.get("options", [])}


def to_json(recorded: Recorded, original: Mapping[str, Any]) -> str:
    """Write the Job's annotation: compact, with times in seconds; what is unknown is left out.

    *original* is what an undo puts back. What stands elsewhere on the Job is left out, as
    ``parsed`` finds it there; what neither an undo nor ``explain`` needs is in the log alone.
    """
    record = _written(recorded, _ON_JOB)
    if recorded.moves and recorded.history and recorded.history[-1].reason == recorded.reason:
        del record["history"][-1]["reason"]
    record["options"] = _with_short_costs(record["options"], record.get("option"))
    return _ENCODER.encode({**record, "original": original})


def _with_short_costs(
    options: Sequence[Mapping[str, Any]], taken: str | None
) -> list[Mapping[str, Any]]:
    """Return the options with costs that make an annotation at most ``_MOST_OF_COSTS`` longer.

    Where they are longer, terms of nothing go first, then all but the sums, of those not taken.
    """
    if not [option for option in options if "cost" in option]:
        return list(options)
    for shorten in (_whole, _without_nothing, _sums):
        costs = {
            option["name"]: shorten(option["cost"]) if option["name"] != taken else option["cost"]
            for option in options
            if "cost" in option
        }
        if sum(len(_ENCODER.encode({"cost": cost})) for cost in costs.values()) <= _MOST_OF_COSTS:
            break
    return [
        {**option, "cost": costs[option["name"]]} if "cost" in option else option
        for option in options
    ]


def _whole(cost: Mapping[str, float]) -> Mapping[str, float]:
    return cost


def _without_nothing(cost: Mapping[str, float]) -> Mapping[str, float]:
    return {term: amount for term, amount in cost.items() if amount}


def _sums(cost: Mapping[str, float]) -> Mapping[str, float]:
    return {term: cost[term] for term in ("money", "electricity", "total") if term in cost}


def decision_json(record: Recorded) -> dict[str, Any]:
    """Return a decision as JSON, without what is needed to undo it."""
    return _written(record, _FOR_PEOPLE)


def outcome_json(outcome: CreateOutcome) -> dict[str, Any]:
    """Return the outcome of a create as JSON: the skip or the decision, the edits, the warnings."""
    answer: dict[str, Any] = {}
    if isinstance(outcome, Skipped):
        answer["skip"] = str(outcome.skip)
    else:
        answer["decision"] = decision_json(record_of(outcome.decision))
    answer["edits"] = [_edit_json(edit) for edit in outcome.edits]
    answer["warnings"] = list(outcome.warnings)
    return answer


def from_annotations(annotations: Mapping[str, Any]) -> Recorded:
    """Read the decision on a Job back; of one that a newer version wrote only the version is read.

    Raises:
        FieldError: what stands there is no decision.

    """
    return from_object(parsed(annotations))


def from_object(source: Mapping[str, Any]) -> Recorded:
    """Read a decision from its JSON object, as ``decision_json`` writes it.

    Raises:
        FieldError: it is no decision.

    """
    version = source.get("version")
    if "version" not in source:
        raise FieldError(f"{_PATH}.version", "expected, but not there")
    if type(version) is int and version > VERSION:
        source = {"version": version}
    try:
        return _RECORDED.validate_python(whole(source))
    except ValidationError as error:
        first = field_errors(error, {})[0]
        raise FieldError(f"{_PATH}.{first.path}", first.message) from None


def parsed(annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the whole JSON object of the decision on a Job, bounded in size, depth and numbers.

    Its sentence is put where older versions wrote it.

    Raises:
        FieldError: it is no JSON object.

    """
    text = fields.text(annotations, DECISION, "metadata.annotations")
    source = dict(fields.from_json(text, _PATH, longest=LONGEST))
    if source.get("version") != VERSION:
        return source
    history = source.get("history")
    source.setdefault("reason", _sentence(annotations.get(REASON)))
    if isinstance(history, list) and history and isinstance(history[-1], dict):
        history[-1].setdefault("reason", source["reason"])
    return source


def _sentence(said: Any) -> str:
    """Return the reason that ``reason_annotation`` made; empty: there is none of ours."""
    # Nobody signs it, so whoever may edit the Job may have written it.
    if not isinstance(said, str) or not said.startswith(PREFIX):
        return ""
    return said[len(PREFIX) : _REASON_LIMIT].encode(errors="replace").decode()


def reason_annotation(reason: str) -> str:
    """Return a decision's reason as the Job's annotation has it, at most 256 characters."""
    return clip(PREFIX + reason, _REASON_LIMIT)


def _recorded_option(option: Assessment) -> RecordedOption:
    forecast = option.forecast
    figures = _figures(forecast) if forecast is not None else {}
    # Without forecasts, as under Threshold, what fits now is still known to start now.
    if forecast is None and option.starts_now:
        figures = {"starts_in": 0}
    return RecordedOption(
        name=option.option,
        queue=option.queue,
        cluster_queue=option.cluster_queue,
        cluster=option.cluster,
        clusters=tuple(map(_cluster_json, option.clusters)),
        fits=None if option.fit is None else option.fit is Fit.FITS,
        preempts=option.preempts or None,
        pending=option.pending,
        cost=option.cost,
        rejected=str(option.rejection or ""),
        passed_over=str(option.passed_over or ""),
        **figures,
        **(_of_service(option.service) if option.service is not None else {}),
    )


def _of_service(level: ServiceLevel) -> dict[str, Any]:
    """Return how a service does as an option's fields; what never ends is not known."""
    return {
        "replicas": level.replicas,
        "utilisation": three_digits(level.utilisation),
        "learned_from": level.points or None,
        "latency": three_digits(level.latency) if level.latency < inf else None,
    }


def _figures(forecast: Forecast) -> dict[str, Any]:
    """Return a forecast as an option's fields; a start or finish that never comes is not known."""
    run, start, delay = forecast.run, forecast.start, forecast.delay
    figures: dict[str, Any] = {
        "unknown_ahead": start.unseen or None,
        "start_unknown": start.unordered,
        "may_be_preempted_by": start.preempted_by or None,
        "uncertain": start.uncertain,
        "starts_by": forecast.dispatch.by if forecast.dispatch is not None else "",
    }
    # A start that is not known is a mere guess, so no figure is given (decision 0023).
    if start.is_known and start.seconds < inf:
        figures["starts_in"] = _seconds(start.seconds)
        figures["starts_between"] = _between(start.low, start.high)
    if delay is not None:
        figures |= {"delay": _seconds(delay.seconds), "delay_by": delay.by}
    if run is not None:
        figures["runs"] = _seconds(run.seconds)
        figures["runs_between"] = (_seconds(run.low), _seconds(run.high))
        figures["runs_by"] = basis_of(run)
    if forecast.finish is not None and forecast.finish < inf:
        figures["finishes_in"] = _seconds(forecast.finish)
        figures["finishes_between"] = _between(forecast.finish_low, forecast.finish_high)
    return figures


def _between(low: float | None, high: float | None) -> tuple[float, float] | None:
    if low is None or high is None or high <= low:
        return None
    return _seconds(low), _seconds(high)


def basis_of(run: RunTime) -> str:
    """Return what an expected run time rests on, in words."""
    runs = f"{run.runs} run{'' if run.runs == 1 else 's'}"
    return {
        Basis.LEARNED: f"learned from {runs}",
        Basis.SLOWDOWN: f"the first option's {runs} and the policy's slowdown",
        Basis.ANNOTATION: "the Job's annotation run-time"
        + (f", scaled by {runs}" if run.runs else ""),
        Basis.POLICY: "the policy",
        Basis.PROFILE: "the devices' speed (a guess)",
    }[run.basis]


def _seconds(amount: float) -> float:
    """Round seconds to what is worth reading: tenths below 100, else whole ones."""
    return plain_number(round(amount, 1)) if amount < _WHOLE_FROM else round(amount)


def _edit_json(edit: Edit) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": to_pointer(edit.path)}
    if edit.value is ABSENT:
        return {**entry, "removed": True}
    return {**entry, "value": edit.value}
