"""Replays the journal in a thread, and publishes for all replicas what moved Jobs have saved.

Only the leader does, at long intervals and only when the journal has something new; the loop that
moves and repairs Jobs never waits for it. What is replayed is ``hindsight``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi, NotServed
from webhook.api.resources import SAVINGS
from webhook.api.watch import list_pages, path_of
from webhook.controller.records import RUNS
from webhook.decide import match
from webhook.hindsight import entries, gains, journal
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import LookBackInput, look_back
from webhook.hindsight.savings_record import SavingsRecord, config_map
from webhook.learn.estimates import Learned
from webhook.model.fields import FieldError
from webhook.model.queues import Snapshot
from webhook.state import run_records_reader
from webhook.state.forecast_input import queues_of

MOST_ENTRIES: Final = 5_000
"""Newest entries of the journal that are replayed, up to three times; each costs one to four
milliseconds."""
AGAIN_SECONDS: Final = 180.0
"""Between the end of one replay and the start of the next."""
RETRY_SECONDS: Final = 600.0
"""After a failure, such as no right to write the record."""
PAGE: Final = 20
"""Workloads in a page of those that run: whoever may create Jobs makes them as large as they get,
and nothing waits for this list."""
PART: Final = 20
"""The wait is at least so many times as long as it took: at most 1/21 of the process's time."""
BREATH_SECONDS: Final = 0.001
"""Pause after each Job, so that the thread that moves Jobs gets the interpreter."""


class SavingsPublisher:
    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        is_leader: Callable[[], bool],
        survive: Callable[[str, Callable[[], float]], tuple[float | None, bool]],
        log: Callable[[str], None],
    ) -> None:
        """Read the journal in *namespace*; *is_leader* is called before each write.

        *survive* is ``Failures.survive``.
        """
        self._transport, self._namespace = transport, namespace
        self._is_leader, self._survive, self._log = is_leader, survive, log
        self._replayed = -1
        """Version of the journal that was last replayed."""
        self._due = 0.0
        self._said = ""
        self._is_running = False

    def step(self, snapshot: Snapshot, version: int) -> None:
        """Start a replay of the journal if we lead, it is time, and it has another *version*."""
        if self._is_running or version == self._replayed or time.monotonic() < self._due:
            return
        if not (snapshot.policies and self._is_leader()):
            return
        self._is_running = True
        run = partial(self._run, snapshot, version)
        threading.Thread(target=run, name="look back", daemon=True).start()

    def _run(self, snapshot: Snapshot, version: int) -> None:
        """Replay the journal once, and set the time of the next replay."""
        began = time.monotonic()
        try:
            pause, _ = self._survive("savings", partial(self._attempt, snapshot))
            wait = RETRY_SECONDS if pause is None else pause
            if wait != RETRY_SECONDS:
                self._replayed = version
            now = time.monotonic()
            self._due = now + max(wait, PART * (now - began))
        finally:
            self._is_running = False

    def _attempt(self, snapshot: Snapshot) -> float:
        """Replay the journal once; return the shortest wait until the next time, in seconds."""
        said, wait = "", RETRY_SECONDS
        try:
            wait = AGAIN_SECONDS if self.publish(snapshot) else 0.0
        except ClusterError as error:
            said = f"savings: {error}"
        if said and said != self._said:
            self._log(said)
        self._said = said
        return wait

    def publish(self, snapshot: Snapshot) -> bool:
        """Replay the journal and, if we still lead, publish savings; return False if it is empty.

        Raises:
            ClusterError: the journal cannot be read, or the record not written.

        """
        unix = time.time()
        over = journal.newest(self._transport, self._namespace, unix, MOST_ENTRIES).entries
        if not over:
            return False
        journal_entries = {entry.key: entry for entry in _running(self._transport, snapshot)}
        journal_entries |= {entry.key: entry for entry in over}
        learned = Learned(records={}, estimates=snapshot.run_times, refusals={})
        world = LookBackInput(snapshot=snapshot, learned=learned, now=unix)
        hindsight = look_back(journal_entries.values(), world, progress=_breathe)
        record = gains.summed_up(hindsight, now=unix)
        if self._is_leader():
            self.write(record)
        return True

    def write(self, record: SavingsRecord) -> None:
        """Write the record in the place of the last one; whoever leads knows all of it.

        Raises:
            ClusterError: it cannot be written.

        """
        body, place = config_map(record), run_records_reader.path_of(self._namespace)
        try:
            self._transport.patch(f"{place}/{SAVINGS}", body)
        except NotServed:
            self._transport.post(place, body)


def _breathe(_: int) -> None:
    time.sleep(BREATH_SECONDS)


def _running(transport: KubernetesApi, snapshot: Snapshot) -> Iterator[JournalEntry]:
    """Yield the Workloads that hold quota now, since others waited for it.

    The metadata of their Jobs are not read, so they stay where they are in every replay.
    """
    queues, named = queues_of(snapshot), match.named_by(snapshot.policies)
    for page in list_pages(transport, path_of(transport, RUNS), {}, most=PAGE):
        for source in page.get("items") or ():
            try:
                workload = entries.read_finished(source)
                if workload is None or workload.outcome or not workload.admitted:
                    continue
                if (workload.namespace, workload.queue) in queues:
                    yield entries.entry(workload, None, named=named)
            except FieldError:
                continue
