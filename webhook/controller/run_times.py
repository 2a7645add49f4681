"""Keeps the records of runs in ConfigMaps, so that nothing is forgotten with the Workloads.

A record is a set of runs: what two controllers write at once is merged, and nothing is lost. Who
does not lead learns the same, and writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.api.errors import ClusterError, NotServed, Refused
from webhook.api.kubernetes_api import KubernetesApi
from webhook.api.resources import KUEUE_GROUP, WORKLOADS, Entry, Resource, read_by
from webhook.api.watch import Message
from webhook.hindsight import past
from webhook.hindsight.journal_shards import Written
from webhook.hindsight.past import Over
from webhook.learn.estimates import RunTimes
from webhook.learn.record_shards import SHARDS, config_map, shard_of
from webhook.learn.run_records import Record
from webhook.learn.workload_runs import is_finished
from webhook.model.signatures import SigningKeys
from webhook.state import run_records_reader
from webhook.state.workload import read_workload

WRITE_SECONDS: Final = 20.0
"""Between two writes; what ended since is still told by its Workload."""
MOST_WRITTEN: Final = 8
"""Shards at one time; the others wait for the next."""
_CONFLICT: Final = 409


def read_run(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> Entry:
    """Read what a Workload that is over tells, for a ``Follower``; None: it goes on.

    *keys* as for ``read_workload``.
    """
    return read_by(lambda found: _over(found, keys), kind, source)


def _over(source: Mapping[str, Any], keys: SigningKeys | None) -> Over | None:
    if not past.is_over(source):
        return None
    ended = read_workload(source, keys).ended if is_finished(source) else None
    return Over(ended, past.read(source, keys))


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
        """Keep them in *namespace*; *is_leader* is asked before each write."""
        self._transport = transport
        self._namespace = namespace
        self._is_leader = is_leader
        self._runs = RunTimes()
        self._changed: set[str] = set()
        """Classes since the last call of ``take_changed``."""
        self._due: dict[int, None] = {}
        """Shards that are to be written; the first to begin with the one that waits longest."""
        self._versions: dict[int, str] = {}
        """resourceVersion of the shards that have been read; empty: it is not there."""
        self._texts: dict[int, str] = {}
        self._next = 0.0
        self._error = ""

    @property
    def records(self) -> Mapping[str, Record]:
        return self._runs.records

    def take(self, message: Message) -> tuple[str, ...]:
        """Take over what the follower of Workloads has found out; return what is to be logged."""
        before, self._error = self._error, message.error
        if message.error:
            return () if before else (f"{message.kind}: {message.error}",)
        ended = [entry.value for entry in message.entries or ()]
        if message.event is not None:
            ended.append(message.event[1].value)
        for each in ended:
            if isinstance(each, Over) and each.ended is not None:
                self._runs.add(each.ended)
        self._note()
        return (f"{message.kind}: readable again",) if before else ()

    def take_changed(self) -> frozenset[str]:
        """List the classes of which more is known than at the last call."""
        taken = frozenset(self._changed)
        self._changed.clear()
        return taken

    def read_again(self) -> None:
        """Read at the next look what others have written meanwhile."""
        self._versions.clear()
        self._next = 0.0

    def look(self, now: float) -> Written:
        """Write the shards that have changed, some of them, if it is time."""
        is_read = len(self._versions) == SHARDS
        has_work = not is_read or (self._due and self._is_leader())
        if now < self._next or not has_work:
            return Written()
        self._next = now + WRITE_SECONDS
        try:
            self._read_missing()
        except ClusterError as error:
            return Written(tried=True, errors=(f"run times: {error}",))
        by_shard: defaultdict[int, dict[str, Record]] = defaultdict(dict)
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
                errors.append(f"run times: {error}")
        return Written(tried=True, written=written, errors=tuple(errors))

    def _read_missing(self) -> None:
        for shard in range(SHARDS):
            if shard in self._versions:
                continue
            found = run_records_reader.read(self._transport, self._namespace, shard)
            records = found.entry.value or {}
            for key, record in records.items():
                self._runs.merge(key, record)
            self._versions[shard] = found.version
            self._texts[shard] = found.text
            if records and _text(config_map(shard, records)) != found.text:
                # What could not be read, or is kept no more, shall not stay there.
                self._due[shard] = None
        self._note()

    def _write(self, shard: int, records: Mapping[str, Record]) -> bool:
        """Write one shard if it says something else; another's write in between puts it off."""
        body = config_map(shard, records)
        text, version = _text(body), self._versions[shard]
        if text == self._texts[shard]:
            return False
        try:
            answer = self._send(shard, body, version)
        except (NotServed, Refused) as error:
            # It has come, gone or changed meanwhile: what it says now is taken over first.
            del self._versions[shard]
            if isinstance(error, Refused) and error.status != _CONFLICT:
                raise
            self._due[shard] = None
            return False
        self._versions[shard] = str(answer["metadata"]["resourceVersion"])
        self._texts[shard] = text
        return True

    def _send(self, shard: int, body: Mapping[str, Any], version: str) -> Mapping[str, Any]:
        if not version:
            return self._transport.post(run_records_reader.path_of(self._namespace), body)
        metadata = {**body["metadata"], "resourceVersion": version}
        path = run_records_reader.path_of(self._namespace, shard)
        return self._transport.patch(path, {**body, "metadata": metadata})

    def _note(self) -> None:
        changed = self._runs.take_changed()
        self._changed |= changed
        self._due.update(dict.fromkeys(sorted(map(shard_of, changed))))


def _text(body: Mapping[str, Any]) -> str:
    return str(body["data"]["classes"])
