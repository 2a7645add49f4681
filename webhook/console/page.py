"""Draws a View as the page for people: HTML without outside resources.

What may be seen was decided before; here it is only written.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from math import inf, isfinite
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from webhook.console import phrases, timeline, view_filters
from webhook.console.view import Queue, ShownDecision, View
from webhook.console.view_filters import Filters

QUEUES_AT_ONCE: Final = 12
"""ClusterQueues shown before the reader expands the rest."""


def render(view: View, nonce: str, asked: Filters = view_filters.NONE) -> str:
    """Return the page of the part of *view* that *asked* selects.

    *nonce* is the one in the header ``Content-Security-Policy`` of this very response.
    """
    shown = view_filters.narrowed(view, asked)
    queues = sorted(shown.queues, key=_busiest_first)
    template = _environment().get_template("page.html")
    return template.render(
        nonce=nonce,
        style=_asset("style.css"),
        script=_asset("live.js"),
        view=view,
        shown=shown,
        asked=asked,
        synced=isfinite(view.age),
        silent={each.name: each.age for each in view.clusters if each.is_stale},
        never=inf,
        queues=queues[:QUEUES_AT_ONCE],
        more_queues=queues[QUEUES_AT_ONCE:],
        timeline=timeline.timeline(shown),
        listed=view_filters.page(shown.decisions, asked),
        suggested=_suggested(view),
        colors=_colors(view),
        modes={policy.name: policy.mode for policy in view.policies},
    )


def _busiest_first(queue: Queue) -> tuple[bool, int, str, str]:
    return (not queue.trouble, -queue.pending, queue.name, queue.cluster)


def _suggested(view: View) -> dict[str, list[str]]:
    """Return the names to suggest for each filter."""
    return {
        "namespace": sorted({each.namespace for each in view.decisions}),
        "policy": sorted({each.name for each in view.policies}),
        "queue": sorted({each.name for each in view.queues}),
    }


def _colors(view: View) -> dict[tuple[str, str], str]:
    return {
        (policy.name, option): timeline.color(option, place)
        for policy in view.policies
        for place, (option, _) in enumerate(policy.decided)
    }


def outcome(decision: ShownDecision) -> str:
    """Return what became of the Job, or under Observe and Advise what would have."""
    if not decision.option:
        return "left alone"
    return decision.option if decision.mode == "Enforce" else f"would be {decision.option}"


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("webhook.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    used: dict[str, Any] = {"bar": timeline.bar, "outcome": outcome, "words": phrases}
    found.globals.update(used)
    found.globals["lane_height"] = timeline.HEIGHT
    return found


@cache
def _asset(name: str) -> Markup:
    """Read our own style or script, which never contains a name from the cluster."""
    source = resources.files("webhook.console") / "templates" / name
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704
