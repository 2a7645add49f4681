"""Looks back at the journal in a thread, and publishes what moved Jobs saved for all replicas.

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
"""Between the end of one look back and the next."""
RETRY_SECONDS: Final = 600.0
"""After a failure, such as no right to write the record."""
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
        self._seen = -1
        """Version of the journal that was last looked back at."""
        self._due = 0.0
        self._said = ""
        self._looking = False

    def step(self, snapshot: Snapshot, version: int) -> None:
        """Begin a look back if we lead, it is time, and the journal has another *version*."""
        if self._looking or version == self._seen or time.monotonic() < self._due:
            return
        if not (snapshot.policies and self._is_leader()):
            return
        self._looking = True
        run = partial(self._run, snapshot, version)
        threading.Thread(target=run, name="look back", daemon=True).start()

    def _run(self, snapshot: Snapshot, version: int) -> None:
        """Look back once, and set the time of the next one."""
        began = time.monotonic()
        try:
            found, _ = self._survive("savings", partial(self._attempt, snapshot))
            wait = RETRY_SECONDS if found is None else found
            if wait != RETRY_SECONDS:
                self._seen = version
            now = time.monotonic()
            self._due = now + max(wait, PART * (now - began))
        finally:
            self._looking = False

    def _attempt(self, snapshot: Snapshot) -> float:
        """Look back once; return how long the next one must wait at least, in seconds."""
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
        """Look back and publish the result, unless the journal is empty or another leads by now.

        Raises:
            ClusterError: the journal cannot be read, or the record not written.

        """
        unix = time.time()
        over = journal.newest(self._transport, self._namespace, unix, MOST_ENTRIES).entries
        if not over:
            return False
        found = {each.key: each for each in _running(self._transport, snapshot)}
        found |= {each.key: each for each in over}
        learned = Learned(records={}, estimates=snapshot.run_times, refusals={})
        world = LookBackInput(snapshot=snapshot, learned=learned, now=unix)
        hindsight = look_back(found.values(), world, progress=_breathe)
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
    queues = queues_of(snapshot)
    for page in list_pages(transport, path_of(transport, RUNS), {}):
        for source in page.get("items") or ():
            try:
                found = entries.read_finished(source)
                if found is None or found.outcome or not found.admitted:
                    continue
                if (found.namespace, found.queue) in queues:
                    yield entries.entry(found, None)
            except FieldError:
                continue
