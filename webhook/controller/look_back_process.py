"""Replays the journal in a process of its own, which gives its memory back when it ends.

The controller sends it a task and gets back one bounded record, both as data. It only reads from
the API server; what is replayed is ``hindsight``'s.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, TypeAlias

from webhook.api.client import Client
from webhook.api.kubernetes_api import ClusterError, KubernetesApi, Unreachable
from webhook.api.watch import list_pages, path_of
from webhook.controller.records import RUNS
from webhook.decide import match
from webhook.hindsight import entries, gains, journal, savings_record
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import LookBackInput, look_back
from webhook.model.faults import attempted
from webhook.model.flags import Named
from webhook.server import lifecycle
from webhook.state.forecast_input import queues_of
from webhook.state.snapshot import Snapshot

MOST_ENTRIES: Final = 5_000
"""Newest entries of the journal that are replayed, up to three times; each costs one to four
milliseconds."""
LONGEST_SECONDS: Final = 300.0
"""Until the process is killed; a full journal takes some twenty seconds where CPUs are short."""
PAGE: Final = 20
"""Workloads in a page of those that run: whoever may create Jobs makes them as large as they get,
and nothing waits for this list."""
MOST_MEMORY: Final = 320 << 20
"""Bytes: with what the controller has itself it stays below the chart's limit for both."""
NICENESS: Final = 10
"""Nobody waits for it; the controller and what else runs on the node come first."""
COMMAND: Final = (sys.executable, "-P", "-m", "webhook.controller.look_back_process")


LookBack: TypeAlias = Callable[[str, LookBackInput], "bytes | None"]
"""Replays a namespace's journal; returns what was saved, packed (``savings_record.packed``), or
None if it is empty."""


class LookBackError(Exception):
    """The process failed, was killed, or took too long; the text is safe to log."""


def run(
    kubeconfig: str,
    namespace: str,
    world: LookBackInput,
    *,
    command: Sequence[str] = COMMAND,
    longest_seconds: float = LONGEST_SECONDS,
) -> bytes | None:
    """Replay a namespace's journal in a new process, and wait for its end.

    The process connects by *kubeconfig*.

    Raises:
        ClusterError: the journal cannot be read.
        LookBackError: it came to nothing for another reason.

    """
    with _started(command) as child:
        try:
            told = pickle.dumps((kubeconfig, namespace, world))
            written, _ = child.communicate(told, longest_seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            raise LookBackError(f"it took longer than {longest_seconds:.0f} s") from None
    if child.returncode:
        raise LookBackError(f"its process ended with {child.returncode}")
    return _answer(written)


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
    except OSError as error:
        # No process, memory or file available at the moment: that passes.
        raise LookBackError(f"its process cannot be run: {error}") from None


def _answer(written: bytes) -> bytes | None:
    try:
        answer = json.loads(written)
        if "unreachable" in answer:
            raise Unreachable(answer["unreachable"])
        if "failed" in answer:
            raise LookBackError(answer["failed"])
        return None if answer["saved"] is None else base64.b64decode(answer["saved"])
    except (ValueError, TypeError, KeyError):
        raise LookBackError("its process gave no answer") from None


def main() -> None:
    limit_process()
    kubeconfig, namespace, world = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent
    sys.stdout.write(json.dumps(look_back_answer(namespace, world, Client(kubeconfig))))


def limit_process() -> None:
    """Bound this process in time and memory; it ends with its parent, and gives way to all."""
    lifecycle.end_with_parent()
    # Also where no thread can be asked any more, it ends.
    signal.alarm(int(LONGEST_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    os.nice(NICENESS)


def look_back_answer(
    namespace: str, world: LookBackInput, transport: KubernetesApi
) -> Mapping[str, str | None]:
    """Return the process's answer, as JSON: what was saved, or why it came to nothing."""
    try:
        answer, problem = attempted(partial(_answered, namespace, world, transport))
    except MemoryError:
        answer, problem = None, "it needs more memory than it may have"
    return {"failed": problem} if answer is None else answer


def _answered(
    namespace: str, world: LookBackInput, transport: KubernetesApi
) -> Mapping[str, str | None]:
    try:
        packed = saved(namespace, world, transport)
    except ClusterError as error:
        return {"unreachable": str(error)}
    return {"saved": None if packed is None else base64.b64encode(packed).decode()}


def saved(namespace: str, world: LookBackInput, transport: KubernetesApi) -> bytes | None:
    """Replay a namespace's journal; return what was saved, packed, or None if it is empty.

    Raises:
        ClusterError: the journal, or what runs, cannot be read.

    """
    over = journal.newest(transport, namespace, world.now, MOST_ENTRIES)
    if not over:
        return None
    journal_entries = {entry.key: entry for entry in _running(transport, world.snapshot)}
    journal_entries |= {entry.key: entry for entry in over}
    hindsight = look_back(journal_entries.values(), world)
    return savings_record.packed(gains.summed_up(hindsight, now=world.now))


def _running(transport: KubernetesApi, snapshot: Snapshot) -> Iterator[JournalEntry]:
    """Yield the Workloads that hold quota now, since others waited for it.

    The metadata of their Jobs are not read, so they stay where they are in every replay.
    """
    queues, named = queues_of(snapshot), match.named_by(snapshot.fallback.policies)
    for page in list_pages(transport, path_of(transport, RUNS), {}, most=PAGE):
        for source in page.get("items") or ():
            found, _ = attempted(partial(_entry, source, queues, named))
            if found is not None:
                yield found


def _entry(
    source: Mapping[str, Any], queues: AbstractSet[tuple[str, str]], named: Named
) -> JournalEntry | None:
    """Return what the journal would hold of a Workload that has quota in one of the *queues*."""
    workload = entries.read_finished(source)
    if workload is None or workload.outcome or not workload.admitted:
        return None
    if (workload.namespace, workload.queue) not in queues:
        return None
    return entries.entry(workload, None, named=named)


if __name__ == "__main__":
    main()
