"""``tail``: each decision as it appears on a Job, changes, or is taken back."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import inf
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from rich.text import Text

from webhook.api.kubernetes_api import Forbidden, NotServed, Unreachable
from webhook.api.resources import POLICIES, ReadObject, Resource, key_of, our_path
from webhook.api.watch import Follower, WatchUpdate, list_pages
from webhook.commands import decision_table, terminal
from webhook.commands.kubectl import (
    FAULT,
    FOR_PROGRAMS,
    Duration,
    all_namespaces_option,
    connected,
    namespace_option,
    output_option,
    scope_options,
    selector_option,
)
from webhook.commands.terminal import Line
from webhook.jobs import BY_NAME, JOB, KINDS, JobKind
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.job import PLAIN, QUEUE_LABEL, reference_of
from webhook.model.words import harmless, rfc3339

if TYPE_CHECKING:
    from webhook.api.client import Client


_FAILURES = 6
"""In a row, until it is given up."""
_UNSERVED_SECONDS = 600.0
"""Between two looks for a kind that the cluster does not have."""

Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    time: str
    event: str
    """created, moved, changed or undone"""
    namespace: str
    name: str
    policy: str
    mode: str
    option: str
    """Empty: left as submitted."""
    queue: str
    reason: str
    id: str
    moves: int
    kind: str = PLAIN

    def as_json(self) -> dict[str, Any]:
        """Return all fields; the kind of a batch Job goes without saying."""
        found = asdict(self)
        return found if self.kind != PLAIN else {k: v for k, v in found.items() if k != "kind"}


class Decisions:
    """The last known decision of each Job of a kind."""

    def __init__(self, kind: JobKind = JOB) -> None:
        self.kind = kind
        self._known: dict[Key, tuple[str, DecisionLine]] = {}

    def take(self, update: WatchUpdate) -> list[DecisionLine]:
        """Apply a list of all Jobs, or one change; return what has changed, the oldest first."""
        if update.entries is not None:
            jobs = [entry.value for entry in update.entries if entry.value is not None]
            keys = {_key(job) for job in jobs}
            for key in [key for key in self._known if key not in keys]:
                del self._known[key]
            changed = [line for job in jobs if (line := self.put(job))]
            return sorted(changed, key=lambda line: line.time)
        event, entry = update.event or ("", ReadObject(("", ""), None))
        if entry.value is None:
            return []
        if event == "DELETED":
            self._known.pop(_key(entry.value), None)
            return []
        line = self.put(entry.value)
        return [] if line is None else [line]

    def put(self, job: Mapping[str, Any]) -> DecisionLine | None:
        """Apply one Job; return a line if its decision has changed."""
        key = _key(job)
        uid, before = self._known.pop(key, ("", None))
        if uid != _uid(job):
            before = None
        now = _line(job, self.kind.kind)
        if now is None:
            return None if before is None else _undone(before, job)
        self._known[key] = _uid(job), now
        if before is None:
            return now
        if (now.id, now.time, now.option, now.reason) == (
            before.id,
            before.time,
            before.option,
            before.reason,
        ):
            return None
        return replace(now, event="moved" if now.moves > before.moves else "changed")


def lines(
    client: Client,
    resources: Mapping[JobKind, Resource],
    *,
    since: float | None,
    lasting: float | None,
    once_listed: Callable[[], None],
) -> Iterator[DecisionLine]:
    """Yield the decisions on Jobs of the kinds as they are made.

    It begins with decisions made after *since* (in seconds since 1970; None: none) and ends
    *lasting* seconds later.

    Raises:
        Forbidden: the user may not list Jobs.
        Unreachable: several calls in a row have failed.

    """
    until = inf if lasting is None else time.monotonic() + lasting
    decisions = {resource.kind: Decisions(kind) for kind, resource in resources.items()}
    unlisted, failures = set(decisions), Counter[str]()
    begun: list[DecisionLine] = []
    later: list[DecisionLine] = []
    for update in _updates(client, resources.values(), until):
        # Other kinds that the user may not list are left out.
        is_failed = update.error and not update.unreadable
        failures[update.kind] = failures[update.kind] + 1 if is_failed else 0
        if failures[update.kind] >= _FAILURES:
            raise Unreachable(update.error)
        if update.unreadable and update.kind == JOB.kind:
            raise Forbidden(update.error)
        changed = decisions[update.kind].take(update)
        if update.kind not in unlisted:
            later += changed
        elif update.unreadable or update.entries is not None:
            begun += (line for line in changed if _is_since(line, since))
            unlisted.discard(update.kind)
            if not unlisted:
                once_listed()
                yield from sorted(begun, key=lambda line: line.time)
        if not unlisted:
            yield from later
            later.clear()


def _updates(client: Client, resources: Iterable[Resource], until: float) -> Iterator[WatchUpdate]:
    """Yield what is listed and watched of all resources, each in a thread, until then."""
    updates: SimpleQueue[WatchUpdate] = SimpleQueue()
    over = threading.Event()

    def pause(seconds: float) -> None:
        over.wait(seconds)

    def follow(resource: Resource) -> None:
        follower = Follower(
            resource,
            client,
            updates.put,
            clock=time.monotonic,
            sleep=pause,
            uniform=random.uniform,
        )
        while not over.is_set():
            follower.step()

    for resource in resources:
        threading.Thread(target=follow, args=(resource,), daemon=True).start()
    try:
        while (left := until - time.monotonic()) > 0:
            with suppress(Empty):
                yield updates.get(timeout=None if left == inf else left)
    finally:
        over.set()


def _read(_kind: str, source: Mapping[str, Any]) -> ReadObject:
    """Return an object as it is, without a value if it has no name, and so is none."""
    key, _ = attempted(lambda: key_of(source), FieldError)
    return ReadObject(key or ("", ""), source if key and key[1] else None)


def _resource(kind: JobKind, namespace: str, selector: str) -> Resource:
    return Resource(
        kind=kind.kind,
        path=kind.path(namespace),
        label_selector=selector,
        read=_read,
        unserved_seconds=_UNSERVED_SECONDS,
    )


def _kinds(client: Client) -> Sequence[JobKind]:
    """Return the kinds that policies name, and Job; all kinds for who may not list policies."""
    try:
        pages = list(list_pages(client, our_path(POLICIES)))
    except (Forbidden, NotServed):
        return (JOB, *(kind for kind in KINDS.values() if kind is not JOB))
    specs = [policy.get("spec") or {} for page in pages for policy in page.get("items") or ()]
    named = [name for spec in specs for name in (spec.get("match") or {}).get("kinds") or ()]
    return (JOB, *(BY_NAME[name] for name in sorted({*named} - {PLAIN}) if name in BY_NAME))


def _line(job: Mapping[str, Any], kind: str) -> DecisionLine | None:
    decision = decision_table.decision_on(job)
    if decision is None:
        return None
    moves = decision.get("moves")
    moves = moves if isinstance(moves, int) else 0
    history = decision.get("history")
    is_moved = moves > 0 and isinstance(history, list)
    return DecisionLine(
        time=str(decision.get("time", "")),
        event="moved" if is_moved else "created",
        namespace=job["metadata"]["namespace"],
        name=job["metadata"]["name"],
        policy=str(decision.get("policy", "")),
        mode=str(decision.get("mode", "")),
        option=str(decision.get("option") or ""),
        queue=_queue(job),
        reason=str(decision.get("reason", "")),
        id=str(decision.get("id", "")),
        moves=moves,
        kind=kind,
    )


def _undone(before: DecisionLine, job: Mapping[str, Any]) -> DecisionLine:
    now = rfc3339(time.time())
    queue = _queue(job)
    where = f" in {queue}" if queue else ""
    reason = f"undone: as submitted{where}"
    return replace(before, event="undone", time=now, option="", queue=queue, reason=reason)


def _queue(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("labels") or {}).get(QUEUE_LABEL, ""))


def _is_since(line: DecisionLine, since: float | None) -> bool:
    unix = decision_table.unix_of(line.time)
    return since is not None and unix is not None and unix >= since


def _key(job: Mapping[str, Any]) -> Key:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _uid(job: Mapping[str, Any]) -> str:
    return str(job["metadata"].get("uid", ""))


_WIDTHS = (19, 8, 30, 10)
"""Of time, event, Job and option; the reason takes what is left."""


@click.command("tail")
@namespace_option
@all_namespaces_option
@selector_option
@click.option("--since", type=Duration(), help="Begin with decisions of the last 10m, 1h, 1d.")
@click.option("--for", "lasting", type=Duration(), help="End after this time: 30s, 10m.")
@click.option("--count", type=click.IntRange(min=1), help="End after this many lines.")
@output_option
@scope_options
def command(**given: Any) -> None:
    """Follow Jobs, and print a line when one is decided, moved or undone.

    With -o json each line is an object, with -o yaml a document. A policy in mode Observe writes
    nothing on Jobs, so its decisions are only in the server's log.

    The kinds that policies name are followed; if you may not list policies, all kinds. You need
    the rights to list and watch Jobs. Other kinds that you may not list are left out.

    Exit codes: 0 it has ended, also by Ctrl-C, 1 the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback tail -n team
      kubectl fallback tail -A --since 10m
      kubectl fallback tail -A --for 10s -o json
    """
    try:
        _follow(given)
    except KeyboardInterrupt:
        sys.exit(0)


def _follow(given: Mapping[str, Any]) -> None:
    left, output, where = given["count"], given["output"], given["scope"].listed
    access = given["scope"].access
    since = None if given["since"] is None else time.time() - given["since"]
    # Policies are read whole, for what they match; of Jobs the metadata tell all.
    with connected(access) as whole, connected(access, metadata_only=True) as client:
        try:
            kinds = _kinds(whole)
            for line in lines(
                client,
                {kind: _resource(kind, where, given["selector"]) for kind in kinds},
                since=since,
                lasting=given["lasting"],
                once_listed=lambda: _say_what_is_followed(where, output),
            ):
                terminal.say(text_of(line, output))
                left = left and left - 1
                if left == 0:
                    return
        except Unreachable as error:
            terminal.say(f"The watch is lost: {error}", err=True)
            sys.exit(FAULT)


def _say_what_is_followed(namespace: str, output: str) -> None:
    """Print it for people, as nothing else is printed while nothing is decided there."""
    if output in FOR_PROGRAMS:
        return
    where = f"namespace {namespace}" if namespace else "all namespaces"
    terminal.say(f"Following decisions on Jobs in {where}.", err=True)


def text_of(line: DecisionLine, output: str) -> Line:
    if output == "json":
        return json.dumps(line.as_json())
    if output == "yaml":
        return "---\n" + terminal.dump(line.as_json(), output)
    return Text.assemble(*_cells(line, terminal.width(output)))


def _cells(line: DecisionLine, limit: int | None) -> Iterator[Line]:
    times = line.time.removesuffix("Z").replace("T", " ")
    job = f"{line.namespace}/{reference_of(line.kind, line.name)}"
    used = 0
    for text, size in zip((times, line.event, job, line.option or "-"), _WIDTHS, strict=True):
        cell = terminal.tinted(text) if text == line.event else Text(harmless(text))
        room = size if limit is not None else max(size, cell.cell_len)
        cell.truncate(room, overflow="ellipsis", pad=True)
        used += cell.cell_len + 2
        yield cell
        yield "  "
    reason = Text(harmless(line.reason))
    if limit is not None:
        reason.truncate(max(limit - used, 10), overflow="ellipsis")
    yield reason
