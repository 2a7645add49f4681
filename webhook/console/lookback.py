"""Looks back at the journal in a thread, when the console is used and at long intervals.

No user waits for it: each gets the result of the last look back. What is replayed is
``hindsight``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from webhook.api.errors import ClusterError
from webhook.api.kubernetes_api import KubernetesApi
from webhook.api.resources import WORKLOADS
from webhook.api.watch import list_pages, path_of
from webhook.console.gained import NOTHING, Lookback
from webhook.console.web_server import THREADS
from webhook.hindsight import entries as recording
from webhook.hindsight import journal
from webhook.hindsight.journal import JournalEntry
from webhook.learn.estimates import Learned
from webhook.model.fields import EMPTY, FieldError
from webhook.model.queues import Snapshot
from webhook.state.forecast_input import queues_of
from webhook.state.watched import watched

MOST_ENTRIES: Final = 5_000
"""Newest entries of the journal that are replayed, twice; each costs about a millisecond."""
AGAIN_SECONDS: Final = 60.0
"""Between the end of one look back and the next."""
RETRY_SECONDS: Final = 600.0
"""After a failure, such as no right to read the journal."""
PART: Final = 20
"""The wait is at least so many times as long as it took: at most 1/21 of the process's time."""
BREATH_SECONDS: Final = 0.001
"""Pause after each Job, so that the thread that publishes gets the interpreter."""


class Looker:
    def __init__(
        self,
        connect: Callable[[], KubernetesApi],
        namespace: str,
        log: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Read the journal in *namespace*."""
        self._connect, self._namespace, self._log = connect, namespace, log
        self._clock, self._unix, self._sleep = clock, unix, sleep
        self._found = NOTHING
        self._due = 0.0
        self._said = ""
        self._lock = threading.Lock()
        self._looking = False

    def found(self, snapshot: Snapshot, workers: Mapping[str, Snapshot] = EMPTY) -> Lookback:
        """Return the last result, and begin another look back if it is time; any thread may call.

        *workers*: the worker clusters that are watched; Jobs of others are not counted.
        """
        with self._lock:
            begins = not self._looking and self._clock() >= self._due and bool(snapshot.policies)
            self._looking = self._looking or begins
        if begins:
            name = f"{THREADS} look back"
            threading.Thread(
                target=self._run, args=(snapshot, workers), name=name, daemon=True
            ).start()
        return self._found

    def _run(self, snapshot: Snapshot, workers: Mapping[str, Snapshot]) -> None:
        try:
            self.step(snapshot, workers)
        finally:
            self._looking = False

    def step(self, snapshot: Snapshot, workers: Mapping[str, Snapshot] = EMPTY) -> None:
        """Look back once, and set the time of the next one."""
        began, said, wait = self._clock(), "", AGAIN_SECONDS
        # After a failure it is not tried again at once.
        self._due = began + RETRY_SECONDS
        try:
            self._found = self._looked(snapshot, workers)
        except ClusterError as error:
            said, wait = str(error), RETRY_SECONDS
        if said and said != self._said:
            self._log(f"console: the journal cannot be read: {said}")
        self._said = said
        now = self._clock()
        self._due = now + max(wait, PART * (now - began))

    def _looked(self, snapshot: Snapshot, workers: Mapping[str, Snapshot]) -> Lookback:
        # Imported on first use: most observers never need it.
        from webhook.console import replayed  # noqa: PLC0415
        from webhook.hindsight import look_back  # noqa: PLC0415
        from webhook.simulate.scenario import Worker, emptied  # noqa: PLC0415

        transport, unix = self._connect(), self._unix()
        over = journal.newest(transport, self._namespace, unix, MOST_ENTRIES).entries
        if not over:
            return NOTHING
        entries = {each.key: each for each in _running(transport, self._namespace, snapshot)}
        entries |= {each.key: each for each in over}
        learned = Learned(records={}, estimates=snapshot.run_times, refusals={})
        world = look_back.LookBackInput(
            snapshot=snapshot,
            learned=learned,
            now=unix,
            workers={name: Worker(snapshot=emptied(each)) for name, each in workers.items()},
        )
        found = look_back.look_back(entries.values(), world, progress=self._breathe)
        return replayed.lookback(found, now=unix)

    def _breathe(self, _: int) -> None:
        self._sleep(BREATH_SECONDS)


def _running(
    transport: KubernetesApi, namespace: str, snapshot: Snapshot
) -> Iterator[JournalEntry]:
    """Yield the Workloads that hold quota now, since others waited for it.

    The metadata of their Jobs are not read, so they stay where they are in every replay.
    """
    resources = watched(namespace=namespace, kueue_namespace="")
    workloads = next(each for each in resources if each.kind == WORKLOADS)
    queues = queues_of(snapshot)
    for page in list_pages(transport, path_of(transport, workloads), {}):
        for source in page.get("items") or ():
            try:
                found = recording.read_finished(source)
                if found is None or found.outcome or not found.admitted:
                    continue
                if (found.namespace, found.queue) in queues:
                    yield recording.entry(found, None)
            except FieldError:
                continue
