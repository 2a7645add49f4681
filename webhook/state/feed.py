"""Watch updates of all resources in, updates for the server out.

Pure: the clock comes in, and neither threads nor the pipe are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from webhook.api.resources import RUN_TIMES, WEBHOOKS, WORKLOADS, ReadObject, Resource
from webhook.api.watch import WatchUpdate
from webhook.kueue.tree_forecast import TreeForecast
from webhook.learn.run_records import ClassRecord
from webhook.model.faults import Attention
from webhook.state.pipe import Update, changes
from webhook.state.queue_counts import QueueContents
from webhook.state.snapshot import Snapshot
from webhook.state.state import State
from webhook.state.workload import SeenWorkload, Workload


class Feed:
    """The state behind the updates.

    Before all required resources are listed, only health is published.
    """

    def __init__(
        self,
        resources: Iterable[Resource],
        now: float,
        complete: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
        *,
        stated_version: str = "",
        currency: str = "",
    ) -> None:
        """Begin at *now*; *complete* is applied to each snapshot before it is published.

        *stated_version* and *currency* are as in ``State``.
        """
        self._complete = complete
        resources = tuple(resources)
        self._required = {resource.kind for resource in resources if resource.required}
        self._awaited = {resource.kind for resource in resources if resource.awaited}
        self._alive = dict.fromkeys(self._required, now)
        self._listed: set[str] = set()
        self._relists: Counter[str] = Counter()
        self._errors: dict[str, str] = {}
        self._published: Snapshot | None = None
        self._counted: Snapshot | None = None
        self._forecasts: Mapping[str, TreeForecast] = {}
        self._not_reported: list[SeenWorkload] = []
        self._profiled: list[SeenWorkload] = []
        self._state = State(stated_version=stated_version, currency=currency)
        # The webhooks' order counts as unproven until their configurations are read.
        self._state.replace(WEBHOOKS, ())

    @property
    def published(self) -> Snapshot | None:
        """Return the last snapshot; None: there was none yet."""
        return self._published

    @property
    def counted(self) -> Snapshot | None:
        """Return what the last snapshot was completed from, with its forecasts, for any thread.

        None: there was none yet.
        """
        return self._counted

    @property
    def synced(self) -> bool:
        return not self.waiting

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the kinds that keep the state from being synced."""
        return tuple(sorted(self._required - self._listed | self._awaited))

    def not_ready(self) -> str:
        """Return a sentence about what is waited for; empty: the state is synced."""
        return f"not synced yet: {', '.join(self.waiting)}" if self.waiting else ""

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply one watch update to the state; return the lines to log."""
        kind = message.kind
        if message.error:
            return self._fail(message)
        self._live(message)
        recovered = self._errors.pop(kind, "")
        if message.entries is not None:
            self._state.replace_read(kind, message.entries)
            self._listed.add(kind)
            self._awaited.discard(kind)
            self._relists[kind] += message.served
        elif message.event is not None:
            self._state.apply_read(kind, *message.event)
        problems = self._skipped()
        return (*problems, f"{kind}: readable again") if recovered else problems

    def hear(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note only that the watch is alive and which objects cannot be read; return lines to log.

        The objects themselves are counted elsewhere.
        """
        self._live(message)
        if message.entries is not None:
            self._state.note_list(message.kind, message.entries)
        elif message.event is not None:
            self._state.note_event(message.kind, *message.event)
        return self._skipped()

    def _live(self, message: WatchUpdate) -> None:
        kind = message.kind
        if kind in self._alive and not message.error:
            self._alive[kind] = max(self._alive[kind], message.at)

    def _skipped(self) -> tuple[str, ...]:
        return tuple(Attention(f"skipped: {problem}") for problem in self._state.take_problems())

    def expect(self, kind: str, now: float) -> None:
        """Let the age of one more resource count for the state's age."""
        self._alive.setdefault(kind, now)

    @property
    def lists_workloads(self) -> bool:
        return WORKLOADS in self._listed

    def workloads(self) -> Iterable[Workload]:
        """Return all Workloads, as of now."""
        return self._state.workloads()

    def contents_of(self, name: str) -> QueueContents:
        """Return the Workloads of a ClusterQueue, as of the last update."""
        return self._state.contents_of(name)

    def remember(self, records: Mapping[str, ClassRecord]) -> None:
        """Merge records of runs that another process has kept, by class."""
        self._state.replace_read(RUN_TIMES, (ReadObject(("", ""), records),))

    def contents_to_forecast(
        self, names: Iterable[str], later: Collection[str] = ()
    ) -> tuple[Mapping[str, QueueContents], tuple[SeenWorkload, ...]]:
        """Return contents of ClusterQueues to forecast, and Workloads reported since the last call.

        Those reported in the ClusterQueues of *later* are kept for the call that names these.
        """
        queues = self._published.setup.local_queues if self._published is not None else {}
        now: list[SeenWorkload] = []
        rest: list[SeenWorkload] = []
        for workload in self._not_reported:
            queue = queues.get((workload.namespace, workload.local_queue))
            waits = queue is not None and queue.cluster_queue in later
            (rest if waits else now).append(workload)
        self._not_reported = rest
        return {name: self._state.contents_of(name) for name in names}, tuple(now)

    def take_recounted(self) -> frozenset[str]:
        """Return the ClusterQueues whose Workloads have changed since the last call."""
        return self._state.take_recounted()

    def publish_forecast(
        self, forecasts: Mapping[str, TreeForecast], seen: Iterable[SeenWorkload]
    ) -> None:
        """Publish *forecasts* from now on, the first to contain the Workloads in *seen*."""
        self._forecasts = forecasts
        self._profiled += seen

    def publish_anew(self) -> None:
        """Make the next update complete: the last one may have been lost."""
        self._published = None
        self._state.build_anew()

    def update(self, now: float, unix: float) -> Update:
        """Return what has changed since the last update, and as of when the state is.

        *unix* is the same instant as *now*, in seconds since 1970.
        """
        as_of = min(self._alive.values())
        changed: dict[str, Any] = {}
        if self.synced:
            counted = self._state.snapshot(as_of, unix - (now - as_of))
            self._counted = replace(counted, forecasts=self._forecasts)
            after = replace(self._complete(counted), forecasts=self._forecasts)
            changed = changes(self._published, after)
            self._published = after
        seen = self._state.take_seen() if self.synced else ()
        self._not_reported += seen
        profiled, self._profiled = tuple(self._profiled), []
        return replace(
            self.sign_of_life(now),
            changed=changed,
            seen=seen,
            reserved=self._state.take_reserved() if self.synced else (),
            profiled=profiled,
            as_of=as_of,
            synced=self.synced,
        )

    def sign_of_life(self, now: float) -> Update:
        """Return an update on the watches alone, without the cluster's state."""
        return Update(
            waiting=self.waiting,
            ages={kind: now - at for kind, at in self._alive.items()},
            relists=dict(self._relists),
            problems=dict(self._state.problems()),
        )

    def _fail(self, message: WatchUpdate) -> tuple[str, ...]:
        if message.unreadable:
            self._listed.discard(message.kind)
            self._awaited.discard(message.kind)
            if message.kind not in self._required:
                self._state.replace(message.kind, ())
        # The connection's message differs from try to try, so only the first is logged.
        if message.kind in self._errors:
            return ()
        self._errors[message.kind] = message.error
        return (Attention(f"{message.kind}: {message.error}"),)
