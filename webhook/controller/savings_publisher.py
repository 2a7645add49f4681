"""Has the journal replayed, and publishes for all replicas what moved Jobs have saved.

Only the leader does, at long intervals and only when the journal has something new. The replay
runs in a process of its own, as what it takes would stay (decision 0004); the thread that waits for
it is not the one of the loop that moves and repairs Jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.controller.look_back_process import LookBack, LookBackError
from webhook.controller.world import World
from webhook.hindsight import savings_record
from webhook.hindsight.look_back import LookBackInput
from webhook.learn.estimates import Learned
from webhook.model.faults import Attention, Failures
from webhook.state import run_records_reader
from webhook.state.snapshot import Snapshot

AGAIN_SECONDS: Final = 180.0
"""Between the end of one replay and the start of the next."""
RETRY_SECONDS: Final = 600.0
"""After a failure, such as no right to write the record."""
PART: Final = 20
"""The wait is at least so many times as long as it took: at most 1/21 of a CPU's time."""


class SavingsPublisher:
    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        is_leader: Callable[[], bool],
        failures: Failures,
        look_back: LookBack,
        journal_version: Callable[[], int],
    ) -> None:
        """Have the journal in *namespace* replayed by *look_back*.

        *is_leader* is called before each write; *journal_version* is that of ``Records``.
        """
        self._transport, self._namespace, self._look_back = transport, namespace, look_back
        self._is_leader, self._failures = is_leader, failures
        self._journal_version = journal_version
        self._replayed = -1
        """Version of the journal that was last replayed."""
        self._due = 0.0
        self._said = ""
        self._is_running = False

    def step(self, world: World) -> tuple[str, ...]:
        """Start a replay of the journal if we lead, it is time, and the journal has changed.

        Return the lines to log: none, as it logs itself when it has ended.
        """
        version, counted = self._journal_version(), world.feed.counted
        if self._is_running or version == self._replayed or time.monotonic() < self._due:
            return ()
        # As policies are written: a restraint says nothing of what was decided before.
        if counted is None or not (counted.fallback.policies and self._is_leader()):
            return ()
        self._is_running = True
        run = partial(self._run, counted, version)
        threading.Thread(target=run, name="look back", daemon=True).start()
        return ()

    def _run(self, snapshot: Snapshot, version: int) -> None:
        """Have the journal replayed once, and set the time of the next replay."""
        began = time.monotonic()
        try:
            attempt = partial(self._attempt, snapshot)
            pause, _ = self._failures.survive("savings", attempt, LookBackError)
            wait = RETRY_SECONDS if pause is None else pause
            if wait != RETRY_SECONDS:
                self._replayed = version
            now = time.monotonic()
            self._due = now + max(wait, PART * (now - began))
        finally:
            self._is_running = False

    def _attempt(self, snapshot: Snapshot) -> float:
        """Publish savings; return the shortest wait until the next time, in seconds.

        Raises:
            LookBackError: the journal was not replayed.

        """
        said, wait = "", RETRY_SECONDS
        try:
            wait = AGAIN_SECONDS if self.publish(snapshot) else 0.0
        except ClusterError as error:
            said = Attention(f"savings: {error}")
        if said and said != self._said:
            self._failures.log(said)
        self._said = said
        return wait

    def publish(self, snapshot: Snapshot) -> bool:
        """Replay the journal and, if we still lead, publish savings; return False if it is empty.

        Raises:
            ClusterError: the journal cannot be read, or the record not written.
            LookBackError: the journal was not replayed.

        """
        learned = Learned(records={}, estimates=snapshot.learned.run_times, refusals={})
        world = LookBackInput(snapshot=snapshot, learned=learned, now=time.time())
        packed = self._look_back(self._namespace, world)
        if packed is None:
            return False
        if self._is_leader():
            self.write(packed)
        return True

    def write(self, packed: bytes) -> None:
        """Write a packed record in the place of the last one; whoever leads knows all of it.

        Raises:
            ClusterError: it cannot be written.

        """
        body, place = savings_record.config_map(packed), run_records_reader.path_of(self._namespace)
        published.overwrite(self._transport, place, body)
