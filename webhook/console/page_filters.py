"""What the reader asked for in the page's address: every section is narrowed to it alike.

A filter is a part of a name, in any case. What may be seen was decided before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final
from urllib.parse import urlencode

from webhook.console.view import Queue, View, ways_of
from webhook.hindsight.savings_record import ShownDecision
from webhook.jobs import referred
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.state.waiting_line import WaitingWorkload

PAGE: Final = 10
"""Decisions shown at once."""
_LONGEST: Final = 253
"""Characters of a Kubernetes name."""
_NAMES: Final = ("namespace", "policy", "queue", "kind", "text", "before")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Parts of names; empty: all."""

    namespace: str = ""
    policy: str = ""
    queue: str = ""
    """Part of the name of a LocalQueue, a ClusterQueue, or its cohort or worker cluster."""
    kind: str = ""
    text: str = ""
    """Part of any name."""
    is_moved: bool = False
    """Only Jobs that left the option in which they came, or would have."""
    before: str = ""
    """The id of a decision: only older ones are listed; empty or not known: the latest."""

    @property
    def narrow(self) -> bool:
        """Return whether anything may be left out."""
        return bool(self.text) or self.is_detailed

    @property
    def is_detailed(self) -> bool:
        """Return whether more is asked for than a part of any name."""
        parts = self.namespace, self.policy, self.queue, self.kind
        return self.is_moved or any(parts)


NONE: Final = Filters()


def read_filters(parameters: Mapping[str, str]) -> Filters:
    """Read an address's parameters; unknown ones are ignored."""
    given = {name: parameters.get(name, "").strip()[:_LONGEST] for name in _NAMES}
    return Filters(**given, is_moved=bool(parameters.get("moved")))


def address(filters: Filters, *, before: str = "") -> str:
    """Return the relative address with *filters* and the decisions older than *before*."""
    asked: dict[str, Any] = {name: getattr(filters, name) for name in _NAMES}
    asked |= {"moved": "1" if filters.is_moved else "", "before": before}
    return "?" + urlencode({name: value for name, value in asked.items() if value})


def narrowed(view: View, filters: Filters) -> View:
    """Return the part of *view* that *filters* select; its sums stay those of all.

    The page of decisions is chosen later.
    """
    if not filters.narrow:
        return view
    decisions = tuple(_decisions(view, filters))
    return replace(
        view,
        queues=tuple(_queues(view, filters)),
        policies=tuple(_policies(view, filters, decisions)),
        decisions=decisions,
        waiting=None if view.waiting is None else tuple(_waiting(view, filters)),
    )


def _has(part: str, *texts: str) -> bool:
    wanted = part.casefold()
    return not wanted or any(wanted in text.casefold() for text in texts)


def _reached(view: View) -> Mapping[str, tuple[str, ...]]:
    """Return ``namespace/name`` of LocalQueues to what else their Jobs' queues are called."""
    reached: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for queue in view.queues:
        for place in queue.local_queues:
            reached[place] += (queue.name, queue.cohort, queue.cluster)
    return reached


def _decisions(view: View, filters: Filters) -> Iterator[ShownDecision]:
    first = {policy.name: policy.spec.options[0].name for policy in view.policies}
    reached = _reached(view)
    for decision in view.decisions:
        recorded = decision.recorded
        names = {decision.queue, *(option.queue for option in recorded.options)}
        places = (f"{decision.namespace}/{name}" for name in names)
        queues = (*names, *chain.from_iterable(reached.get(place, ()) for place in places))
        own = (decision.namespace, decision.job, recorded.policy, decision.option, recorded.id)
        if (
            _has(filters.namespace, decision.namespace)
            and _has(filters.kind, decision.kind)
            and _has(filters.policy, recorded.policy)
            and _has(filters.queue, *queues)
            and _has(filters.text, *own, *queues, recorded.reason)
            and (not filters.is_moved or _is_moved(decision, first))
        ):
            yield decision


def _is_moved(decision: ShownDecision, first: Mapping[str, str | None]) -> bool:
    """Return whether a Job left its first option; *first* are those of policies."""
    if decision.moves:
        return True
    recorded = decision.recorded
    came = recorded.options[0].name if recorded.options else first.get(recorded.policy)
    return bool(decision.option) and came is not None and decision.option != came


def _waiting(view: View, filters: Filters) -> Iterator[WaitingWorkload]:
    decided = _ids_of(_decisions(view, filters)) if filters.is_moved else frozenset()
    cohorts = {queue.name: queue.cohort for queue in view.queues if not queue.cluster}
    for each in view.waiting or ():
        workload = each.workload
        queues = (each.cluster_queue, workload.queue, cohorts.get(each.cluster_queue, ""))
        own = (workload.namespace, workload.job, workload.policy, workload.option)
        if (
            _has(filters.namespace, workload.namespace)
            and _has(filters.kind, referred(workload.job)[0].kind)
            and _has(filters.policy, workload.policy)
            and _has(filters.queue, *queues)
            and _has(filters.text, *own, *queues)
            and (not filters.is_moved or (workload.namespace, workload.decision_id) in decided)
        ):
            yield each


def _ids_of(decisions: Iterable[ShownDecision]) -> frozenset[tuple[str, str]]:
    return frozenset((decision.namespace, decision.recorded.id) for decision in decisions)


def _is_way(queue: Queue, place: str, filters: Filters) -> bool:
    """Return whether a ClusterQueue is meant, by itself or by a LocalQueue that points to it.

    Without *place*, which is ``namespace/name`` of one, it is in no namespace.
    """
    namespace, _, name = place.partition("/")
    called = queue.name, queue.cohort, queue.cluster, name
    return _has(filters.namespace, namespace) and _has(filters.queue, *called)


def _queues(view: View, filters: Filters) -> Iterator[Queue]:
    """Yield ClusterQueues; one belongs to the namespaces and policies that have a way to it."""
    leads = {
        name
        for policy in view.policies
        if _has(filters.policy, policy.name)
        for name in ways_of(policy)
    }
    for queue in view.queues:
        for place in queue.local_queues or ("",):
            if (
                _is_way(queue, place, filters)
                and (
                    not filters.policy
                    or not leads.isdisjoint({queue.name, place.partition("/")[2]})
                )
                and _has(filters.text, queue.name, queue.cohort, queue.cluster, *queue.local_queues)
            ):
                yield queue
                break


def _policies(
    view: View, filters: Filters, decisions: Iterable[ShownDecision]
) -> Iterator[FallbackPolicy]:
    """Yield policies; one is in a namespace or queue if an option leads there, or it decided."""
    decided = {decision.recorded.policy for decision in decisions}
    ways = {
        name
        for queue in view.queues
        for place in queue.local_queues or ("",)
        if _is_way(queue, place, filters)
        for name in (queue.name, place.partition("/")[2])
    }
    is_all = not (filters.namespace or filters.queue)
    for policy in view.policies:
        options = (option.name for option in policy.spec.options)
        if (
            _has(filters.policy, policy.name)
            and _has(filters.text, policy.name, policy.spec.mode, *options, *ways_of(policy))
            and (is_all or policy.name in decided or not ways.isdisjoint(ways_of(policy)))
        ):
            yield policy


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
    ids = [decision.recorded.id for decision in decisions]
    start = ids.index(filters.before) + 1 if filters.before in ids else 0
    shown = decisions[start : start + PAGE]
    more = start + PAGE < len(decisions)
    return Page(
        decisions=shown,
        first=start + 1,
        total=len(decisions),
        newer=address(filters) if start else None,
        older=address(filters, before=shown[-1].recorded.id) if more else None,
    )
