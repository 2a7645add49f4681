"""``report``: what policies gained, and what was learned, from the cluster or a saved state."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from webhook.commands import terminal
from webhook.commands.kubectl import (
    Duration,
    Scope,
    all_namespaces_option,
    connected,
    forbidden_once,
    namespace_option,
    output_option,
    read_query,
    release_namespace_of,
    release_namespace_option,
    scope_options,
    selector_option,
)
from webhook.commands.terminal import Line
from webhook.cost import learned_serving
from webhook.learn.estimates import Learned
from webhook.learn.run_records import unpack_runs
from webhook.learn.service_points import unpack_points
from webhook.model.fields import FieldError
from webhook.model.forecasts import RunTime, is_of_queue
from webhook.model.words import nearest, rfc3339, span, three_digits

if TYPE_CHECKING:
    from webhook.commands.history import ClusterHistory
    from webhook.hindsight.gains import Gains
    from webhook.hindsight.look_back import Hindsight
    from webhook.hindsight.slice_advice import CutAdvice
    from webhook.hindsight.slice_options import SliceOptions
    from webhook.learn.estimates import Learned


_Row: TypeAlias = tuple[str, ...]

_HEADER: Final = ("CLASS", "WHAT", "FLAVORS", "RUNS", "MEDIAN", "8 OF 10", "FAILED", "BASIS")
_FAILING_HEADER: Final = ("CLASS", "WHAT", "POLICY", "OPTION", "UNTIL")
_USE_HEADER: Final = ("CLASS", "WHAT", "RUNS", "MEMORY", "NEEDS", "WATTS", "BOUND")
_SERVING_HEADER: Final = (
    *("CLASS", "WHAT", "DEVICE", "OPTION", "POINTS"),
    *("REQUESTS/S", "LATENCY"),
)
_UNKNOWN: Final = dict.fromkeys(("seconds", "low", "high"))
_DAY: Final = 86_400
_DAY_HOURS: Final = 24


def as_json(learned: Learned) -> dict[str, Any]:
    """Return what was learned, with durations in seconds and times as RFC 3339.

    The class of Jobs with the latest end of a run comes first.
    """
    return {
        "runTimes": list(_run_times(learned)),
        "startDelays": list(_delays("flavors", learned.starts)),
        "dispatches": list(_delays("clusterQueue", learned.dispatches)),
        "keepsFailing": list(_failing(learned)),
        "deviceUse": list(_uses(learned)),
        "serving": list(_serving(learned)),
    }


def as_text(learned: Learned, limit: int | None) -> list[Line]:
    shown = as_json(learned)
    table = partial(terminal.table, limit=limit)
    lines: list[Line] = [*table(_HEADER, [_cells(run_time) for run_time in shown["runTimes"]])]
    if not shown["runTimes"]:
        lines = ["No Workload with a run time has ended yet."]
        if not shown["serving"]:
            return lines
    for title, header, rows in _begun(shown):
        lines += ["", title, *table(header, rows)]
    if shown["deviceUse"]:
        rows = [_use_cells(use) for use in shown["deviceUse"]]
        lines += ["", "Measured of one device:", *table(_USE_HEADER, rows)]
    if shown["serving"]:
        rows = [_serving_cells(each) for each in shown["serving"]]
        lines += ["", "Observed of one replica of services:", *table(_SERVING_HEADER, rows)]
    if shown["keepsFailing"]:
        rows = [
            (
                refusal["class"],
                refusal["name"],
                refusal["policy"],
                refusal["option"],
                refusal["until"],
            )
            for refusal in shown["keepsFailing"]
        ]
        lines += ["", "Refused, because it keeps failing there:"]
        lines += table(_FAILING_HEADER, rows)
    return lines


def _run_times(learned: Learned) -> Iterator[dict[str, Any]]:
    classes = (key for key in learned.records if not is_of_queue(key))
    for key in sorted(classes, key=lambda key: (-learned.records[key].last, key)):
        record = learned.records[key]
        for flavors in sorted({*record.runs, *record.failed}):
            known = learned.estimates.get((key, flavors))
            yield {
                "class": key,
                "name": record.name,
                "flavors": flavors,
                "runs": known.runs if known else 0,
                **(_range(known) if known else _UNKNOWN),
                "failed": len(unpack_runs(record.failed.get(flavors, b""))),
                "basis": str(known.basis) if known else None,
            }


def _uses(learned: Learned) -> Iterator[dict[str, Any]]:
    for key, use in sorted(learned.uses.items()):
        yield {
            "class": key,
            "name": learned.records[key].name,
            "runs": use.runs,
            "peakMemory": use.peak,
            "neededMemory": use.need,
            "preallocates": use.preallocates,
            "watts": {model: round(watts) for model, watts in sorted(use.watts.items())},
            "computeBound": None if use.bound is None else round(use.bound, 2),
        }


def _serving(learned: Learned) -> Iterator[dict[str, Any]]:
    for (key, place), packed in sorted(learned.points.items()):
        found = learned_serving.fitted(packed)
        device, _, option = place.partition("/")
        yield {
            "class": key,
            "name": learned.records[key].name,
            "device": device,
            "option": option,
            "points": len(unpack_points(packed)),
            "requestsPerSecond": three_digits(found.per_second) if found else None,
            "latency": three_digits(found.latency) if found else None,
        }


def _serving_cells(each: Mapping[str, Any]) -> _Row:
    rate, latency = each["requestsPerSecond"], each["latency"]
    return (
        each["class"],
        each["name"],
        each["device"],
        each["option"],
        str(each["points"]),
        "-" if rate is None else f"{rate:g}",
        "-" if latency is None else f"{latency:g}s",
    )


def _use_cells(use: Mapping[str, Any]) -> _Row:
    need, bound, watts = use["neededMemory"], use["computeBound"], use["watts"]
    needs = _gibibytes(need) if need is not None else "-"
    return (
        use["class"],
        use["name"],
        str(use["runs"]),
        _gibibytes(use["peakMemory"]),
        "preallocates" if use["preallocates"] else needs,
        "/".join(map(str, watts.values())) or "-",
        "-" if bound is None else f"{bound:.0%} compute",
    )


def _gibibytes(amount: int) -> str:
    return f"{amount / (1 << 30):.1f}Gi"


def _delays(of: str, delays: Mapping[str, RunTime]) -> Iterator[dict[str, Any]]:
    for name, delay in sorted(delays.items()):
        yield {of: name, "runs": delay.runs, **_range(delay)}


def _range(known: RunTime) -> dict[str, float]:
    amounts = {"seconds": known.seconds, "low": known.low, "high": known.high}
    return {name: round(amount, 1) for name, amount in amounts.items()}


def _begun(shown: Mapping[str, Any]) -> Iterator[tuple[str, _Row, list[_Row]]]:
    """Yield the tables of the delays before a run: title, header, rows."""
    titles = {
        "startDelays": ("flavors", "From admission until all pods are ready:"),
        "dispatches": ("clusterQueue", "From quota until AdmissionChecks are passed:"),
    }
    for kind, (of, title) in titles.items():
        rows: list[_Row] = [
            (
                delay[of],
                str(delay["runs"]),
                span(delay["seconds"]),
                f"{span(delay['low'])}-{span(delay['high'])}",
            )
            for delay in shown[kind]
        ]
        if rows:
            yield title, (of.upper(), "RUNS", "MEDIAN", "8 OF 10"), rows


def _failing(learned: Learned) -> Iterator[dict[str, Any]]:
    for (key, policy, option), end in sorted(learned.refusals.items()):
        until = rfc3339(end)
        name = learned.records[key].name
        yield {"class": key, "name": name, "policy": policy, "option": option, "until": until}


def _cells(run_time: Mapping[str, Any]) -> tuple[str, ...]:
    known = run_time["seconds"] is not None
    return (
        run_time["class"],
        run_time["name"],
        run_time["flavors"],
        str(run_time["runs"]),
        span(run_time["seconds"]) if known else "-",
        f"{span(run_time['low'])}-{span(run_time['high'])}" if known else "-",
        str(run_time["failed"]),
        run_time["basis"] or "-",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options, as they were given."""

    since: float
    selector: str
    policy: str | None
    run_times: bool
    slices: bool
    days: float
    journals: tuple[str, ...]
    snapshot: str | None
    clusters: tuple[str, ...]
    release_namespace: str | None
    output: str
    scope: Scope


@click.command("report")
@click.option("--since", type=Duration(), default="24h", help="How far back: 90m, 24h, 1d.  [24h]")
@namespace_option
@all_namespaces_option
@selector_option
@click.option("--policy", metavar="NAME", help="Only Jobs that this policy matches.")
@click.option("--run-times", is_flag=True, help="Show run times and what keeps failing instead.")
@click.option("--slices", is_flag=True, help="Show how to cut GPUs into slices instead.")
@click.option("--days", type=float, default=7, help="With --slices: days of Jobs to look at.  [7]")
@click.option(
    "--journal",
    "journals",
    multiple=True,
    metavar="FILE",
    help="With --slices: an earlier saved state, for its journal; may be repeated.",
)
@click.option("--snapshot", metavar="FILE", help="A saved state; default: the cluster's.")
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=FILE",
    help="A worker cluster's saved state; may be repeated.",
)
@release_namespace_option
@output_option
@scope_options
def command(**given: Any) -> None:
    """Show what policies have gained, and what those in mode Observe would have gained.

    Jobs are counted by policy and namespace: how many came, how many were moved, why others
    stayed, and how much sooner they were done. The comparison is a replay of the same arrivals
    without any decision. For a policy that only observes or advises, a replay with its decisions
    is compared with what happened. The report says how far such a replay was off where it can be
    checked.

    A snapshot holds what `explain` takes, plus Jobs, Workloads and the ConfigMaps of the release's
    namespace. If queues lead to worker clusters, give the state of each with --cluster. Jobs of a
    cluster without such a state are left out, and the report says so. This prints a worker's
    state:

    \b
      kubectl get clusterqueues,localqueues,cohorts,resourceflavors,\\
        namespaces -A -o json

    With --run-times: how long each class of Jobs runs on which flavors, which options it is
    refused, and what it uses of devices, or a replica of a service answers, if a Prometheus is
    asked.

    With --slices: how GPUs would be cut better, by the journal and the Nodes' present partition,
    as a file for mig-parted with its commands. Nothing is applied. If a simulation shows that
    little would be gained, the report says so. The journal holds about a day; for a week, set
    journal_days: 7 or give states that were saved each day (--journal). A snapshot must hold
    Nodes, and Pods to say which Jobs must end.

    Exit codes: 0 done, 1 no Job has come in that time, or the cluster cannot be asked, 2 a file is
    wrong.

    \b
    Examples:
      kubectl fallback report
      kubectl fallback report --since 2h -n research --policy light-gpu -o wide
      kubectl fallback report -l team=ml
      kubectl fallback report --cluster gpu-east=gpu-east.json
      kubectl fallback report --run-times
      kubectl fallback report --slices --journal monday.json --journal tuesday.json
    """
    from webhook.hindsight.gains import gains

    asked = ReportOptions(**given)
    if asked.selector and (asked.run_times or asked.slices):
        raise click.UsageError("-l goes without --run-times and --slices.")
    try:
        wanted = read_query(asked.selector)
        if asked.run_times:
            _show_run_times(_learned(asked), asked.output)
            return
        if asked.slices:
            _show_slices(asked)
            return
        past = _history(asked)
        until = time.time() if asked.snapshot is None else past.until
        hindsight = _replayed(past, asked.clusters, until - asked.since, until)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)
    report = gains(
        hindsight,
        since=until - asked.since,
        until=until,
        namespace=asked.scope.namespace or None,
        policy=asked.policy,
        selector=wanted,
    )
    if not report.rows and (missing := _missing(asked, past)):
        terminal.say(missing, err=True)
        sys.exit(1)
    hours = _journal_hours(past.oldest_slot, since=until - asked.since, until=until)
    options = _slice_options(past, until - asked.since, until)
    _show_gains(report, options, hours, output=asked.output)


def _missing(asked: ReportOptions, past: ClusterHistory) -> str:
    """Say that the policy, or the namespace, is not there; empty: it is, or that is not known."""
    if past.state is None:
        return ""
    snapshot = past.state.snapshot(0.0, past.until)
    policies = [policy.name for policy in snapshot.fallback.policies]
    if asked.policy and asked.policy not in policies:
        return f"There is no policy {asked.policy}{nearest(asked.policy, policies)}."
    known = snapshot.cluster.namespaces
    if asked.scope.namespace and known and asked.scope.namespace not in known:
        close = nearest(asked.scope.namespace, known)
        return f"There is no namespace {asked.scope.namespace}{close}."
    return ""


def _history(asked: ReportOptions) -> ClusterHistory:
    from webhook.commands import history

    since = time.time() - (asked.days * _DAY if asked.slices else asked.since)
    past = history.past_of(
        asked.scope, asked.snapshot, since=since, release_namespace=asked.release_namespace
    )
    if asked.snapshot is None:
        for why in forbidden_once(past.unread):
            terminal.say(why, err=True)
    return past


def _replayed(past: ClusterHistory, given: Sequence[str], since: float, until: float) -> Hindsight:
    """Replay the Jobs that ended since then, or not yet; times are in seconds since 1970."""
    from webhook.hindsight import look_back

    entries = [entry for entry in past.entries if not entry.outcome or entry.finished >= since]
    world = past.world(until, clusters=given)
    if world is None:
        return look_back.without_replay(entries)
    hindsight = look_back.look_back(entries, world)
    return replace(hindsight, left_out=hindsight.left_out + past.left_out)


def _show_slices(asked: ReportOptions) -> None:
    """Show how devices are better cut, by the Jobs of all journals that are given."""
    from webhook.commands import history, report_slices
    from webhook.hindsight.slice_advice import slice_advice

    past = _history(asked)
    if asked.snapshot is not None:
        objects, until = [*report_slices.objects_of_file(asked.snapshot)], past.until
    else:
        with connected(asked.scope.access) as client:
            objects, until = [*report_slices.objects_of_cluster(client)], time.time()
    since = until - asked.days * _DAY
    all_pasts = [*(history.from_file(path) for path in asked.journals), past]
    every = {entry.key: entry for each in all_pasts for entry in each.entries}
    slots = [each.oldest_slot for each in all_pasts if each.oldest_slot is not None]
    hours = _journal_hours(min(slots, default=None), since=since, until=until)
    models: Sequence[CutAdvice] = ()
    left_out: Sequence[str] = ("queues may not be read",)
    if past.state is not None:
        entries = [entry for entry in every.values() if since <= entry.created <= until]
        flavors = past.state.snapshot(0.0, until).setup.flavors.values()
        models, left_out = slice_advice(objects, entries, flavors, past.state.learned(until).uses)
    shown = report_slices.as_json(models, left_out, since=since, until=until)
    if asked.output in ("text", "wide"):
        text = report_slices.as_text(shown)
        terminal.tell(text, *_uncovered(**hours), output=asked.output)
    else:
        terminal.say(terminal.dump({**shown, "journalHours": hours}, asked.output))
    if not any(model.jobs for model in models):
        sys.exit(1)


def _journal_hours(oldest: int | None, *, since: float, until: float) -> dict[str, int]:
    """Return how many hours of the time the journal covers, in seconds since 1970.

    Since the *oldest* hour with Jobs in the journal (None: there is none), quiet ones count.
    """
    from webhook.hindsight.journal import SLOT_SECONDS

    asked = round((until - since) / SLOT_SECONDS)
    known = 0 if oldest is None else int((until - oldest * SLOT_SECONDS) // SLOT_SECONDS)
    return {"covered": max(0, min(asked, known)), "of": asked}


def _uncovered(*, covered: int, of: int) -> Sequence[str]:
    """Return what to set so that more is covered; empty: all is, or no setting would help."""
    from webhook.hindsight.journal import LONGEST_DAYS, hours_kept

    if covered >= of or of <= hours_kept(1):
        return ()
    days = min(LONGEST_DAYS, ceil(of / _DAY_HOURS))
    told = f"The journal covers {covered} of {of} hours"
    return "", f"{told}; to keep more, set journal_days: {days}."


def _slice_options(past: ClusterHistory, since: float, until: float) -> SliceOptions | None:
    """Return the options that would save most, by what ended in that time; None: none would."""
    from webhook.hindsight import slice_options

    if past.state is None:
        return None
    uses = past.state.learned(until).uses
    ended = [entry for entry in past.entries if since <= entry.finished <= until]
    return slice_options.most_saving(ended, uses, past.state.snapshot(0.0, until))


def _show_gains(
    report: Gains, options: SliceOptions | None, hours: Mapping[str, int], *, output: str
) -> None:
    from webhook.hindsight import gains_table, slice_options

    if output in ("text", "wide"):
        text = gains_table.as_text(report, wide=output == "wide")
        lost = f" ({report.left_out} are left out: their queues are not known.)"
        nobody = "No Job has come in that time." + (lost if report.left_out else "")
        terminal.tell(text if report.rows else nobody, output=output)
        if options is not None:
            suggestion = slice_options.as_text(options)
            terminal.tell("", suggestion, output=output)
        if below := _uncovered(**hours):
            terminal.tell(*below, output=output)
    else:
        suggested = slice_options.as_json(options) if options is not None else None
        more = {"sliceOptions": suggested, "journalHours": hours}
        terminal.say(terminal.dump({**gains_table.as_json(report), **more}, output))
    if not report.rows:
        sys.exit(1)


def _show_run_times(learned: Learned, output: str) -> None:
    if output in ("text", "wide"):
        terminal.say(*as_text(learned, terminal.width(output)))
    else:
        terminal.say(terminal.dump(as_json(learned), output))


def _learned(asked: ReportOptions) -> Learned:
    from webhook.state.snapshot_file import fetch_learned, read_learned

    if asked.snapshot is not None:
        return read_learned(asked.snapshot)
    with connected(asked.scope.access) as client:
        ours = release_namespace_of(client, asked.release_namespace)
        learned, unread = fetch_learned(client, namespace=ours, unix=time.time())
    for why in unread:
        terminal.say(f"{why}: only Workloads that are still there count", err=True)
    return learned
