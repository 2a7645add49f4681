"""The page's filters, read from and written to its address, and the part of a View they keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from webhook.console.view import Policy, Queue, ShownDecision, View

PAGE: Final = 50
"""Decisions shown at once."""
_LONGEST: Final = 253
"""Characters of a Kubernetes name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Parts of names, in any case; empty: all."""

    namespace: str = ""
    policy: str = ""
    queue: str = ""
    before: str = ""
    """The id of a decision: only older ones are listed; empty or not known: the latest."""

    @property
    def narrow(self) -> bool:
        return bool(self.namespace or self.policy or self.queue)


NONE: Final = Filters()


def read(parameters: Mapping[str, str]) -> Filters:
    """Read an address's parameters; unknown ones are ignored."""
    names = ("namespace", "policy", "queue", "before")
    return Filters(**{name: parameters.get(name, "").strip()[:_LONGEST] for name in names})


def address(filters: Filters, *, before: str = "") -> str:
    """Return the relative address with *filters* and the decisions older than *before*."""
    asked = {
        "namespace": filters.namespace,
        "policy": filters.policy,
        "queue": filters.queue,
        "before": before,
    }
    return "?" + urlencode({name: value for name, value in asked.items() if value})


def narrowed(view: View, filters: Filters) -> View:
    """Return the part of *view* that *filters* select; the page of decisions is chosen later."""
    if not filters.narrow:
        return view
    return replace(
        view,
        queues=tuple(queue for queue in view.queues if _is_queue(queue, filters)),
        policies=tuple(policy for policy in view.policies if _is_policy(policy, filters)),
        decisions=tuple(each for each in view.decisions if _is_decision(each, filters)),
    )


def _has(text: str, part: str) -> bool:
    return part.casefold() in text.casefold()


def _is_queue(queue: Queue, filters: Filters) -> bool:
    return any(_has(text, filters.queue) for text in (queue.name, queue.cohort, queue.cluster))


def _is_policy(policy: Policy, filters: Filters) -> bool:
    return _has(policy.name, filters.policy)


def _is_decision(decision: ShownDecision, filters: Filters) -> bool:
    queues = (decision.queue, *(option.queue for option in decision.options))
    return (
        _has(decision.namespace, filters.namespace)
        and _has(decision.policy, filters.policy)
        and any(_has(queue, filters.queue) for queue in queues)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The part of the decisions that is listed."""

    decisions: tuple[ShownDecision, ...]
    first: int
    """Number of the first one, from 1."""
    total: int
    newer: str | None
    """Address of the newest decisions; None: this page lists them."""
    older: str | None


def page(decisions: tuple[ShownDecision, ...], filters: Filters) -> Page:
    """Return the decisions to list.

    The page begins at an id, not at a number, so that it stays the same when new decisions arrive.
    """
    ids = [decision.id for decision in decisions]
    start = ids.index(filters.before) + 1 if filters.before in ids else 0
    shown = decisions[start : start + PAGE]
    more = start + PAGE < len(decisions)
    return Page(
        decisions=shown,
        first=start + 1,
        total=len(decisions),
        newer=address(filters) if start else None,
        older=address(filters, before=shown[-1].id) if more else None,
    )
