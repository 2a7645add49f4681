"""Gains laid out for a terminal of 100 columns, and as JSON for programs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.hindsight.bills import KINDS, Bill, Sum
from webhook.hindsight.gains import NOBODY, ClusterGains, Confidence, DayGains, Gains, Row
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


def _headline(sums: DayGains) -> Iterator[str]:
    """Yield what was gained in all, the best number first."""
    done = "were" if sums.is_enforced else "would be"
    if not sums.moved:
        yield f"None of the {sums.jobs} that have ended {done.replace('were', 'was')} moved."
        yield from _by_others(sums)
        return
    than = "sooner" if sums.percent >= 0 else "later"
    means = ", not ".join(duration(part / sums.jobs) for part in (sums.after, sums.before))
    text = f"Jobs {done} done {abs(sums.percent):.1f} % {than} (in {means})"
    if round(sums.device_hours, 2):
        back = "given back" if sums.device_hours > 0 else "taken in addition"
        text += f", and {abs(sums.device_hours):,.2f} GPU hours {done} {back}"
    yield f"{text}."
    yield f"{sums.moved} of the {sums.jobs} that have ended {done} moved."


def _by_others(sums: DayGains) -> Iterator[str]:
    """Yield what moves of others gave Jobs of which none was moved."""
    if round(sums.percent, 1):
        made = "made" if sums.is_enforced else "would make"
        than = "sooner" if sums.percent >= 0 else "later"
        means = ", not ".join(duration(part / sums.jobs) for part in (sums.after, sums.before))
        yield f"Moves of others {made} them {abs(sums.percent):.1f} % {than} (done in {means})."


_DAYS: Final = ("DAY", "JOBS", "MOVED", "SOONER", "INSTEAD OF", "NOW", "GPU HOURS")


def _days(days: Sequence[DayGains]) -> list[str]:
    """Return a table by day, where there are several."""
    lines: list[str] = []
    for is_enforced in (True, False):
        rows = [
            (
                each.day,
                str(each.jobs),
                str(each.moved),
                f"{each.percent:+.1f} %",
                duration(each.before / each.jobs),
                duration(each.after / each.jobs),
                f"{each.device_hours:+.2f}",
            )
            for each in days
            if each.is_enforced is is_enforced
        ]
        if len(rows) > 1:
            header = ("WOULD BE, BY " + _DAYS[0], *_DAYS[1:])
            lines += ["", *aligned([_DAYS if is_enforced else header, *rows], left=1)]
    return lines


def _assumed(rows: Sequence[Row]) -> list[str]:
    """Say how many of the moved Jobs are compared by a run time that was never observed."""
    assumed, moved = sum(row.assumed for row in rows), sum(row.moved for row in rows)
    if not assumed:
        return []
    return [
        f"Assumed: for {assumed} of {moved} moved Jobs the policy's slowdown, as none ran there."
    ]


def as_json(gains: Gains) -> dict[str, Any]:
    """Return seconds as numbers, instants as RFC 3339; unknown is null."""
    spans = gains.makespans
    return {
        "version": VERSION,
        "since": rfc3339(gains.since),
        "until": rfc3339(gains.until),
        "rows": [_row_json(row) for row in gains.rows],
        "makespan": {
            "real": _rounded(spans.real),
            "replayed": _rounded(spans.happened),
            "withoutDecisions": _rounded(spans.static),
            "withPolicies": _rounded(spans.promised),
        },
        "sureness": _confidence_json(gains.confidence) if gains.confidence else None,
        "leftOut": gains.left_out,
        "byCluster": [_cluster_json(cluster) for cluster in gains.clusters],
        "unknownClusters": list(gains.unseen),
        "currency": gains.currency or None,
        "whole": [_day_json(each) for each in gains.whole],
        "days": [_day_json(each) for each in gains.days],
    }


def _day_json(sums: DayGains) -> dict[str, Any]:
    return {
        "day": sums.day or None,
        "enforced": sums.is_enforced,
        "jobs": sums.jobs,
        "moved": sums.moved,
        "turnaroundSecondsBefore": _rounded(sums.before),
        "turnaroundSeconds": _rounded(sums.after),
        "soonerPercent": _rounded(sums.percent),
        "deviceHoursGivenBack": round(sums.device_hours, 2),
    }


def _cluster_json(cluster: ClusterGains) -> dict[str, Any]:
    return {
        "cluster": cluster.cluster or None,
        "started": cluster.started,
        "meanWaitSeconds": _rounded(cluster.wait),
        "ended": cluster.over,
        "savedSeconds": _rounded(cluster.saved),
        "slower": cluster.slower,
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "policy": row.policy or None,
        "namespace": row.namespace,
        "kind": row.kind,
        "mode": row.mode or None,
        "seen": row.seen,
        "moved": row.moved if row.is_moved_known else None,
        "reconsidered": row.reconsidered,
        "stayed": dict(row.stayed),
        "ended": row.over,
        "savedSeconds": _rounded(row.saved),
        "savedByOthersSeconds": _rounded(row.by_others),
        "savedSecondsOff": _rounded(row.margin),
        "savedSecondsMean": _rounded(row.mean),
        "slower": row.slower,
        "assumed": row.assumed,
        "notReplayed": row.unseen,
        "cost": _bill_json(row.bill),
    }


def _bill_json(bill: Bill) -> dict[str, Any]:
    """Return sums of what is known; a kind that is known of no Job is left out."""
    return {
        "jobs": bill.jobs,
        **{_KEYS[kind]: total.rounded for kind, total in bill.spent.items()},
        "knownOf": {_KEYS[kind]: total.jobs for kind, total in bill.spent.items()},
        "saved": {_KEYS[kind]: total.rounded for kind, total in bill.saved.items()},
        "late": bill.late,
        "deadlines": bill.deadlines,
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


def _rows(header: Sequence[str], rows: Sequence[Row], *, wide: bool, kinds: bool) -> list[str]:
    """Return the table; with a column of *kinds* where there are Jobs of several."""
    cells = [(*header, *_WIDE) if wide else tuple(header)]
    cells += [(*_cells(row), *_wide(row)) if wide else _cells(row) for row in rows]
    if not kinds:
        return aligned(cells, left=2)
    named = [_KIND, *(row.kind for row in rows)]
    cells = [(*line[:2], kind, *line[2:]) for kind, line in zip(named, cells, strict=True)]
    return aligned(cells, left=3)


def _cells(row: Row) -> tuple[str, ...]:
    margin = f" ±{duration(row.margin)}" if row.own is not None and row.margin else ""
    return (
        row.policy or OTHERS,
        row.namespace,
        str(row.seen),
        str(row.moved) if row.is_moved_known else "-",
        str(row.seen - row.moved) if row.is_moved_known else "-",
        duration(row.own) + margin,
        "-" if row.saved is None else duration(row.by_others),
        duration(row.mean),
        "-" if row.saved is None else str(row.slower),
    )


def _wide(row: Row) -> tuple[str, ...]:
    return (str(row.reconsidered), str(row.over), str(row.assumed), _stayed(row) or "-")


def _stayed(row: Row) -> str:
    return ", ".join(f"{why} {count}" for why, count in row.stayed.items())


_COSTS: Final = ("MONEY", "KWH", "CO2", "LATE", "SAVED AGAINST AS SUBMITTED")


def _costs(gains: Gains, *, kinds: bool) -> list[str]:
    """Return what Jobs have cost; nothing where no price and no deadline is known."""
    if not any(row.bill.spent or row.bill.deadlines for row in gains.rows):
        return []
    names = ("POLICY", "NAMESPACE", *((_KIND,) if kinds else ()))
    cells = [(*names, *_COSTS)]
    for row in gains.rows:
        named = (row.policy or OTHERS, row.namespace, *((row.kind,) if kinds else ()))
        cells.append((*named, *_billed(row.bill, gains.currency)))
    money = f"money in {gains.currency}; " if gains.currency else ""
    title = f"What Jobs that have ended cost ({money}? is not known, n/m: known of n of m Jobs):"
    return ["", title, *aligned(cells, left=len(names))]


def _billed(bill: Bill, currency: str) -> tuple[str, ...]:
    write = {"money": figure, "kwh": figure, "grams": carbon}
    unit = {"money": f" {currency}" if currency else "", "kwh": " kWh", "grams": ""}
    spent = [_sum(bill.spent.get(kind), bill.jobs, write[kind]) for kind in KINDS]
    saved = [
        write[kind](total.amount) + unit[kind]
        for kind in KINDS
        if (total := bill.saved.get(kind)) is not None
    ]
    late = f"{bill.late}/{bill.deadlines}" if bill.deadlines else "-"
    return (*spent, late, ", ".join(saved) or "?")


def _sum(total: Sum | None, jobs: int, write: Callable[[float], str]) -> str:
    if total is None:
        return "?" if jobs else "-"
    return write(total.amount) + (f" ({total.jobs}/{jobs})" if total.jobs < jobs else "")


def _whys(rows: Sequence[Row], *, kinds: bool) -> Iterator[str]:
    stayed = [row for row in rows if row.stayed]
    if stayed:
        yield "Why Jobs stayed:"
    for row in stayed:
        of_kind = f", {row.kind}" if kinds else ""
        yield f"  {row.policy} in {row.namespace}{of_kind}: {_stayed(row)}"
    moved = sum(row.reconsidered for row in rows)
    if moved:
        yield f"Moved while they were pending: {moved}."


def _clusters(clusters: Sequence[ClusterGains]) -> Iterator[str]:
    if sum(bool(cluster.cluster) for cluster in clusters) == 1:
        counts = (
            f"{cluster.started} {f'in {cluster.cluster}' if cluster.cluster else HERE}"
            for cluster in clusters
        )
        yield f"Where Jobs ran: {', '.join(counts)}."
    elif clusters:
        yield from aligned([_CLUSTERS, *map(_cluster, clusters)])
        yield ""


def _cluster(cluster: ClusterGains) -> tuple[str, ...]:
    mean = None if cluster.saved is None or not cluster.over else cluster.saved / cluster.over
    return (
        cluster.cluster or HERE,
        str(cluster.started),
        duration(cluster.wait),
        duration(cluster.saved),
        duration(mean),
        "-" if cluster.saved is None else str(cluster.slower),
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
    yield from _spans(gains)


def _spans(gains: Gains) -> Iterator[str]:
    spans = gains.makespans
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
