"""Gains laid out for a terminal of 100 columns, and as JSON for programs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.hindsight.bills import KINDS
from webhook.hindsight.gains import NOBODY, Confidence, Gains, day_of
from webhook.hindsight.savings_record import Gained, Sum, rounded
from webhook.model.tables import aligned
from webhook.model.words import carbon, figure, rfc3339
from webhook.simulate.comparison import HERE, duration

VERSION: Final = 1
OTHERS: Final = "(others)"
"""Jobs that no policy matches, in the queues that the others use."""
_BY_OTHERS: Final = "BY OTHERS"
"""Jobs that stayed are sooner, or later, because others were moved."""
_NAMES: Final = ("POLICY", "NAMESPACE", "SEEN")
_DONE: Final = (*_NAMES, "MOVED", "STAYED", "SAVED", _BY_OTHERS, "A JOB", "SLOWER")
_PROMISED: Final = (*_NAMES, "WOULD MOVE", "STAY", "SAVE", _BY_OTHERS, "A JOB", "SLOWER")
_CLUSTERS: Final = ("RAN IN", "STARTED", "WAIT", "SAVED", "A JOB", "SLOWER")
_KIND: Final = "KIND"
_WIDE: Final = ("RECONSIDERED", "ENDED", "ASSUMED", "WHY NOT MOVED")


def as_text(gains: Gains, *, wide: bool = False) -> str:
    lines = [line for sums in gains.whole for line in _headline(sums)]
    lines.append(_title(gains))
    kinds = len({row.kind for row in gains.rows}) > 1
    for header, rows in (
        (_DONE, [row for row in gains.rows if row.mode == "Enforce"]),
        (_PROMISED, [row for row in gains.rows if row.mode not in ("Enforce", "")]),
        (("QUEUES' " + _DONE[0], *_DONE[1:]), [row for row in gains.rows if not row.mode]),
    ):
        if rows:
            lines += ["", *_rows(header, rows, wide=wide, kinds=kinds)]
    lines += _days(gains.days)
    lines += _costs(gains, kinds=kinds)
    if not wide:
        lines += ["", *_whys(gains.rows, kinds=kinds)]
    below = [*_clusters(gains.clusters), *_sure(gains), *_assumed(gains.rows)]
    return "\n".join([*lines, "", *below])


def _headline(sums: Gained) -> Iterator[str]:
    """Yield what was gained in all, the best number first."""
    done = "were" if sums.is_enforced else "would be"
    if not sums.moved:
        yield f"None of the {sums.jobs} that have ended {done.replace('were', 'was')} moved."
        yield from _by_others(sums)
        return
    than = "sooner" if sums.percent >= 0 else "later"
    text = f"Jobs {done} done {abs(sums.percent):.1f} % {than} (in {_means(sums)})"
    if round(sums.device_hours, 2):
        back = "given back" if sums.device_hours > 0 else "taken in addition"
        text += f", and {abs(sums.device_hours):,.2f} GPU hours {done} {back}"
    yield f"{text}."
    yield f"{sums.moved} of the {sums.jobs} that have ended {done} moved."


def _means(sums: Gained) -> str:
    times = (sums.after_seconds, sums.before_seconds)
    return ", not ".join(duration(seconds / sums.jobs) for seconds in times)


def _by_others(sums: Gained) -> Iterator[str]:
    """Yield what moves of others gave Jobs of which none was moved."""
    if round(sums.percent, 1):
        made = "made" if sums.is_enforced else "would make"
        than = "sooner" if sums.percent >= 0 else "later"
        much = f"{abs(sums.percent):.1f} % {than} (done in {_means(sums)})"
        yield f"Moves of others {made} them {much}."


_DAYS: Final = ("DAY", "JOBS", "MOVED", "SOONER", "INSTEAD OF", "NOW", "GPU HOURS")


def _days(days: Sequence[Gained]) -> list[str]:
    """Return a table by day, where there are several."""
    lines: list[str] = []
    for is_enforced in (True, False):
        rows = [
            (
                day_of(each),
                str(each.jobs),
                str(each.moved),
                f"{each.percent:+.1f} %",
                duration(each.before_seconds / each.jobs),
                duration(each.after_seconds / each.jobs),
                f"{each.device_hours:+.2f}",
            )
            for each in days
            if each.is_enforced is is_enforced
        ]
        if len(rows) > 1:
            header = ("WOULD BE, BY " + _DAYS[0], *_DAYS[1:])
            lines += ["", *aligned([_DAYS if is_enforced else header, *rows], left=1)]
    return lines


def _assumed(rows: Sequence[Gained]) -> list[str]:
    """Say how many of the moved Jobs are compared by a run time that was never observed."""
    assumed, moved = sum(row.assumed for row in rows), sum(row.moved for row in rows)
    if not assumed:
        return []
    return [
        f"Assumed: for {assumed} of {moved} moved Jobs the policy's slowdown, as none ran there."
    ]


def as_json(gains: Gains) -> dict[str, Any]:
    """Return seconds as numbers, instants as RFC 3339; unknown is null."""
    sure = gains.confidence
    return {
        "version": VERSION,
        "since": rfc3339(gains.since),
        "until": rfc3339(gains.until),
        "rows": [_row_json(row) for row in gains.rows],
        "makespan": {
            key: None if sure is None else _rounded(getattr(sure, name))
            for key, name in _MAKESPANS.items()
        },
        "sureness": _confidence_json(sure) if sure else None,
        "leftOut": gains.left_out,
        "byCluster": [_cluster_json(cluster) for cluster in gains.clusters],
        "unknownClusters": list(gains.unseen),
        "currency": gains.currency or None,
        "whole": [{"day": None, **_day_json(each)} for each in gains.whole],
        "days": [{"day": day_of(each), **_day_json(each)} for each in gains.days],
    }


_MAKESPANS: Final[Mapping[str, str]] = {
    "real": "real",
    "replayed": "happened",
    "withoutDecisions": "static",
    "withPolicies": "promised",
}


def _day_json(sums: Gained) -> dict[str, Any]:
    return {
        "enforced": sums.is_enforced,
        "jobs": sums.jobs,
        "moved": sums.moved,
        "turnaroundSecondsBefore": _rounded(sums.before_seconds),
        "turnaroundSeconds": _rounded(sums.after_seconds),
        "soonerPercent": _rounded(sums.percent),
        "deviceHoursGivenBack": round(sums.device_hours, 2),
    }


def _cluster_json(cluster: Gained) -> dict[str, Any]:
    return {
        "cluster": cluster.cluster or None,
        "started": cluster.started,
        "meanWaitSeconds": _rounded(cluster.waited_seconds / cluster.started),
        "ended": cluster.jobs,
        "savedSeconds": _rounded(_saved(cluster)),
        "slower": cluster.slower,
    }


def _row_json(row: Gained) -> dict[str, Any]:
    return {
        "policy": row.policy or None,
        "namespace": row.namespace,
        "kind": row.kind,
        "mode": row.mode or None,
        "seen": row.seen,
        "moved": row.moved if _is_moved_known(row) else None,
        "reconsidered": row.reconsidered,
        "stayed": dict(row.stayed),
        "ended": row.jobs,
        "savedSeconds": _rounded(_saved(row)),
        "savedByOthersSeconds": _rounded(row.by_others_seconds),
        "savedSecondsOff": _rounded(row.margin_seconds),
        "savedSecondsMean": _rounded(_mean(row)),
        "slower": row.slower,
        "assumed": row.assumed,
        "notReplayed": row.unseen,
        "cost": _bill_json(row),
    }


def _bill_json(row: Gained) -> dict[str, Any]:
    """Return sums of what is known; a kind that is known of no Job is left out."""
    return {
        "jobs": row.ended,
        **{_KEYS[kind]: amount for kind, amount in rounded(row.spent).items()},
        "knownOf": {_KEYS[kind]: total.jobs for kind, total in row.spent.items()},
        "saved": {_KEYS[kind]: amount for kind, amount in rounded(row.saved).items()},
        "late": row.late,
        "deadlines": row.deadlines,
    }


_KEYS: Final[Mapping[str, str]] = {"money": "money", "kwh": "kWh", "grams": "carbonGrams"}


def _confidence_json(confidence: Confidence) -> dict[str, Any]:
    return {
        "jobs": confidence.jobs,
        "turnaroundOffPercent": _rounded(confidence.turnaround),
        "makespanOffPercent": _rounded(confidence.makespan),
        "oneJobOffPercent": _rounded(confidence.one_job),
        "forecastsChecked": confidence.forecasts,
        "forecastOffPercent": _rounded(confidence.forecast),
    }


def _title(gains: Gains) -> str:
    seen = sum(row.seen for row in gains.rows if row.policy != NOBODY)
    span = duration(gains.until - gains.since)
    return f"Since {rfc3339(gains.since)} ({span}) policies have seen {seen} Jobs."


def _rows(header: Sequence[str], rows: Sequence[Gained], *, wide: bool, kinds: bool) -> list[str]:
    """Return the table; with a column of *kinds* where there are Jobs of several."""
    cells = [(*header, *_WIDE) if wide else tuple(header)]
    cells += [(*_cells(row), *_wide(row)) if wide else _cells(row) for row in rows]
    if not kinds:
        return aligned(cells, left=2)
    named = [_KIND, *(row.kind for row in rows)]
    cells = [(*line[:2], kind, *line[2:]) for kind, line in zip(named, cells, strict=True)]
    return aligned(cells, left=3)


def _cells(row: Gained) -> tuple[str, ...]:
    saved, is_known = _saved(row), _is_moved_known(row)
    own = None if saved is None or not row.moved else saved - row.by_others_seconds
    margin = row.margin_seconds
    return (
        row.policy or OTHERS,
        row.namespace,
        str(row.seen),
        str(row.moved) if is_known else "-",
        str(row.seen - row.moved) if is_known else "-",
        duration(own) + (f" ±{duration(margin)}" if own is not None and margin else ""),
        "-" if saved is None else duration(row.by_others_seconds),
        duration(_mean(row)),
        "-" if saved is None else str(row.slower),
    )


def _saved(row: Gained) -> float | None:
    """Return the seconds that were saved; None: no Job is compared."""
    return row.saved_seconds if row.jobs else None


def _mean(row: Gained) -> float | None:
    return row.saved_seconds / row.jobs if row.jobs else None


def _is_moved_known(row: Gained) -> bool:
    """Return whether it is known who would have moved."""
    return row.is_enforced or not row.mode or row.unseen < row.seen


def _wide(row: Gained) -> tuple[str, ...]:
    return (str(row.reconsidered), str(row.jobs), str(row.assumed), _stayed(row) or "-")


def _stayed(row: Gained) -> str:
    return ", ".join(f"{why} {count}" for why, count in row.stayed.items())


_COSTS: Final = ("MONEY", "KWH", "CO2", "LATE", "SAVED AGAINST AS SUBMITTED")


def _costs(gains: Gains, *, kinds: bool) -> list[str]:
    """Return what Jobs have cost; nothing where no price and no deadline is known."""
    if not any(row.spent or row.deadlines for row in gains.rows):
        return []
    names = ("POLICY", "NAMESPACE", *((_KIND,) if kinds else ()))
    cells = [(*names, *_COSTS)]
    for row in gains.rows:
        named = (row.policy or OTHERS, row.namespace, *((row.kind,) if kinds else ()))
        cells.append((*named, *_billed(row, gains.currency)))
    money = f"money in {gains.currency}; " if gains.currency else ""
    title = f"What Jobs that have ended cost ({money}? is not known, n/m: known of n of m Jobs):"
    return ["", title, *aligned(cells, left=len(names))]


def _billed(row: Gained, currency: str) -> tuple[str, ...]:
    write = {"money": figure, "kwh": figure, "grams": carbon}
    unit = {"money": f" {currency}" if currency else "", "kwh": " kWh", "grams": ""}
    spent = [_sum(row.spent.get(kind), row.ended, write[kind]) for kind in KINDS]
    saved = [
        write[kind](total.amount) + unit[kind]
        for kind in KINDS
        if (total := row.saved.get(kind)) is not None
    ]
    late = f"{row.late}/{row.deadlines}" if row.deadlines else "-"
    return (*spent, late, ", ".join(saved) or "?")


def _sum(total: Sum | None, jobs: int, write: Callable[[float], str]) -> str:
    if total is None:
        return "?" if jobs else "-"
    return write(total.amount) + (f" ({total.jobs}/{jobs})" if total.jobs < jobs else "")


def _whys(rows: Sequence[Gained], *, kinds: bool) -> Iterator[str]:
    stayed = [row for row in rows if row.stayed]
    if stayed:
        yield "Why Jobs stayed:"
    for row in stayed:
        of_kind = f", {row.kind}" if kinds else ""
        yield f"  {row.policy} in {row.namespace}{of_kind}: {_stayed(row)}"
    moved = sum(row.reconsidered for row in rows)
    if moved:
        yield f"Moved while they were pending: {moved}."


def _clusters(clusters: Sequence[Gained]) -> Iterator[str]:
    if sum(bool(cluster.cluster) for cluster in clusters) == 1:
        counts = (
            f"{cluster.started} {f'in {cluster.cluster}' if cluster.cluster else HERE}"
            for cluster in clusters
        )
        yield f"Where Jobs ran: {', '.join(counts)}."
    elif clusters:
        yield from aligned([_CLUSTERS, *map(_cluster, clusters)])
        yield ""


def _cluster(cluster: Gained) -> tuple[str, ...]:
    return (
        cluster.cluster or HERE,
        str(cluster.started),
        duration(cluster.waited_seconds / cluster.started),
        duration(_saved(cluster)),
        duration(_mean(cluster)),
        str(cluster.slower) if cluster.jobs else "-",
    )


def _unseen(gains: Gains) -> Iterator[str]:
    count = sum(row.unseen for row in gains.rows)
    if count:
        named = ", ".join(gains.unseen)
        yield f"Nothing is known here of cluster {named}: {count} Jobs are in no replay."
        yield "  --cluster NAME=FILE gives its queues; see `report --help`."
        yield "  Until then, the savings of moved Jobs are only forecasts of their decisions."


def _sure(gains: Gains) -> Iterator[str]:
    yield from _unseen(gains)
    confidence = gains.confidence
    if confidence is None:
        yield "Nothing was replayed: savings are only forecasts of the decisions."
        return
    parts = f"makespan {confidence.makespan:+.1f} %, a Job {confidence.one_job:.1f} %"
    yield (
        f"How sure: a replay of what happened to {confidence.jobs} Jobs is off by "
        f"{confidence.turnaround:+.1f} % ({parts})."
    )
    if confidence.forecast is not None:
        yield (
            f"Forecasts of {confidence.forecasts} decisions were off by"
            f" {confidence.forecast:.1f} % of the time until the Job was done (median)."
        )
    assumed = sum(row.assumed for row in gains.rows)
    if assumed:
        yield (
            f"The run time of {assumed} moved Jobs in the other option comes only from the policy; "
            "the range says so."
        )
    if gains.left_out:
        yield f"{gains.left_out} Jobs are left out: they cannot be replayed, or had no room."
    yield from _spans(confidence)


def _spans(spans: Confidence) -> Iterator[str]:
    if spans.static is not None and spans.happened is not None:
        yield (
            f"From the first arrival to the last end: {duration(spans.happened)} replayed, "
            f"{duration(spans.static)} without decisions."
        )
    if spans.promised is not None and spans.happened is not None:
        yield (
            f"From the first arrival to the last end: {duration(spans.happened)} replayed, "
            f"{duration(spans.promised)} if all policies were enforced."
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
