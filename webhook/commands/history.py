"""The history of Jobs, from a cluster or a file: the journal, and Workloads that still exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.api import resources
from webhook.api.kubernetes_api import Forbidden, KubernetesApi, NotServed
from webhook.api.resources import ReadObject as Read
from webhook.api.resources import Resource
from webhook.api.watch import list_pages, path_of
from webhook.commands.kubectl import Scope, connected, release_namespace_of
from webhook.decide import match
from webhook.hindsight import entries
from webhook.hindsight.journal import JournalEntry, read_slot, slot_of
from webhook.hindsight.look_back import LookBackInput
from webhook.jobs import BY_NAME, JOB, JobKind
from webhook.kueue import multikueue
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.flags import Named
from webhook.model.job import PLAIN
from webhook.simulate.scenario import Worker, emptied
from webhook.state.readers import read_by_kind
from webhook.state.snapshot import Snapshot
from webhook.state.snapshot_file import (
    DEFAULTED,
    kind_of,
    read_objects,
    read_placed,
    read_snapshot,
    state_of,
)
from webhook.state.state import State
from webhook.state.watched import journal, run_times, watched

_NAMESPACED = (resources.WORKLOADS, *(kind.plural for kind in BY_NAME.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHistory:
    """What was found; one entry for each Workload."""

    state: State | None
    """None: queues and policies may not be read, so nothing can be replayed."""
    entries: tuple[JournalEntry, ...]
    left_out: int
    """Jobs that the journal had no room for."""
    oldest_slot: int | None = None
    """Of the journal, of those that were read; None: there is none."""
    unread: tuple[str, ...] = ()
    """What could not be read, and why."""

    @property
    def until(self) -> float:
        """Return the time of the last event, in seconds since 1970."""
        return max((max(entry.created, entry.finished) for entry in self.entries), default=0.0)

    def world(
        self,
        until: float,
        *,
        clusters: Sequence[str] = (),
    ) -> LookBackInput | None:
        """Return what replays start from, with worker clusters as NAME=FILE; None: not known.

        Raises:
            FieldError: a worker cluster's file cannot be read, or no queue leads to it.

        """
        if self.state is None:
            return None
        snapshot = match.queueing_all(self.state.snapshot(0.0, until))
        return LookBackInput(
            snapshot=snapshot,
            learned=self.state.learned(until),
            now=until,
            workers=_worker_clusters(clusters, snapshot),
        )


_OPTION = "--cluster"


def _worker_clusters(given: Sequence[str], manager: Snapshot) -> Mapping[str, Worker]:
    """Read worker clusters given as NAME=FILE; a replay begins with empty queues."""
    workers: dict[str, Worker] = {}
    reached = multikueue.reached(manager.setup)
    for pair in given:
        name, sign, path = pair.partition("=")
        if not (name and sign and path):
            raise FieldError(_OPTION, f"expected NAME=FILE, got {pair}")
        if name not in reached:
            there = ", ".join(reached) or "none"
            message = f"no ClusterQueue leads to {name} through MultiKueue; there is {there}"
            raise FieldError(_OPTION, message)
        workers[name] = Worker(snapshot=emptied(read_snapshot(path, 0.0, 0.0)))
    return workers


@dataclass(slots=True)
class _ListedObjects:
    state: defaultdict[str, list[Read]] = field(default_factory=lambda: defaultdict(list))
    journal: dict[str, JournalEntry] = field(default_factory=dict)
    pasts: list[JournalEntry] = field(default_factory=list)
    jobs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By uid: of batch Jobs the metadata, others whole."""
    left_out: int = 0
    unread: list[str] = field(default_factory=list)
    is_whole: bool = True
    since: float = 0.0
    """Older slots of the journal are not read."""
    oldest_slot: int | None = None

    def take_job(self, kind: JobKind, source: Mapping[str, Any]) -> None:
        metadata = entries.metadata_of(source)
        self.jobs[str(metadata.get("uid") or "")] = metadata if kind is JOB else source

    def take_workload(self, source: Mapping[str, Any]) -> None:
        if (workload := entries.read_finished(source)) is not None:
            self.pasts.append(workload)

    def take_slot(self, source: Mapping[str, Any]) -> None:
        slot = read_slot(source, oldest=slot_of(self.since))
        if slot is None:
            return
        self.journal |= slot.entries
        self.left_out += slot.left_out
        if slot.entries and (self.oldest_slot is None or slot.number < self.oldest_slot):
            self.oldest_slot = slot.number

    def history(self) -> ClusterHistory:
        state = state_of(self.state) if self.is_whole else None
        named = match.named_by(state.snapshot(0.0, 0.0).fallback.policies if state else ())
        return ClusterHistory(
            state=state,
            entries=tuple({**dict(self._present(named)), **self.journal}.values()),
            left_out=self.left_out,
            oldest_slot=self.oldest_slot,
            unread=tuple(self.unread),
        )

    def _present(self, named: Named) -> Iterator[tuple[str, JournalEntry]]:
        for workload in self.pasts:
            known = self.jobs.get(workload.uid)
            metadata, whole = (known, None) if workload.kind == PLAIN else (None, known)
            try:
                yield workload.key, entries.entry(workload, metadata, named=named, whole=whole)
            except FieldError as error:
                self.unread.append(f"Workload {workload.namespace}/{workload.name}: {error}")


def past_of(
    scope: Scope, snapshot: str | None, *, since: float, release_namespace: str | None = None
) -> ClusterHistory:
    """Read a saved state, or without one the cluster, as ``from_cluster`` does.

    Raises:
        FieldError: the file cannot be read.

    """
    if snapshot is not None:
        return from_file(snapshot)
    with connected(scope.access) as client:
        ours, here = release_namespace_of(client, release_namespace), scope.here
        return from_cluster(client, own_namespace=ours, namespace=here, since=since)


def from_file(path: str) -> ClusterHistory:
    """Read a saved state (``-``: standard input).

    Raises:
        FieldError: it cannot be read; names the file and the place in it.

    """
    listed = _ListedObjects()
    for source, place in read_objects(path):
        kind = str(source.get("kind"))
        try:
            name = fields.text(fields.mapping(source, "metadata", ""), "name", "metadata")
            if kind in BY_NAME:
                listed.take_job(BY_NAME[kind], source)
            elif kind == "Workload":
                listed.take_workload(source)
            elif kind == "ConfigMap" and name.startswith(resources.JOURNAL):
                listed.take_slot(source)
        except FieldError as error:
            raise FieldError(f"{place}.{error.path}", error.message) from error
        if needed := kind_of(source):
            listed.state[needed].append(read_placed(needed, source, place))
    return listed.history()


def from_cluster(
    client: KubernetesApi, *, own_namespace: str, namespace: str, since: float
) -> ClusterHistory:
    """List with the user's rights; where they may not list all namespaces, *namespace* alone.

    Of the journal only what ended after *since* or less than an hour before is read, in seconds
    since 1970: a week of it takes seven times the memory of a day.

    Raises:
        Forbidden: even the Workloads of that namespace may not be listed.
        Unreachable: there is no answer.

    """
    listed = _ListedObjects(since=since)
    cluster = watched(namespace=own_namespace, kueue_namespace="kueue-system", team_policies=True)
    kept = (run_times(own_namespace), journal(own_namespace))
    for resource in (*cluster, _resource_of(JOB), *kept):
        try:
            _take(listed, resource, _listed(client, resource, namespace))
        except NotServed:
            continue
        except Forbidden as error:
            if resource.kind in _NAMESPACED:
                raise
            listed.unread.append(str(error))
            if resource.kind not in {*DEFAULTED, resources.JOURNAL}:
                listed.is_whole = False
    _take_other_kinds(listed, client, namespace)
    return listed.history()


def _take_other_kinds(listed: _ListedObjects, client: KubernetesApi, namespace: str) -> None:
    """List the Jobs of the kinds that Workloads belong to; without them the others are known."""
    named = {workload.kind for workload in listed.pasts} - {PLAIN}
    for kind in (BY_NAME[name] for name in sorted(named) if name in BY_NAME):
        try:
            for source in _listed(client, _resource_of(kind), namespace):
                listed.take_job(kind, source)
        except NotServed:
            continue
        except Forbidden as error:
            listed.unread.append(str(error))


def _resource_of(kind: JobKind) -> Resource:
    return Resource(kind=kind.plural, path=kind.path(), read=read_by_kind)


def _take(listed: _ListedObjects, resource: Resource, items: Iterable[Mapping[str, Any]]) -> None:
    for source in items:
        if resource.kind == JOB.plural:
            listed.take_job(JOB, source)
        elif resource.kind == resources.JOURNAL:
            listed.take_slot(source)
        else:
            if resource.kind == resources.WORKLOADS:
                listed.take_workload(source)
            listed.state[resource.kind].append(read_by_kind(resource.kind, source))


def _listed(
    client: KubernetesApi, resource: Resource, namespace: str
) -> Iterator[Mapping[str, Any]]:
    path = path_of(client, resource)
    try:
        yield from _items(client, path, resource)
    except Forbidden:
        if resource.kind not in _NAMESPACED:
            raise
        group, _, plural = path.rpartition("/")
        yield from _items(client, f"{group}/namespaces/{namespace}/{plural}", resource)


def _items(client: KubernetesApi, path: str, resource: Resource) -> Iterator[Mapping[str, Any]]:
    for page in list_pages(client, path, resource.params):
        yield from page.get("items") or ()
