"""Tells what the controller watches: some of it always, the rest once a Job may be moved or priced.

Also which kinds of Jobs the cluster serves, as their watches say. It must not know how a watch is
followed, nor what is done with its messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from webhook.api.resources import WORKLOADS, Resource
from webhook.api.watch import WatchUpdate
from webhook.controller import unreviewed
from webhook.jobs import BY_NAME
from webhook.model.job import PLAIN
from webhook.reconsider import choose, pending_jobs
from webhook.settings import Settings
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Snapshot
from webhook.state.watched import proven, signing_keys, watched


class FollowedWatches:
    def __init__(self, settings: Settings, ring: KeyRing) -> None:
        """Read marks on Workloads and Jobs with the keys of *ring*."""
        self._ring = ring
        self.always, self._workloads = _followed(settings, ring)
        self.kinds = {kind.plural: kind for kind in map(BY_NAME.__getitem__, settings.kinds)}
        """The kinds that are switched on, by the names of the watches of their metadata."""
        self._served: dict[str, bool] = {}
        """Of these watches whether there is such a resource; those that have said nothing lack."""
        self.with_workloads = False
        """Whether Workloads are followed."""
        self._pending: set[str] = set()
        """The kinds whose Jobs are followed whole, by the same names."""
        self._moved: set[str] = set()
        """Those in which a Job was seen that was moved or undone while it was pending. Its Workload
        may have to be repaired, even if no policy reconsiders any more."""

    @property
    def pending(self) -> tuple[str, ...]:
        """Return the names of the watches of Jobs that are followed whole if they may be moved."""
        return tuple(pending_jobs.followed(kind).kind for kind in self.kinds.values())

    @property
    def knows_served(self) -> bool:
        """Whether each kind that is switched on is known to be served, or why that is not known."""
        return self._served.keys() == self.kinds.keys()

    @property
    def unserved(self) -> frozenset[str]:
        """Return the kinds that are switched on, and that the cluster does not serve."""
        return frozenset(kind.kind for name, kind in self.kinds.items() if not self._served[name])

    def metadata(self) -> Iterator[Resource]:
        """Yield what is watched of Jobs always: their metadata, of each kind."""
        for kind in self.kinds.values():
            yield unreviewed.followed(kind, self._ring.keys)

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs' metadata; return the lines to log, of which there are none.

        It tells whether their kind is served, and whether any of them was moved.
        """
        if message.kind not in self.kinds:
            return ()
        if message.error:
            self._served.setdefault(message.kind, True)
        elif message.entries is not None:
            self._served[message.kind] = message.served
        watched = [*(message.entries or ()), *((message.event[1],) if message.event else ())]
        if any(entry.value is not None and entry.value.has_left for entry in watched):
            self._moved.add(message.kind)
        return ()

    def begun(self, snapshot: Snapshot, *, for_others: bool) -> Iterator[tuple[Resource, bool]]:
        """Yield what is to be followed from now on, and whether nothing is known without it.

        *for_others*: Workloads must be known though no Job may be moved.
        """
        wanted = self._may_move(snapshot)
        if (wanted or for_others) and not self.with_workloads:
            self.with_workloads = True
            for resource in self._workloads:
                yield resource, True
        for name in wanted - self._pending:
            self._pending.add(name)
            kind = self.kinds[name]
            # Every cluster serves Jobs. Of another kind whose watch fails only its own Jobs wait.
            yield pending_jobs.followed(kind, self._ring.keys), kind.kind == PLAIN

    def _may_move(self, snapshot: Snapshot) -> set[str]:
        """Return the kinds, as named by the watches of metadata, of which a Job may be moved.

        Or of which one was moved.
        """
        reconsidering = choose.policies_of(snapshot)
        named = {name for policy in reconsidering for name in policy.spec.match.kinds}
        return {
            name
            for name, kind in self.kinds.items()
            if kind.is_movable
            and self._served.get(name)
            and (name in self._moved or kind.kind in named)
        }


def _followed(
    settings: Settings, ring: KeyRing
) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """Return what is followed always, and what only once a policy reconsiders or a Job was moved.

    The Workloads of the second take most of the memory, with the Jobs that are followed then.
    """
    kinds = watched(
        namespace=settings.namespace,
        kueue_namespace=settings.kueue_namespace,
        series_names=settings.series,
        nodes=settings.watch_nodes,
        team_policies=settings.team_policies,
    )
    always = (resource for resource in kinds if resource.kind != WORKLOADS)
    workloads = (
        replace(resource, required=False) for resource in kinds if resource.kind == WORKLOADS
    )
    return (*always, signing_keys(settings.namespace)), proven(workloads, ring)
