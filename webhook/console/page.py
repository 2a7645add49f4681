"""Draws a View as the page for people: HTML without outside resources.

What may be seen was decided before; here it is only written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from math import inf, isfinite
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from webhook.console import phrases
from webhook.console.decisions import KEPT
from webhook.console.job_story import JobStory
from webhook.console.page_filters import NONE, Filters, address, narrowed, page
from webhook.console.view import Cell, Queue, View, decided
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import ShownDecision
from webhook.model.quantity import CPU
from webhook.state.waiting_line import WaitingWorkload

AT_ONCE: Final = 10
"""Rows of a list shown before the reader expands the rest; of policies half as many."""
_SERIES: Final = 4
"""Colors of options; later ones share the last."""
_NO_DEVICES: Final = (CPU, "memory", "ephemeral-storage", "pods")
_WITHOUT_POLICIES: Final = (
    (
        "See what a policy would gain, from finished Jobs. Nothing is changed.",
        ("kubectl fallback estimate",),
    ),
    (
        "Write a policy that only watches, with mode: Observe, and check it.",
        ("kubectl fallback check -f policy.yaml", "kubectl apply -f policy.yaml"),
    ),
    (
        "Ask what it would do with your Job, and after a day what it would have saved.",
        ("kubectl fallback explain -f job.yaml", "kubectl fallback report"),
    ),
)
"""What to do next, with its commands."""
_WITHOUT_DECISIONS: Final = (
    (
        "Check that the policies are ready. A policy that is not says why.",
        ("kubectl get fallbackpolicies",),
    ),
    (
        "Ask what would be decided for your Job, and which policy matches it.",
        ("kubectl fallback explain -f job.yaml",),
    ),
    (
        "Submit the Job. Its decision is on this page within seconds.",
        ("kubectl create -f job.yaml",),
    ),
)


def render(view: View, nonce: str, asked: Filters = NONE) -> str:
    """Return the page of the part of *view* that *asked* selects.

    *nonce* is the one in the header ``Content-Security-Policy`` of this very response.
    """
    shown = narrowed(view, asked)
    return _drawn(
        "page.html",
        view,
        nonce,
        shown=shown,
        asked=asked,
        synced=isfinite(view.age),
        silent={cluster.name: cluster.age for cluster in view.clusters if cluster.is_stale},
        never=inf,
        at_once=AT_ONCE,
        most_waiting=KEPT,
        # Those that are not ready come first, but what teams write badly is theirs to mend.
        policies=sorted(
            shown.policies, key=lambda each: (bool(each.namespace), _may_be_ready(each.name, view))
        ),
        queues=sorted(shown.queues, key=_rank),
        only=lambda queue: address(replace(asked, queue=queue)),
        troubles={queue.name: queue.trouble for queue in view.queues if not queue.cluster},
        longest=min(view.waiting or (), key=lambda each: each.workload.created, default=None),
        steps=first_steps(view),
        listed=page(shown.decisions, asked),
        suggested=_suggested(view),
    )


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
            colors={
                (policy.name, option): color(option, place)
                for policy in view.policies
                for place, (option, _) in enumerate(decided(policy, ()))
            },
            **shown,
        )
    )


def _may_be_ready(policy: str, view: View) -> bool:
    judged = view.judged.get(policy)
    return judged is None or judged.is_ready


def _rank(queue: Queue) -> tuple[bool, int, bool, str, str]:
    """Return by what ClusterQueues stand in order: troubled ones first, then the busiest."""
    return (not queue.trouble, -queue.pending, not _devices(queue), queue.name, queue.cluster)


def first_steps(view: View) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the next three steps; none where Jobs are decided already, or nothing is known yet."""
    if view.decisions or not isfinite(view.age):
        return ()
    return _WITHOUT_DECISIONS if view.policies else _WITHOUT_POLICIES


def color(option: str, place: int) -> str:
    """Return the color of a policy's option by its position among them."""
    return f"series-{min(place, _SERIES - 1)}" if option else "series-none"


def job_address(namespace: str, job: str) -> str:
    """Return the relative address of a Job's page."""
    return "job?" + urlencode({"namespace": namespace, "job": job})


def _suggested(view: View) -> dict[str, list[str]]:
    """Return the names to suggest for each filter."""
    names = {
        "namespace": {decision.namespace for decision in view.decisions}
        | {place.partition("/")[0] for queue in view.queues for place in queue.local_queues}
        | {each.workload.namespace for each in view.waiting or ()},
        "policy": {policy.name for policy in view.policies},
        "queue": {queue.name for queue in view.queues},
        "kind": {decision.kind for decision in view.decisions},
    }
    names["text"] = names["namespace"] | names["policy"] | names["queue"]
    return {name: sorted(found) for name, found in names.items()}


def main_cells(queue: Queue) -> list[Cell]:
    """Return a ClusterQueue's quota of what is scarce: devices, or cores where there are none."""
    cells = _devices(queue) or [cell for cell in queue.cells if cell.resource == CPU]
    return [cell for cell in cells if cell.resource == cells[0].resource]


def _devices(queue: Queue) -> list[Cell]:
    return [
        cell
        for cell in queue.cells
        if cell.resource not in _NO_DEVICES and not cell.resource.startswith("hugepages-")
    ]


def why_waiting(waiting: WaitingWorkload, trouble: str) -> str:
    """Return why a Workload has not started; *trouble*: why its ClusterQueue admits nobody."""
    start, ahead = waiting.start, waiting.position - 1
    if trouble:
        return f"{waiting.cluster_queue} admits nobody: {trouble}"
    reasons = [f"{phrases.counted(ahead, 'Workload')} ahead" if ahead else "it is next"]
    if waiting.until:
        reasons.append(f"backs off after an eviction until {phrases.clock(waiting.until)}")
    if start.preempts:
        reasons.append("others have to stop for it")
    if start.preempted_by:
        reasons.append(f"{phrases.counted(start.preempted_by, 'Workload')} preempt it first")
    return "; ".join([*reasons, *start.doubts])


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
        "decided": decided,
        "job_address": job_address,
        "main_cells": main_cells,
        "outcome": outcome,
        "why_not": why_not,
        "why_waiting": why_waiting,
        "words": phrases,
    }
    environment.globals.update(used)
    return environment


@cache
def _asset(name: str) -> Markup:
    """Read our own style or script, which never contains a name from the cluster."""
    source = resources.files("webhook.console") / "templates" / name
    return Markup(source.read_text(encoding="utf-8"))  # noqa: S704
