"""What the leader keeps in the cluster: learned run times, the journal, and Events of what fails.

``Keeper`` merges runs into ConfigMaps, ``Teller`` writes Events of classes that keep failing, and
``Records`` runs both with the journal. Estimates are made elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from webhook.api import published
from webhook.api.client import Client
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.resources import KUEUE_GROUP, WORKLOADS, ReadObject, Resource, read_by
from webhook.api.watch import WatchUpdate, get_by_list
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.job_events import event, post_event
from webhook.controller.policy_status import reference_of
from webhook.controller.world import World
from webhook.hindsight import bills, entries
from webhook.hindsight.entries import FinishedRun
from webhook.hindsight.journal import Written
from webhook.hindsight.journal_keeper import Journal
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.failing import Failing, Refusal
from webhook.learn.run_records import FAILURES_THAT_TELL, SHARDS, ClassRecord, config_map, shard_of
from webhook.learn.workload_runs import is_finished
from webhook.model.faults import Attention
from webhook.model.policy.fallback_policy import GROUP, VERSION, FallbackPolicy
from webhook.model.reasons import EventReason
from webhook.model.signatures import SigningKeys
from webhook.model.words import rfc3339
from webhook.settings import Settings
from webhook.state import run_records_reader
from webhook.state.workload import read_workload

WRITE_SECONDS: Final = 20.0
"""Between two writes; a run that ended since is still known from its Workload."""
MOST_WRITTEN: Final = 8
"""Shards written in one step; the others wait for the next."""


def read_run(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> ReadObject:
    """Read a finished Workload, for a ``Follower``; a value of None: it is not finished.

    *keys* as for ``read_workload``.
    """
    return read_by(lambda workload: _over(workload, keys), kind, source)


def _over(source: Mapping[str, Any], keys: SigningKeys | None) -> FinishedRun | None:
    if not entries.is_over(source):
        return None
    run = read_workload(source, keys).run if is_finished(source) else None
    ended = run if run is not None and run.has_ended else None
    return FinishedRun(ended, entries.read_finished(source, keys))


RUNS: Final = Resource(
    kind="runs",
    path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{WORKLOADS}",
    required=False,
    read=read_run,
)


class Keeper:
    def __init__(
        self, transport: KubernetesApi, namespace: str, *, is_leader: Callable[[], bool]
    ) -> None:
        """Keep the records in *namespace*; *is_leader* is called before each write."""
        self._transport = transport
        self._namespace = namespace
        self._is_leader = is_leader
        self._runs = RunTimeLearner()
        self._changed: set[str] = set()
        """Classes changed since the last call of ``take_changed``."""
        self._due: dict[int, None] = {}
        """Shards to write, the one that waits longest first."""
        self._versions: dict[int, str] = {}
        """Shards that were read to their resourceVersion; empty: it does not exist."""
        self._texts: dict[int, str] = {}
        self._next = 0.0
        self._error = ""

    @property
    def records(self) -> Mapping[str, ClassRecord]:
        return self._runs.records

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Workloads; return the lines to log."""
        before, self._error = self._error, message.error
        if message.error:
            return () if before else (Attention(f"{message.kind}: {message.error}"),)
        ended = [entry.value for entry in message.entries or ()]
        if message.event is not None:
            ended.append(message.event[1].value)
        for run in ended:
            if isinstance(run, FinishedRun) and run.ended is not None:
                self._runs.add(run.ended)
        self._note()
        return (f"{message.kind}: readable again",) if before else ()

    def learn(self, key: str, record: ClassRecord) -> None:
        """Merge what else was learned of a class."""
        self._runs.merge(key, record)
        self._note()

    def take_changed(self) -> frozenset[str]:
        """Return the classes whose records have changed since the last call."""
        taken = frozenset(self._changed)
        self._changed.clear()
        return taken

    def read_again(self) -> None:
        """Read at the next step what other leaders have written."""
        self._versions.clear()
        self._next = 0.0

    def step(self, now: float) -> Written:
        """Write some of the shards that have changed, if it is time. *now* is monotonic."""
        is_read = len(self._versions) == SHARDS
        has_work = not is_read or (self._due and self._is_leader())
        if now < self._next or not has_work:
            return Written()
        self._next = now + WRITE_SECONDS
        try:
            self._read_missing()
        except ClusterError as error:
            return Written(tried=True, errors=(Attention(f"run times: {error}"),))
        by_shard: defaultdict[int, dict[str, ClassRecord]] = defaultdict(dict)
        for key, record in self.records.items():
            by_shard[shard_of(key)][key] = record
        written = 0
        errors: list[str] = []
        for shard in list(self._due):
            if written + len(errors) == MOST_WRITTEN or not self._is_leader():
                break
            del self._due[shard]
            try:
                written += self._write(shard, by_shard[shard])
            except ClusterError as error:
                self._due[shard] = None
                errors.append(Attention(f"run times: {error}"))
        return Written(tried=True, written=written, errors=tuple(errors))

    def _read_missing(self) -> None:
        for shard in range(SHARDS):
            if shard in self._versions:
                continue
            shard_read = run_records_reader.fetch_shard(self._transport, self._namespace, shard)
            records = shard_read.entry.value or {}
            for key, record in records.items():
                self._runs.merge(key, record)
            self._versions[shard] = shard_read.version
            self._texts[shard] = shard_read.text
            if records and _text(config_map(shard, records)) != shard_read.text:
                # Lines that cannot be read or are not kept any more must not stay there.
                self._due[shard] = None
        self._note()

    def _write(self, shard: int, records: Mapping[str, ClassRecord]) -> bool:
        """Write one shard if its text has changed.

        After a conflict it is read and written later.
        """
        body = config_map(shard, records)
        text, version = _text(body), self._versions[shard]
        if text == self._texts[shard]:
            return False
        # Unless this is answered it is not known what is there, and it is read and merged first.
        del self._versions[shard]
        place = run_records_reader.path_of(self._namespace)
        answer = published.write(self._transport, place, body, version=version)
        if answer is None:
            self._due[shard] = None
            return False
        self._versions[shard] = str(answer["metadata"]["resourceVersion"])
        self._texts[shard] = text
        return True

    def _note(self) -> None:
        changed = self._runs.take_changed()
        self._changed |= changed
        self._due.update(dict.fromkeys(sorted(map(shard_of, changed))))


def _text(body: Mapping[str, Any]) -> str:
    return str(body["data"]["classes"])


MOST_AT_ONCE: Final = 20
"""Events written in one step; those beyond are only logged and counted."""


class Teller:
    def __init__(
        self,
        transport: KubernetesApi,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._metrics = metrics
        self._failing = Failing()
        self._reported: set[Refusal] = set()
        """Refusals that this process has reported; another leader's are reported again."""

    def step(
        self,
        records: Mapping[str, ClassRecord],
        changed: Iterable[str],
        policies: tuple[FallbackPolicy, ...],
        unix: float,
    ) -> list[str]:
        """Report the refusals that are new at *unix*; return the lines to log.

        *changed* is as for ``Failing.step``.
        """
        refusals = self._failing.step(records, changed, policies, unix)
        self._reported &= refusals
        lines: list[str] = []
        for number, refusal in enumerate(sorted(refusals - self._reported)):
            if not self._is_leader():
                break
            self._reported.add(refusal)
            end = self._failing.ends[refusal]
            text = message(refusal, records[refusal[0]], end)
            lines.append(Attention(f"{reference_of(refusal[1])}: {text}"))
            if number < MOST_AT_ONCE:
                lines += self._write(refusal, text, end, unix)
        self._metrics.show_failing(Counter(refusal[1:] for refusal in refusals), policies)
        return lines

    def _write(self, refusal: Refusal, text: str, end: float, unix: float) -> list[str]:
        key, policy, option = refusal
        place = reference_of(policy)
        try:
            stored = get_by_list(self._transport, place.collection, place.name)
            if stored is None:
                return []
            uid = stored["metadata"]["uid"]
            involved = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": place.kind,
                "name": place.name,
                **({"namespace": place.namespace} if place.namespace else {}),
                "uid": uid,
            }
            cause, reason = f"{uid} {key} {option} {end:.0f}", EventReason.KEEPS_FAILING
            made = event(involved, reason, text, cause=cause, unix=unix, warns=True)
            post_event(self._transport, made)
        except ClusterError as error:
            return [Attention(f"{place}: no Event written: {error}")]
        return []


def message(refusal: Refusal, record: ClassRecord, end: float) -> str:
    key, _, option = refusal
    elsewhere = ", and they do elsewhere" if record.runs else ""
    home, _, name = key.rpartition("/") if "=" not in key else key.partition("/")
    what = f"{name} ({record.name})" if record.name else name
    return (
        f"option {option} is refused to Jobs of class {what} until {rfc3339(end)}: they failed"
        f" there {FAILURES_THAT_TELL} times and never succeeded{elsewhere}{_owners(home)}"
    )


def _owners(home: str) -> str:
    if not home:
        return ""
    return " (of namespaces that share)" if home.startswith("*") else f" (of namespace {home})"


_MOST_LATE: Final = 1_000


class Records:
    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
    ) -> None:
        self._keeper = Keeper(client, settings.namespace, is_leader=is_leader)
        self._journal = Journal(
            client,
            settings.namespace,
            is_leader=is_leader,
            unix=time.time,
            days=settings.journal_days,
        )
        self._teller = Teller(client, is_leader=is_leader, metrics=metrics)
        self._metrics = metrics
        self._said: dict[str, tuple[str, ...]] = {}
        """Kind of record to its errors at the last step."""
        self._journal_version = 0
        self._late: list[tuple[str, bool]] = []
        """As ``take_late`` returns it."""

    @property
    def journal_version(self) -> int:
        """Return a number that changes whenever the journal may have new entries."""
        return self._journal_version

    def take_jobs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log."""
        return self._journal.take_jobs(message)

    def take_runs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of finished Workloads; return the lines to log."""
        return (*self._keeper.take(message), *self._journal.take_over(message))

    def learn(self, key: str, record: ClassRecord) -> None:
        """Keep what else was learned of a class, with its runs."""
        self._keeper.learn(key, record)

    def read_again(self) -> None:
        """Read everything in the cluster again: another leader has written it."""
        self._keeper.read_again()
        self._journal.read_again()
        self._journal_version += 1

    def take_late(self) -> Sequence[tuple[str, bool]]:
        """Return of each Job with a deadline that has ended since the last call its policy.

        And whether it ended late.
        """
        late, self._late = self._late, []
        return late

    def step(self, world: World) -> list[str]:
        """Write what was learned of runs, and report what keeps failing; return lines to log."""
        snapshot = world.snapshot
        lines = self._tell_writes("run times", self._keeper.step(world.now))
        lines += self._tell_writes("journal", self._journal.step(snapshot, world.now))
        ended = self._journal.take_new()
        self._journal_version += len(ended)
        self._metrics.costs.count(ended, snapshot.costs.prices)
        late = ((entry.policy, bills.is_late(entry)) for entry in ended if entry.policy)
        new = [(policy, is_late) for policy, is_late in late if is_late is not None]
        self._late = [*self._late, *new][-_MOST_LATE:]
        self._metrics.classes.set(len(self._keeper.records))
        changed = self._keeper.take_changed()
        if changed:
            world.feed.remember({key: self._keeper.records[key] for key in changed})
        records, policies = self._keeper.records, snapshot.fallback.policies
        return [*lines, *self._teller.step(records, changed, policies, world.unix)]

    def _tell_writes(self, what: str, report: Written) -> list[str]:
        self._metrics.count_writes(what, written=report.written, failed=len(report.errors))
        if not report.tried:
            return []
        said, self._said[what] = self._said.get(what, ()), report.errors
        return [error for error in report.errors if error not in said]
