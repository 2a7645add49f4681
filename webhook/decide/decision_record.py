"""Writes a decision as the JSON and the sentence of a Job's annotations, and reads the JSON back.

It must not know how the record is signed, nor what an undo does with the submitted values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from webhook.admission.patch import to_pointer
from webhook.model import fields
from webhook.model.costs.prices import Cost
from webhook.model.decision import (
    HISTORY_KEPT,
    Assessment,
    CreateOutcome,
    Decision,
    Fit,
    Skipped,
    Stay,
)
from webhook.model.edits import ABSENT, Edit
from webhook.model.faults import attempted
from webhook.model.fields import FieldError, field_errors
from webhook.model.forecasts import Basis, Forecast, RunTime
from webhook.model.holds import Hold
from webhook.model.job import DECISION, REASON
from webhook.model.policy.fallback_policy import Mode
from webhook.model.words import clip, harmless, rfc3339

VERSION = 1
PREFIX = "kueue-fallback: "
LONGEST = 65_536
"""Most characters of a recorded decision that is read; our own have a few thousand."""
_REASON_LIMIT = 256
"""Characters of the annotation ``reason``."""
_WHOLE_FROM = 100.0
_SMALLEST_DECIMAL = 9
"""Decimals of a cost; a chance that is next to nothing gives one of 1e-63."""
_MOST_OF_COSTS = 1000
"""Characters of all costs in a recorded decision, which the API server stores with each Job."""
_PATH = f"metadata.annotations[{DECISION}]"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_AS_WRITTEN = ConfigDict(alias_generator=to_camel, allow_inf_nan=False)


def _known_mode(given: Any) -> Any:
    # A mode that a newer version added counts as the one that changes nothing on a Job.
    is_unknown = isinstance(given, str) and given not in Mode.__members__.values()
    return Mode.OBSERVE if is_unknown else given


_NO_STAY = {"time": "", "option": "", "reason": ""}


def _number(given: Any) -> int | float | None:
    return given if type(given) in (int, float) else None


_Amount: TypeAlias = int | float
_Seconds = Annotated[_Amount | None, BeforeValidator(_number)]
"""What is no number cannot be meant, and counts as not known."""
_Count = Annotated[int | None, BeforeValidator(lambda given: given if type(given) is int else None)]
_Shown = Annotated[str, AfterValidator(harmless)]
"""Anybody may write it, and people see it in lines and tables, of which it must not make more."""
_Name = Annotated[_Shown, Field(max_length=253)]
"""Kubernetes allows no longer name of any object."""


def _stay(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    texts = {key: text for key, text in given.items() if isinstance(text, str)}
    return {**_NO_STAY, **given, **{key: harmless(text) for key, text in texts.items()}}


_Stay = Annotated[Stay, BeforeValidator(_stay)]
_History = Annotated[
    tuple[_Stay, ...], FailFast(), AfterValidator(lambda stays: stays[-HISTORY_KEPT:])
]
"""We write no more stays than are kept, so further ones are not ours."""


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
    return {name: _short(amount) for name, amount in amounts.items() if amount is not None}


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


_Clusters = Annotated[
    # Assessments, of which no JSON is read.
    tuple[Any, ...],
    BeforeValidator(lambda _: ()),
    PlainSerializer(lambda clusters: list(map(_cluster_json, clusters))),
]
"""They are for who reads the JSON: nothing asks a recorded decision about them."""
_Range = tuple[_Amount, _Amount] | None


def _queue(given: Any) -> Any:
    return given.get("queue", "") if isinstance(given, dict) else ""


def _hold(given: Any) -> Hold | None:
    """Read what ``_hold_json`` writes; what cannot be read is no hold, so that it ends at once."""
    found, _ = attempted(lambda: _read_hold(given))
    return found


def _read_hold(given: Any) -> Hold:
    saves = given["saves"]
    usage = {(str(flavor), str(name)): int(amount) for flavor, name, amount in given["quota"]}
    return Hold(
        until=fields.seconds_since_1970(given["until"], _PATH),
        latest=fields.seconds_since_1970(given["latest"], _PATH),
        saves=float(saves["money"]),
        of=float(saves["of"]),
        grams=saves.get("carbonGrams"),
        of_grams=saves.get("ofCarbonGrams"),
        seconds=float(given["seconds"]),
        usage=usage,
        job_class=str(given.get("class", "")),
    )


def _hold_json(hold: Hold) -> dict[str, Any]:
    saves = {"money": _short(hold.saves), "of": _short(hold.of)}
    if hold.grams is not None and hold.of_grams is not None:
        saves |= {"carbonGrams": _short(hold.grams), "ofCarbonGrams": _short(hold.of_grams)}
    return {
        "until": rfc3339(hold.until),
        "latest": rfc3339(hold.latest),
        "saves": saves,
        "seconds": round(hold.seconds),
        "class": hold.job_class,
        "quota": [[*cell, amount] for cell, amount in sorted(hold.usage.items())],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOption:
    """What a decision said of one option; times in seconds from then on, None: not known.

    A field that has its default is not written.
    """

    # Anybody who may edit the Job can have changed it, so every field is checked and bounded.
    __pydantic_config__ = _AS_WRITTEN

    name: _Shown = ""
    queue: _Shown = ""
    cluster_queue: _Shown = ""
    cluster: _Shown = ""
    """The worker cluster where it was expected to run; empty: this one, or not known."""
    clusters: _Clusters = ()
    fits: bool | None = None
    preempts: _Count = None
    pending: _Count = None
    unknown_ahead: _Count = None
    """How many Workloads of unknown run time it would wait for."""
    start_unknown: _Shown = ""
    """Why it is not known what would be admitted before it."""
    starts_in: _Seconds = None
    starts_between: _Range = None
    """As all ranges: it holds about 80 %."""
    may_be_preempted_by: _Count = None
    uncertain: Annotated[tuple[_Shown, ...], FailFast()] = ()
    starts_by: _Shown = ""
    delay: _Seconds = None
    delay_by: _Shown = ""
    runs: _Seconds = None
    runs_between: _Range = None
    runs_by: _Shown = ""
    """What ``runs`` rests on, so that people can judge it (decision 0010)."""
    finishes_in: _Seconds = None
    finishes_between: _Range = None
    cost: _Cost = None
    rejected: _Shown = ""
    """Why it was refused, in words after the ``Reason``; empty: it was not."""
    passed_over: _Shown = ""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A decision as it is read back from a Job; of a newer version only the version is read."""

    # The fields are in the order in which they are written, and as for an option are checked.
    __pydantic_config__ = _AS_WRITTEN

    version: Annotated[StrictInt, Field(ge=1)]
    id: _Name
    time: _Shown
    policy: _Name
    mode: Annotated[Mode, BeforeValidator(_known_mode)]
    """Observe also where it is not known, so that nobody takes the Job for one that was changed."""
    # By it a match condition lets the API server leave out the second call (decision 0008).
    option: Annotated[_Name | None, AfterValidator(lambda name: name or None)] = None
    left_alone: _Shown = ""
    """Why no option was taken, a value of ``LeftAlone``; empty: one was, or it was not recorded."""
    reason: _Shown
    from_queue: Annotated[
        _Name,
        Field(alias="from"),
        BeforeValidator(_queue),
        PlainSerializer(lambda queue: {"queue": queue}),
    ]
    state_age: _Seconds = None
    hold: Annotated[Hold | None, BeforeValidator(_hold), PlainSerializer(_hold_json)] = None
    """How long it was to be held; None: it was not, or that cannot be read."""
    changed: Annotated[tuple[_Shown, ...], FailFast()] = ()
    moves: Annotated[StrictInt, Field(ge=0)] = 0
    history: _History = ()
    options: Annotated[tuple[RecordedOption, ...], FailFast()]
    """The options, as they were at the decision or the last move."""
    original: dict[str, Any] = field(default_factory=dict)
    """JSON Pointer to what was submitted there, as ``admission.patch`` writes it."""

    @property
    def unix(self) -> float:
        """``time`` in seconds since 1970; 0: it cannot be read."""
        return _unix(self.time)

    def elsewhere(self, queue: str) -> frozenset[str]:
        """Return the ClusterQueues of all options except that of the LocalQueue *queue*."""
        # An option whose queues were not found has no ClusterQueue.
        cluster_queues = {
            option.queue: option.cluster_queue for option in self.options if option.cluster_queue
        }
        others = {there for name, there in cluster_queues.items() if name and name != queue}
        return frozenset(others - {cluster_queues.get(queue)})

    @property
    def expected_cost(self) -> Cost | None:
        """What it was expected to cost as it was submitted; None: not known."""
        here = (option.cost for option in self.options if option.queue == self.from_queue)
        return next(here, None)

    @property
    def is_newer(self) -> bool:
        """Return whether a newer version of this program wrote it: only that one can undo it."""
        return self.version > VERSION

    @property
    def moved_unix(self) -> float:
        """When the Job was last moved, in seconds since 1970; 0: never, or it cannot be read."""
        return _unix(self.history[-1].time) if self.moves and self.history else 0.0


_RECORDED: Final = TypeAdapter(Recorded)
_ABSENT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("id", "time", "policy", "reason"), ""),
    "mode": Mode.OBSERVE,
    "from": None,
    "options": (),
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
    """Return what is recorded of a decision; what an undo puts back is not known here."""
    return Recorded(
        version=VERSION,
        id=decision.id,
        time=decision.time,
        policy=decision.policy,
        mode=decision.mode,
        option=decision.option,
        left_alone=str(decision.left_alone or ""),
        reason=decision.reason,
        from_queue=decision.from_queue,
        state_age=_plain(round(decision.state_age_seconds, 3)),
        hold=decision.hold,
        changed=decision.changed,
        moves=decision.moves,
        history=decision.history if decision.moves else (),
        options=tuple(map(_recorded_option, decision.options)),
    )


def _written(record: Recorded, left_out: Any) -> dict[str, Any]:
    """Return a record as JSON, without some fields and those that have their defaults."""
    written: dict[str, Any] = _RECORDED.dump_python(
        record,
        mode="json",
        by_alias=True,
        exclude=left_out,
        exclude_defaults=True,
        # Whole numbers stay so, where a fraction is possible.
        warnings=False,
    )
    return written


def to_json(decision: Decision, original: Mapping[str, Any]) -> str:
    """Write the Job's annotation: compact, with times in seconds; what is unknown is left out.

    *original* is what an undo puts back. What stands elsewhere on the Job is left out, as
    ``parsed`` finds it there; what neither an undo nor ``explain`` needs is in the log alone.
    """
    record = _written(record_of(decision), _ON_JOB)
    if decision.moves and decision.history and decision.history[-1].reason == decision.reason:
        del record["history"][-1]["reason"]
    record["options"] = _with_short_costs(record["options"], record.get("option"))
    return _ENCODER.encode({**record, "original": original})


def _with_short_costs(
    options: Sequence[Mapping[str, Any]], taken: str | None
) -> list[Mapping[str, Any]]:
    """Return the options with costs that make an annotation at most ``_MOST_OF_COSTS`` longer.

    Where they are longer, terms of nothing go first, then all but the sums, of those not taken.
    """
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


def decision_json(decision: Decision) -> dict[str, Any]:
    """Return a decision as JSON, without what is needed to undo it."""
    return _written(record_of(decision), _FOR_PEOPLE)


def outcome_json(outcome: CreateOutcome) -> dict[str, Any]:
    """Return the outcome of a create as JSON: the skip or the decision, the edits, the warnings."""
    answer: dict[str, Any] = {}
    if isinstance(outcome, Skipped):
        answer["skip"] = str(outcome.skip)
    else:
        answer["decision"] = decision_json(outcome.decision)
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
    """Return the reason that ``said`` made; empty: there is none of ours."""
    # Nobody signs it, so whoever may edit the Job may have written it.
    if not isinstance(said, str) or not said.startswith(PREFIX):
        return ""
    return said[len(PREFIX) : _REASON_LIMIT].encode(errors="replace").decode()


def reason_of(decision: Decision) -> str:
    """Return the decision's reason as the Job's annotation has it, at most 256 characters."""
    return said(decision.reason)


def said(reason: str) -> str:
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
        clusters=option.clusters,
        fits=None if option.fit is None else option.fit is Fit.FITS,
        preempts=option.preempts or None,
        pending=option.pending,
        cost=option.cost,
        rejected=str(option.rejection or ""),
        passed_over=str(option.passed_over or ""),
        **figures,
    )


def _short(amount: float) -> float:
    """Round to three digits that count; whole numbers have no decimals."""
    return _plain(round(float(f"{amount:.3g}"), _SMALLEST_DECIMAL))


def _plain(amount: float) -> float:
    """Return a number that JSON writes without ``.0``."""
    return int(amount) if amount == int(amount) else amount


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
    return _plain(round(amount, 1)) if amount < _WHOLE_FROM else round(amount)


def _edit_json(edit: Edit) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": to_pointer(edit.path)}
    if edit.value is ABSENT:
        return {**entry, "removed": True}
    return {**entry, "value": edit.value}


def _unix(time: str) -> float:
    try:
        return fields.seconds_since_1970(time, _PATH)
    except FieldError:
        return 0.0
