"""Nominates all worker clusters of what waits while no controller leads, in an observer's thread.

That is what Kueue's own dispatcher AllAtOnce does. Each server sees for itself whether a controller
leads. Two that write at once are no harm: each writes over the version that it has read, and adds
only what is missing. A leader goes on from what it finds nominated.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from webhook.api import lease
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.lease import LeaseRecord
from webhook.api.resources import Key
from webhook.api.watch import get_by_list
from webhook.model.faults import NOMINATIONS, Attention, Failures
from webhook.model.fields import FieldError
from webhook.model.queues import Stage
from webhook.settings import Settings
from webhook.state import live_workload
from webhook.state.snapshot import Snapshot
from webhook.state.workload import Workload, awaiting

LOOK_SECONDS: Final = 4.0
"""Between two reads of the Lease; its holder renews it every 3 s."""
MOST_SECONDS: Final = 10.0
"""More than that between two reads is no leader's silence: the API server did not answer, or this
process was held up, and a controller may have been, too."""
AGAIN_SECONDS: Final = 30.0
"""Between two looks at one Workload, all of whose clusters are asked already as a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """For how long no controller has been seen to lead, by our own monotonic clock."""

    seconds: float = 0.0
    read_at: float = inf
    """When the Lease was last read; infinite: never."""
    record: LeaseRecord | None = None

    def after(self, record: LeaseRecord | None, now: float) -> Silence:
        """Return the silence after the Lease was read at *now*; None: there is no Lease.

        Only a holder that renews its Lease leads: one that takes it and dies at once, again and
        again, nominates nothing.
        """
        passed = min(max(now - self.read_at, 0.0), MOST_SECONDS)
        seconds = 0.0 if self._is_renewed(record) else self.seconds + passed
        return Silence(seconds=seconds, read_at=now, record=record)

    def _is_renewed(self, record: LeaseRecord | None) -> bool:
        before = self.record
        return (
            record is not None
            and before is not None
            and bool(record.holder)
            and record.holder == before.holder
            and record.version != before.version
        )


class LeaderlessDispatcher:
    """``offer`` is for the observer's own thread, all else for the one that ``start`` begins."""

    def __init__(
        self,
        transport: KubernetesApi,
        settings: Settings,
        failures: Failures,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport, self._failures, self._clock = transport, failures, clock
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._timeout = settings.dispatcher_timeout
        self._silence = Silence()
        self._is_needed = False
        """As the log says it."""
        self._wants_workloads = False
        self._snapshot = Snapshot()
        self._reserving: tuple[Workload, ...] = ()
        self._seen_at: dict[Key, float] = {}

    @property
    def silent_seconds(self) -> float:
        """Return for how long no controller has been seen to lead."""
        return self._silence.seconds

    def start(self) -> None:
        threading.Thread(target=self._run, name=NOMINATIONS, daemon=True).start()

    def offer(self, snapshot: Snapshot | None, workloads: Callable[[], Iterable[Workload]]) -> None:
        """Take over the state; *workloads* is called only if they are needed."""
        self._snapshot = snapshot or self._snapshot
        if self._wants_workloads:
            self._reserving = tuple(each for each in workloads() if each.stage is Stage.RESERVING)
            self._wants_workloads = False

    def _run(self) -> None:
        while True:
            self._failures.survive(NOMINATIONS, self.step, ClusterError)
            # Servers that started together must not stay in step.
            time.sleep(LOOK_SECONDS * random.uniform(0.8, 1.0))  # noqa: S311

    def step(self) -> None:
        """See whether a controller leads; nominate if none has for the time that the admin sets.

        Raises:
            ClusterError: the Lease cannot be read.

        """
        if not self._snapshot.setup.kueue.own_dispatcher:
            self._silence = Silence()
            return
        if not self._is_leaderless():
            self._reserving, self._seen_at = (), {}
            return
        now = self._clock()
        keys = [(workload.namespace, workload.name) for workload in self._reserving]
        self._seen_at = {key: self._seen_at.get(key, -inf) for key in keys}
        for key, workload in zip(keys, self._reserving, strict=True):
            if now - self._seen_at[key] < AGAIN_SECONDS:
                continue
            if not self._is_leaderless():
                return
            ask_all = partial(self._ask_all, workload)
            self._failures.survive(NOMINATIONS, ask_all, ClusterError, FieldError)
            self._seen_at[key] = now
        self._wants_workloads = True

    def _is_leaderless(self) -> bool:
        source = get_by_list(self._transport, self._leases, lease.NAME)
        record = None if source is None else lease.read_lease(source)
        self._silence = self._silence.after(record, self._clock())
        is_needed = self._silence.seconds >= self._timeout
        if is_needed != self._is_needed:
            self._is_needed = is_needed
            self._failures.log(
                Attention(
                    f"no controller has led for {self._timeout:.0f} s: all worker clusters are "
                    "nominated for what waits, until one does"
                )
                if is_needed
                else "a controller leads: it nominates worker clusters from now on"
            )
        return is_needed

    def _ask_all(self, workload: Workload) -> None:
        """Nominate all clusters for a Workload, if it still waits for one.

        Raises:
            ClusterError: it cannot be read or written.
            FieldError: it cannot be read.

        """
        source = live_workload.read_anew(self._transport, workload)
        found = awaiting(source) if source is not None else None
        if source is None or found is None:
            return
        names = live_workload.clusters_of(found, self._snapshot)
        added = tuple(name for name in names if name not in found.nominated)
        if not added:
            return
        nominated = live_workload.with_added(found, added, names)
        try:
            live_workload.nominate(self._transport, workload, source, nominated)
        except ClusterError as error:
            if error.is_conflict:
                return
            raise
        self._failures.log(
            f"Workload {workload.namespace}/{workload.name}: asks {', '.join(added)}: "
            "no controller leads"
        )
