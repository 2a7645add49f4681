"""Draws a View as the page for people: HTML without outside resources.

The timeline shows decisions: a lane for each option of a policy, a column for each step of time.
ClusterQueues stand in a dense table by cohort: the resource that counts, who waits, and a day.

What may be seen was decided before; here it is only written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import groupby
from math import ceil, inf, isfinite
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from webhook.console import phrases
from webhook.console.job_story import JobStory
from webhook.console.page_filters import NONE, Filters, address, narrowed, page
from webhook.console.queue_history import STEP_SECONDS, STEPS, Series
from webhook.console.savings_picture import SAVED_HEIGHT, gain_rows, saved_over_time
from webhook.console.starts_picture import longest_wait, starts_picture
from webhook.console.view import Cell, Policy, Queue, View
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import ShownDecision
from webhook.model.quantity import CPU

HEIGHT: Final = 12
"""Height of a lane, in pixels, without the room for the marks of moves above it."""
MOST_LANES: Final = 9
_MOST_COLUMNS: Final = 48
_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_SHORT_AXIS: Final = 300
"""Seconds; up to here its labels would be of the same minute."""
_LONG_STEP: Final = 3600
"""Seconds; from here on the picture spans several days."""
_LEAST_VISIBLE: Final = 3
_SERIES: Final = 4
"""Colors of options; later ones share the last."""
Key = tuple[str, str]
"""Policy and option; the option is empty for Jobs that were left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    x: float
    width: float
    """Both in percent."""
    height: float
    """In pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    policy: str
    option: str
    color: str
    """A name for the style sheet."""
    total: int
    sentence: str
    columns: tuple[Column, ...]
    moves: tuple[float, ...]
    """Positions at which Jobs were moved to this option, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    lanes: tuple[Lane, ...]
    hidden: str
    """How many policies are left out, those with the fewest Jobs; empty: none."""
    step: str
    peak: int
    """The Jobs of the highest column."""
    ticks: tuple[tuple[float, str], ...]
    """Position in percent, and the time there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    start: float
    step: int
    columns: int

    def time(self, at: float) -> str:
        if self.step * self.columns <= _SHORT_AXIS:
            return phrases.clock(at)
        return phrases.minute(at) if self.step < _LONG_STEP else phrases.day_hour(at)

    def column(self, at: float) -> int:
        return min(self.columns - 1, max(0, int((at - self.start) // self.step)))

    def percent(self, at: float) -> float:
        part = (at - self.start) / (self.step * self.columns)
        return round(100 * min(1.0, max(0.0, part)), 2)


def timeline(view: View) -> Timeline | None:
    """Return the picture of all decisions in *view*; None: there are none."""
    if not view.decisions:
        return None
    axis = _axis(min(decision.at for decision in view.decisions), view.at)
    keys = _keys(view.policies, view.decisions)
    kept = _busiest(keys, view.decisions)
    columns = Counter(
        (decision.recorded.policy, decision.option, axis.column(decision.at))
        for decision in view.decisions
    )
    peak = max(columns.values())
    hidden = len({policy for policy, _ in keys} - kept)
    return Timeline(
        lanes=tuple(
            _lane(key, view.decisions, axis=axis, columns=columns, peak=peak, color=color)
            for key, color in keys.items()
            if key[0] in kept
        ),
        hidden=phrases.counted(hidden, "policy", "policies") if hidden else "",
        step=phrases.duration(axis.step),
        peak=peak,
        ticks=tuple(
            (25.0 * quarter, axis.time(axis.start + quarter * axis.step * axis.columns / 4))
            for quarter in range(5)
        ),
    )


def _axis(first: float, now: float) -> _Axis:
    span = max(now - first, 60.0)
    step = next((step for step in _STEPS if span / step < _MOST_COLUMNS), _STEPS[-1])
    end = (now // step + 1) * step
    columns = ceil((end - first) / step)
    return _Axis(start=end - columns * step, step=step, columns=columns)


def _keys(policies: Sequence[Policy], decisions: Sequence[ShownDecision]) -> dict[Key, str]:
    """Return lanes in the policies' order, each with its color; options of no policy come last."""
    present = {(decision.recorded.policy, decision.option) for decision in decisions}
    present |= {
        (decision.recorded.policy, move.option) for decision in decisions for move in decision.moves
    }
    colors = {
        (policy.name, option): color(option, place)
        for policy in policies
        for place, (option, _) in enumerate(policy.decided)
    }
    gone = sorted(present - set(colors), key=lambda key: (key[0], not key[1], key[1]))
    kept = {key: name for key, name in colors.items() if key in present}
    return kept | {key: color(key[1], _SERIES) for key in gone}


def _busiest(keys: Mapping[Key, str], decisions: Sequence[ShownDecision]) -> set[str]:
    """Return the policies that decided most Jobs, as many as there is room for."""
    lanes = Counter(policy for policy, _ in keys)
    kept: set[str] = set()
    room = MOST_LANES
    for policy, _ in Counter(decision.recorded.policy for decision in decisions).most_common():
        if kept and lanes[policy] > room:
            break
        kept.add(policy)
        room -= lanes[policy]
    return kept


def color(option: str, place: int) -> str:
    """Return the color of a policy's option by its position among them."""
    return f"series-{min(place, _SERIES - 1)}" if option else "series-none"


def _lane(
    key: Key,
    decisions: Sequence[ShownDecision],
    *,
    axis: _Axis,
    columns: Counter[tuple[str, str, int]],
    peak: int,
    color: str,
) -> Lane:
    mine = {index: columns[*key, index] for index in range(axis.columns) if columns[*key, index]}
    moves = tuple(
        axis.percent(move.unix)
        for decision in decisions
        for move in decision.moves
        if (decision.recorded.policy, move.option) == key
    )
    return Lane(
        policy=key[0],
        option=key[1],
        color=color,
        total=sum(mine.values()),
        sentence=_sentence(mine, len(moves), axis),
        columns=tuple(
            Column(
                x=round(100 * index / axis.columns, 2),
                width=round(80 / axis.columns, 2),
                height=max(_LEAST_VISIBLE, round(HEIGHT * count / peak, 1)),
            )
            for index, count in mine.items()
        ),
        moves=moves,
    )


def _sentence(columns: Mapping[int, int], moves: int, axis: _Axis) -> str:
    """Return the picture's content in words, for those who cannot see it."""
    parts = []
    if columns:
        highest = max(columns, key=lambda index: columns[index])
        at = axis.time(axis.start + highest * axis.step)
        parts.append(f"at most {columns[highest]} in {phrases.duration(axis.step)}, at {at} UTC")
    if moves:
        parts.append(f"{phrases.counted(moves, 'Job')} moved here")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPart:
    kind: str
    """``own``, ``borrowed`` or ``free``."""
    x: float
    width: float
    """Both in percent of the bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    flavor: str
    resource: str
    used: str
    """``6 of 8``; what is borrowed is said apart."""
    borrowed: str
    free: str
    """``80 free, 73 by borrowing``."""
    sentence: str
    nominal: float
    """Position at which nominal quota ends, in percent."""
    parts: tuple[BarPart, ...]


def bar(cell: Cell) -> Bar:
    own = max(0, cell.reserved - cell.borrowed)
    whole = max(cell.nominal, cell.reserved + max(0, cell.available), 1)
    lengths = (("own", own), ("borrowed", cell.borrowed), ("free", max(0, cell.available)))
    parts, x = [], 0.0
    for kind, length in lengths:
        width = 100 * length / whole
        if width > 0:
            parts.append(BarPart(kind=kind, x=round(x, 2), width=round(width, 2)))
        x += width
    used = f"{phrases.amount(own, cell.resource)} of {phrases.amount(cell.nominal, cell.resource)}"
    borrowed = phrases.amount(cell.borrowed, cell.resource) if cell.borrowed else ""
    free = f"{phrases.amount(max(0, cell.available), cell.resource)} free"
    lent = cell.available - max(0, cell.nominal - cell.reserved)
    if lent > 0:
        free += f", {phrases.amount(lent, cell.resource)} by borrowing"
    return Bar(
        flavor=cell.flavor,
        resource=cell.resource,
        used=used,
        borrowed=borrowed,
        free=free,
        sentence=f"{used} reserved, {borrowed or 'nothing'} borrowed; for a newcomer {free}",
        nominal=round(100 * cell.nominal / whole, 2),
        parts=tuple(parts),
    )


QUEUES_AT_ONCE: Final = 10
"""Rows shown before the reader expands the rest."""
DETAILED: Final = 4
"""So few ClusterQueues are shown with all of their quota, too."""
SPARK_HEIGHT: Final = 20
_NO_DEVICES: Final = (CPU, "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """How many waited over the last day, as a path; a step is one unit wide."""

    path: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    queue: Queue
    cell: Cell | None
    """Its devices, of all flavors together, else its cores; None: it has no quota."""
    flavors: str
    spark: Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortRows:
    cohort: str
    """Empty: none."""
    rows: tuple[QueueRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTable:
    cohorts: tuple[CohortRows, ...]
    more: tuple[CohortRows, ...]
    """The rest, with fewer pending."""
    hidden: int

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Return the ClusterQueues that are shown, in its order."""
        return tuple(row.queue for group in self.cohorts for row in group.rows)


def queue_table(queues: Sequence[Queue], now: float) -> QueueTable:
    """Return the table at *now*, in seconds since 1970; the busiest ClusterQueues come first."""
    ranked = sorted(queues, key=_rank)
    shown, rest = ranked[:QUEUES_AT_ONCE], ranked[QUEUES_AT_ONCE:]
    return QueueTable(cohorts=_by_cohort(shown, now), more=_by_cohort(rest, now), hidden=len(rest))


def _rank(queue: Queue) -> tuple[bool, int, bool, str, str]:
    return (not queue.trouble, -queue.pending, not _devices(queue), queue.name, queue.cluster)


def _by_cohort(ranked: Sequence[Queue], now: float) -> tuple[CohortRows, ...]:
    """Group ClusterQueues; the cohort of the busiest comes first, and those without one last."""
    place = {cohort: index for index, cohort in reversed(list(enumerate(q.cohort for q in ranked)))}
    ordered = sorted(ranked, key=lambda queue: (not queue.cohort, place[queue.cohort]))
    return tuple(
        CohortRows(cohort=cohort, rows=tuple(_row(queue, now) for queue in members))
        for cohort, members in groupby(ordered, lambda queue: queue.cohort)
    )


def _row(queue: Queue, now: float) -> QueueRow:
    cells = _devices(queue) or [cell for cell in queue.cells if cell.resource == CPU]
    cells = [cell for cell in cells if cell.resource == cells[0].resource]
    return QueueRow(
        queue=queue,
        cell=_together(cells) if cells else None,
        flavors=", ".join(cell.flavor for cell in cells),
        spark=_spark(queue.history, int(now // STEP_SECONDS)),
    )


def _devices(queue: Queue) -> list[Cell]:
    return [
        cell
        for cell in queue.cells
        if cell.resource not in _NO_DEVICES and not cell.resource.startswith("hugepages-")
    ]


def _together(cells: Sequence[Cell]) -> Cell:
    first, *_ = cells
    amounts = ("nominal", "reserved", "borrowed", "available", "used")
    return replace(first, **{name: sum(getattr(cell, name) for cell in cells) for name in amounts})


# A series changes once a minute at most, and the page is drawn every few seconds.
@lru_cache(maxsize=4096)
def _spark(series: Series, step: int) -> Spark:
    """Draw a series whose last entry is of the *step* since 1970."""
    known = [count for count in series if count is not None]
    if not known:
        return Spark(path="", sentence="not counted yet")
    peak = max(known)
    scale = (SPARK_HEIGHT - 2) / max(peak, 1)
    start = STEPS - len(series)
    path = "".join(
        f"M{start + index} {SPARK_HEIGHT}v-{count * scale + 1:.1f}h.8V{SPARK_HEIGHT}"
        for index, count in enumerate(series)
        if count is not None
    )
    at = (step - (len(series) - 1 - series.index(peak))) * STEP_SECONDS
    since = phrases.duration(len(series) * STEP_SECONDS)
    sentence = f"at most {peak:,} pending in {since}, at {phrases.minute(at)} UTC; now {series[-1]}"
    return Spark(path=path, sentence=sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    text: str
    commands: tuple[str, ...]


_WITHOUT_POLICIES: Final = (
    Step(
        text="See what a policy would gain, from finished Jobs. Nothing is changed.",
        commands=("kubectl fallback estimate",),
    ),
    Step(
        text="Write a policy that only watches, with mode: Observe, and check it.",
        commands=(
            "kubectl fallback check -f policy.yaml",
            "kubectl apply -f policy.yaml",
        ),
    ),
    Step(
        text="Ask what it would do with your Job, and after a day what it would have saved.",
        commands=("kubectl fallback explain -f job.yaml", "kubectl fallback report"),
    ),
)
_WITHOUT_DECISIONS: Final = (
    Step(
        text="Check that the policies are ready. A policy that is not says why.",
        commands=("kubectl get fallbackpolicies",),
    ),
    Step(
        text="Ask what would be decided for your Job, and which policy matches it.",
        commands=("kubectl fallback explain -f job.yaml",),
    ),
    Step(
        text="Submit the Job. Its decision is on this page within seconds.",
        commands=("kubectl create -f job.yaml",),
    ),
)


def first_steps(view: View) -> tuple[Step, ...]:
    """Return the next three steps; none where Jobs are decided already, or nothing is known yet."""
    if view.decisions or not isfinite(view.age):
        return ()
    return _WITHOUT_DECISIONS if view.policies else _WITHOUT_POLICIES


POLICIES_AT_ONCE: Final = 5
"""Policies shown before the reader expands the rest; those that are not ready come first."""


def render(view: View, nonce: str, asked: Filters = NONE) -> str:
    """Return the page of the part of *view* that *asked* selects.

    *nonce* is the one in the header ``Content-Security-Policy`` of this very response.
    """
    shown = narrowed(view, asked)
    # Those that are not ready come first, but what teams write badly is theirs to mend.
    policies = sorted(shown.policies, key=lambda each: ("/" in each.name, _may_be_ready(each)))
    table = queue_table(shown.queues, view.at)
    return _drawn(
        "page.html",
        view,
        nonce,
        shown=shown,
        asked=asked,
        synced=isfinite(view.age),
        silent={cluster.name: cluster.age for cluster in view.clusters if cluster.is_stale},
        never=inf,
        policies=policies[:POLICIES_AT_ONCE],
        more_policies=policies[POLICIES_AT_ONCE:],
        table=table,
        detailed=table.queues if len(shown.queues) <= DETAILED else (),
        only=lambda queue: address(replace(asked, queue=queue)),
        timeline=timeline(shown),
        over_time=saved_over_time(shown.published.hours, view.at),
        gain_rows=gain_rows(shown.published.gained),
        starts=starts_picture(shown.waiting or ()),
        longest=longest_wait(shown.waiting or (), view.at),
        steps=first_steps(view),
        listed=page(shown.decisions, asked),
        suggested=_suggested(view),
        modes={policy.name: policy.mode for policy in view.policies},
    )


def _may_be_ready(policy: Policy) -> bool:
    return policy.judged is None or policy.judged.is_ready


def render_job(view: View, story: JobStory, nonce: str) -> str:
    """Return the page of one Job; *nonce* is as for ``render``."""
    return _drawn("job.html", view, nonce, story=story)


def _drawn(template: str, view: View, nonce: str, **shown: object) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            nonce=nonce,
            style=_asset("style.css"),
            script=_asset("live.js"),
            view=view,
            colors=_colors(view),
            **shown,
        )
    )


def job_address(namespace: str, job: str) -> str:
    """Return the relative address of a Job's page."""
    return "job?" + urlencode({"namespace": namespace, "job": job})


def _suggested(view: View) -> dict[str, list[str]]:
    """Return the names to suggest for each filter."""
    return {
        "namespace": sorted(
            {decision.namespace for decision in view.decisions}
            | {place.partition("/")[0] for queue in view.queues for place in queue.local_queues}
            | {each.workload.namespace for each in view.waiting or ()}
        ),
        "policy": sorted({policy.name for policy in view.policies}),
        "queue": sorted({queue.name for queue in view.queues}),
        "kind": sorted({decision.kind for decision in view.decisions}),
        "text": [],
    }


def _colors(view: View) -> dict[tuple[str, str], str]:
    return {
        (policy.name, option): color(option, place)
        for policy in view.policies
        for place, (option, _) in enumerate(policy.decided)
    }


def outcome(decision: ShownDecision) -> str:
    """Return what became of the Job, or under Observe and Advise what would have."""
    if not decision.option:
        return "left alone"
    return decision.option if decision.recorded.mode == "Enforce" else f"would be {decision.option}"


def why_not(decision: ShownDecision, option: RecordedOption) -> str:
    """Return why an option was not taken; empty: it was, or the figures do not tell."""
    taken = next((each for each in decision.recorded.options if each.name == decision.option), None)
    if option.rejected or option.passed_over or option == taken:
        return option.rejected or option.passed_over
    finishes = option.finishes_in
    if taken is None or taken.finishes_in is None or finishes is None:
        return ""
    later = finishes - taken.finishes_in
    return f"done {phrases.duration(later)} later" if round(later) > 0 else ""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("webhook.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    used: dict[str, Any] = {
        "bar": bar,
        "job_address": job_address,
        "outcome": outcome,
        "why_not": why_not,
        "words": phrases,
    }
    environment.globals.update(used)
    environment.globals |= {
        "lane_height": HEIGHT,
        "saved_height": SAVED_HEIGHT,
        "spark_height": SPARK_HEIGHT,
        "spark_steps": STEPS,
    }
    return environment


@cache
def _asset(name: str) -> Markup:
    """Read our own style or script, which never contains a name from the cluster."""
    source = resources.files("webhook.console") / "templates" / name
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704
