"""Messages of all followers in, updates for the server out. Pure; the observer brings the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.api.resources import RUN_TIMES, WEBHOOKS, WORKLOADS, ReadObject, Resource
from webhook.api.watch import WatchUpdate
from webhook.learn.run_records import ClassRecord
from webhook.model.forecasts import Profile
from webhook.model.queues import Snapshot
from webhook.state.pipe import Update, changes
from webhook.state.state import State
from webhook.state.workload import QueueContents, SeenWorkload, Workload
from webhook.state.workloads import Admitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was so at one instant, while nobody's admission is foretold."""

    snapshot: Snapshot
    admitted: Mapping[str, Admitted]
    profiles: Mapping[str, Profile]


class Feed:
    """Until every required resource has been listed nothing but signs of life is published."""

    def __init__(
        self,
        resources: Iterable[Resource],
        now: float,
        settle: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    ) -> None:
        """Publish snapshots as *settle* returns them."""
        self._settle = settle
        resources = tuple(resources)
        self._required = {resource.kind for resource in resources if resource.required}
        self._awaited = {resource.kind for resource in resources if resource.awaited}
        self._alive = dict.fromkeys(self._required, now)
        self._listed: set[str] = set()
        self._relists: Counter[str] = Counter()
        self._errors: dict[str, str] = {}
        self._published: Snapshot | None = None
        self._counted: Counted | None = None
        self._profiles: Mapping[str, Profile] = {}
        self._not_surveyed: list[SeenWorkload] = []
        self._foreseen: list[SeenWorkload] = []
        self._state = State()
        # Not proven until it is read.
        self._state.replace(WEBHOOKS, ())

    @property
    def published(self) -> Snapshot | None:
        """Return the last snapshot; None: there was none yet."""
        return self._published

    @property
    def counted(self) -> Counted | None:
        """Return what the last snapshot was settled from; any thread may read it."""
        return self._counted

    @property
    def synced(self) -> bool:
        return not self.waiting

    @property
    def waiting(self) -> tuple[str, ...]:
        """Name the kinds without which nothing is synced."""
        return tuple(sorted(self._required - self._listed | self._awaited))

    def not_ready(self) -> str:
        """Say what is waited for; empty: nothing."""
        return f"not synced yet: {', '.join(self.waiting)}" if self.waiting else ""

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Take over one message; return what is to be logged."""
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
        """Take a message for a sign of life, and note what cannot be read; return what to log.

        What it says else is another's to take over.
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
        return tuple(f"skipped: {problem}" for problem in self._state.take_problems())

    def expect(self, kind: str, now: float) -> None:
        """Let the silence of one more resource be the state's age."""
        self._alive.setdefault(kind, now)

    @property
    def lists_workloads(self) -> bool:
        return WORKLOADS in self._listed

    def workloads(self) -> Iterable[Workload]:
        """List all Workloads, as of now."""
        return self._state.workloads()

    def census(self, name: str) -> QueueContents:
        """List the Workloads of a ClusterQueue, as of the last update."""
        return self._state.census(name)

    def remember(self, records: Mapping[str, ClassRecord]) -> None:
        """Take over what another knows of runs."""
        self._state.replace_read(RUN_TIMES, (ReadObject(("", ""), records),))

    def survey(
        self, names: Iterable[str], later: Collection[str] = ()
    ) -> tuple[Mapping[str, QueueContents], tuple[SeenWorkload, ...]]:
        """List the Workloads of some ClusterQueues, and those seen since the last survey.

        Those seen in the ClusterQueues of *later* are left for the survey that lists these.
        """
        queues = self._published.local_queues if self._published is not None else {}
        now: list[SeenWorkload] = []
        rest: list[SeenWorkload] = []
        for each in self._not_surveyed:
            queue = queues.get((each.namespace, each.local_queue))
            waits = queue is not None and queue.cluster_queue in later
            (rest if waits else now).append(each)
        self._not_surveyed = rest
        return {name: self._state.census(name) for name in names}, tuple(now)

    def take_recounted(self) -> frozenset[str]:
        """Name the ClusterQueues whose Workloads have changed since the last call."""
        return self._state.take_recounted()

    def foresee(self, profiles: Mapping[str, Profile], seen: Iterable[SeenWorkload]) -> None:
        """Publish profiles from now on, the first to contain the Workloads *seen*."""
        self._profiles = profiles
        self._foreseen += seen

    def publish_anew(self) -> None:
        """Let the next update carry everything: what the last one was to carry may be lost."""
        self._published = None
        self._state.build_anew()

    def update(self, now: float, unix: float) -> Update:
        """Say what has changed since the last update, and how old the state is.

        *unix* is the same instant as *now*, in seconds since 1970.
        """
        as_of = min(self._alive.values())
        changed: dict[str, Any] = {}
        if self.synced:
            counted = self._state.snapshot(as_of, unix - (now - as_of))
            self._counted = Counted(
                snapshot=counted, admitted=self._state.admitted, profiles=self._profiles
            )
            after = replace(self._settle(counted), profiles=self._profiles)
            changed = changes(self._published, after)
            self._published = after
        seen = self._state.take_seen() if self.synced else ()
        self._not_surveyed += seen
        foreseen, self._foreseen = tuple(self._foreseen), []
        return replace(
            self.sign_of_life(now),
            changed=changed,
            seen=seen,
            reserved=self._state.take_reserved() if self.synced else (),
            foreseen=foreseen,
            as_of=as_of,
            synced=self.synced,
        )

    def sign_of_life(self, now: float) -> Update:
        """Say how the watches are, and nothing of the cluster."""
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
        # The connection's own words differ from try to try; said once, they stay said.
        if message.kind in self._errors:
            return ()
        self._errors[message.kind] = message.error
        return (f"{message.kind}: {message.error}",)
