"""What the leader keeps in the cluster: learned run times, the journal, and what keeps failing."""

from __future__ import annotations

import time
from collections.abc import Callable

from webhook.api.client import Client
from webhook.api.watch import Message
from webhook.controller import keeps_failing
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.run_times import Keeper
from webhook.hindsight.journal_keeper import Journal
from webhook.hindsight.journal_shards import Written
from webhook.model.queues import Snapshot
from webhook.state.feed import Feed


class Records:
    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
        log: Callable[[str], None],
    ) -> None:
        self._keeper = Keeper(client, namespace, is_leader=is_leader)
        self._journal = Journal(client, namespace, is_leader=is_leader, unix=time.time)
        self._teller = keeps_failing.Teller(client, is_leader=is_leader)
        self._metrics = metrics
        self._log = log
        self._said: dict[str, tuple[str, ...]] = {}
        """What went wrong with what is kept, at the last look."""

    def take_jobs(self, message: Message) -> tuple[str, ...]:
        """Take over what the follower of Jobs has found out; return what is to be logged."""
        return self._journal.take_jobs(message)

    def take_runs(self, message: Message) -> tuple[str, ...]:
        """Do the same with Workloads that are over."""
        return (*self._keeper.take(message), *self._journal.take_over(message))

    def read_again(self) -> None:
        """Believe nothing of what stands in the cluster: another one has written it."""
        self._keeper.read_again()
        self._journal.read_again()

    def look(self, feed: Feed, snapshot: Snapshot) -> None:
        """Write what was learned of runs, and tell what keeps failing."""
        now = time.monotonic()
        self._tell_writes("run times", self._keeper.look(now))
        self._tell_writes("journal", self._journal.look(snapshot, now))
        self._metrics.classes.set(len(self._keeper.records))
        changed = self._keeper.take_changed()
        if changed:
            feed.remember({key: self._keeper.records[key] for key in changed})
        policies = snapshot.policies
        failing = self._teller.look(self._keeper.records, changed, policies, time.time())
        self._metrics.show_failing(failing.counts, policies)
        self._log_all(failing.lines)

    def _tell_writes(self, what: str, found: Written) -> None:
        self._metrics.count_writes(what, written=found.written, failed=len(found.errors))
        if found.tried:
            said = self._said.get(what, ())
            self._log_all(tuple(each for each in found.errors if each not in said))
            self._said[what] = found.errors

    def _log_all(self, lines: tuple[str, ...]) -> None:
        for line in lines:
            self._log(line)
