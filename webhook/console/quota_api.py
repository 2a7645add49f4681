"""The Quota API: turns parameters into the JSON of quota, Workloads, decisions or who waits.

Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeAlias

from webhook.api.resources import KUEUE_GROUP
from webhook.console.access import Rights
from webhook.console.collect import seen_clusters, seen_decisions, seen_waiting
from webhook.console.decisions import KEPT
from webhook.console.view import Queue, ShownCluster, View, cell_json, plain
from webhook.decide import decision_record
from webhook.jobs import BY_NAME, JobKind, kind_of, referred
from webhook.model import fields
from webhook.model.decision import CreateOutcome
from webhook.model.fields import FieldError
from webhook.model.job import PLAIN, Requester
from webhook.model.words import span

RETRY_SECONDS = 5
LIMIT = 100
"""Decisions in a response, by default."""
_LONGEST = 253
"""Characters of a Kubernetes name."""


class Problem(Exception):  # noqa: N818 - an answer as good as others
    """Why there is no result; *more* are further fields of the response, beside the text."""

    def __init__(self, status: HTTPStatus, text: str, **more: Any) -> None:
        super().__init__(text)
        self.status, self.text, self.more = status, text, more


def quota(view: View, given: Mapping[str, str], rights: Rights) -> Mapping[str, Any]:
    """Return one flavor's quota of one resource, or all that match what is given."""
    queue = _queue(view, given, rights)
    flavor, resource = given.get("flavor"), given.get("resource")
    cells = [cell for cell in queue.cells if flavor in (None, cell.flavor)]
    if not cells and flavor is not None:
        raise _missing(f"ClusterQueue {queue.name}{_where(queue)} has no flavor {flavor}")
    cells = [cell for cell in cells if resource in (None, cell.resource)]
    if not cells and resource is not None:
        of_flavor = "" if flavor is None else f" in flavor {flavor}"
        text = f"ClusterQueue {queue.name}{_where(queue)} has no quota of {resource}{of_flavor}"
        raise _missing(text)
    quotas = [{**_named(queue), **cell_json(cell)} for cell in cells]
    if flavor is not None and resource is not None:
        return quotas[0]
    return {**_named(queue), "quotas": quotas}


def workloads(view: View, given: Mapping[str, str], rights: Rights) -> Mapping[str, Any]:
    """Return the counts of Workloads as Kueue counts them."""
    queue = _queue(view, given, rights)
    return {
        **_named(queue),
        "pendingWorkloads": queue.pending,
        "reservingWorkloads": queue.reserving,
        "admittedWorkloads": queue.admitted,
    }


def decisions(view: View, given: Mapping[str, str], rights: Rights) -> Mapping[str, Any]:
    """Return the newest decisions, of one namespace or of all that the user may see."""
    limit, namespace, kind = _limit(given.get("limit")), given.get("namespace"), _kind(given)
    chosen = [
        decision
        for decision in view.decisions
        if namespace in (None, decision.namespace) and kind in (None, decision.kind)
    ]
    seen = seen_decisions(replace(view, decisions=tuple(chosen)), rights)
    if namespace is not None and not seen:
        _require_list(rights, namespace, BY_NAME[kind or PLAIN])
    return {"decisions": [plain(decision) for decision in seen[:limit]]}


def queue(view: View, given: Mapping[str, str], rights: Rights) -> Mapping[str, Any]:
    """Return who waits, the first to start first: of one namespace, or of all that are seen."""
    limit, namespace, kind = _limit(given.get("limit")), given.get("namespace"), _kind(given)
    if view.is_stale or view.waiting is None:
        raise stale(view.age)
    chosen = [
        each
        for each in view.waiting
        if namespace in (None, each.workload.namespace)
        and given.get("job") in (None, each.workload.job)
        and (kind is None or referred(each.workload.job)[0].kind == kind)
    ]
    seen = seen_waiting(replace(view, waiting=tuple(chosen)), rights) or ()
    if namespace is not None and not seen:
        _require_list(rights, namespace, BY_NAME[kind or PLAIN])
    return {"total": len(seen), "workloads": [plain(each) for each in seen[:limit]]}


def one_job(given: Mapping[str, str], rights: Rights) -> tuple[str, str]:
    """Return namespace and reference of the Job that is asked for, if the user may list such.

    Raises:
        Problem: it is not named, of no known kind, or not theirs to see.

    """
    for name in ("namespace", "job"):
        if name not in given:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{name}: must be given")
    namespace, job = given["namespace"], given["job"]
    try:
        kind, _ = referred(job)
    except KeyError:
        raise Problem(HTTPStatus.BAD_REQUEST, "job: must be a name, or kind/name") from None
    _require_list(rights, namespace, kind)
    return namespace, job


def _require_list(rights: Rights, namespace: str, kind: JobKind) -> None:
    """Refuse who may not list Jobs of a kind in a namespace, whether or not there are any."""
    if namespace not in rights.may_list_jobs((namespace,), kind.kind):
        text = f"needs list {kind.plural} in namespace {namespace}"
        raise Problem(HTTPStatus.FORBIDDEN, text)


Decide: TypeAlias = Callable[[Mapping[str, Any], Requester | None], CreateOutcome | None]
"""What would be decided for a manifest that somebody submits; None: not now."""
LONGEST_MANIFEST = 65_536
"""Bytes."""


def dry_run(body: str, rights: Rights, decide: Decide) -> Mapping[str, Any]:
    """Return what would be decided for a Job that its user submits in a namespace of theirs."""
    try:
        source = fields.from_json(body, "", longest=LONGEST_MANIFEST)
        kind, namespace = kind_of(source), _namespace(source)
        if not rights.may_create(namespace, kind.kind):
            text = f"needs create {kind.plural} in namespace {namespace}"
            raise Problem(HTTPStatus.FORBIDDEN, text)
        outcome = decide(source, rights.requester)
    except FieldError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, str(error)) from error
    if outcome is None:
        text = "the state is not known yet, or too many ask"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return decision_record.outcome_json(outcome)


def _namespace(source: Mapping[str, Any]) -> str:
    namespace = fields.text(fields.mapping(source, "metadata", ""), "namespace", "metadata")
    if not namespace:
        raise FieldError("metadata.namespace", "must be given")
    return namespace


def _kind(given: Mapping[str, str]) -> str | None:
    kind = given.get("kind")
    if kind is not None and kind not in BY_NAME:
        known = ", ".join(sorted(BY_NAME))
        raise Problem(HTTPStatus.BAD_REQUEST, f"kind: must be one of {known}")
    return kind


def _queue(view: View, given: Mapping[str, str], rights: Rights) -> Queue:
    name = given.get("clusterqueue")
    if name is None:
        raise Problem(HTTPStatus.BAD_REQUEST, "clusterqueue: must be given")
    if name not in rights.may_get((name,), group=KUEUE_GROUP, resource="clusterqueues"):
        raise Problem(HTTPStatus.FORBIDDEN, f"needs get clusterqueues {name}")
    cluster = given.get("cluster", "")
    state: ShownCluster | View = _cluster(view, cluster, rights) if cluster else view
    if state.is_stale:
        raise stale(state.age, cluster)
    queue = next((q for q in view.queues if (q.name, q.cluster) == (name, cluster)), None)
    if queue is None:
        where = f" in cluster {cluster}" if cluster else ""
        raise _missing(f"there is no ClusterQueue {name}{where}")
    return queue


def _cluster(view: View, name: str, rights: Rights) -> ShownCluster:
    shown = next((cluster for cluster in view.clusters if cluster.name == name), None)
    if shown is not None:
        return shown
    if view.is_stale:
        # The list of clusters is part of this cluster's state.
        raise stale(view.age)
    close = difflib.get_close_matches(name[:_LONGEST], sorted(seen_clusters(view, rights)))
    hint = f"; nearest: {', '.join(close)}" if close else ""
    raise _missing(f"no cluster {name} is watched{hint}")


def stale(age: float, cluster: str = "") -> Problem:
    known_age = plain(age)
    how_old = "is not known yet" if known_age is None else f"is {span(age)} old"
    where = f" in cluster {cluster}" if cluster else ""
    text = f"the state of the queues{where} {how_old}"
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, text, age=known_age)


def _named(queue: Queue) -> Mapping[str, Any]:
    named = {"clusterqueue": queue.name}
    return {**named, "cluster": queue.cluster} if queue.cluster else named


def _where(queue: Queue) -> str:
    return f" in cluster {queue.cluster}" if queue.cluster else ""


def _missing(text: str) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, text)


def _limit(text: str | None) -> int:
    if text is None:
        return LIMIT
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= KEPT):
        raise Problem(HTTPStatus.BAD_REQUEST, f"limit: must be a number from 1 to {KEPT}")
    return int(text)
