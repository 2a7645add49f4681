"""``tail``: each decision as it appears on a Job, changes, or is taken back."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from rich.text import Text

from webhook.api.kubernetes_api import ClusterError, Forbidden, Gone, NotServed, Unreachable
from webhook.api.resources import POLICIES, our_path
from webhook.api.watch import list_pages
from webhook.commands import decision_table, terminal
from webhook.commands.connect import (
    FAULT,
    Duration,
    connected,
)
from webhook.commands.kubectl_flags import (
    FOR_PROGRAMS,
    all_namespaces_option,
    namespace_option,
    output_option,
    scope_options,
    selector_option,
)
from webhook.commands.terminal import Line
from webhook.jobs import BY_NAME, JOB, KINDS, JobKind
from webhook.model.job import PLAIN, QUEUE_LABEL, reference_of
from webhook.model.words import harmless, rfc3339

if TYPE_CHECKING:
    from webhook.api.client import Client


_WATCH_SECONDS = 240.0
_GRACE_SECONDS = 10.0
_TOO_SHORT_SECONDS = 0.5
"""After a shorter watch there is a pause: some servers close watches at once."""
_FAILURES = 6
_LONGEST_WAIT_SECONDS = 8.0
_GONE = 410

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

    def replace(self, jobs: list[Mapping[str, Any]]) -> list[DecisionLine]:
        """Apply a list of all Jobs; return the decisions that have changed, the oldest first."""
        keys = {_key(job) for job in jobs}
        for key in [key for key in self._known if key not in keys]:
            del self._known[key]
        changed = [line for job in jobs if (line := self.put(job))]
        return sorted(changed, key=lambda line: line.time)

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

    def drop(self, job: Mapping[str, Any]) -> None:
        self._known.pop(_key(job), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedJobs:
    namespace: str
    """Empty: all."""
    selector: str = ""

    def path(self, kind: JobKind) -> str:
        return kind.path(self.namespace)

    @property
    def params(self) -> Mapping[str, str]:
        return {"labelSelector": self.selector} if self.selector else {}


def lines(
    client: Client,
    followed: FollowedJobs,
    *,
    kinds: Sequence[JobKind],
    since: float | None,
    until: float | None,
    once_listed: Callable[[], None],
) -> Iterator[DecisionLine]:
    """Yield the decisions on the *followed* Jobs of the *kinds* as they are made.

    It begins with decisions made after *since* (in seconds since 1970; None: none) and ends at
    *until*, by the monotonic clock.

    Raises:
        Unreachable: several calls in a row have failed.

    """
    if until is not None and time.monotonic() >= until:
        return
    begun: list[DecisionLine] = []
    courses: list[Iterator[DecisionLine]] = []
    for kind in kinds:
        decisions = Decisions(kind)
        try:
            jobs, version = _listed(client, kind, followed)
        except NotServed:
            continue
        except Forbidden:
            if kind is JOB:
                raise
            continue
        begun += decisions.replace(jobs)
        courses.append(_course(client, decisions, followed, version=version, until=until))
    once_listed()
    yield from sorted(
        (line for line in begun if _is_since(line, since)), key=lambda line: line.time
    )
    yield from courses[0] if len(courses) == 1 else _merged(courses)


def _kinds(client: Client) -> Sequence[JobKind]:
    """Return the kinds that policies name, and Job; all kinds for who may not list policies."""
    try:
        pages = list(list_pages(client, our_path(POLICIES)))
    except (Forbidden, NotServed):
        return (JOB, *(kind for kind in KINDS.values() if kind is not JOB))
    specs = [policy.get("spec") or {} for page in pages for policy in page.get("items") or ()]
    named = [name for spec in specs for name in (spec.get("match") or {}).get("kinds") or ()]
    return (JOB, *(BY_NAME[name] for name in sorted({*named} - {PLAIN}) if name in BY_NAME))


def _course(
    client: Client,
    decisions: Decisions,
    followed: FollowedJobs,
    *,
    version: str,
    until: float | None,
) -> Iterator[DecisionLine]:
    """Yield the decisions of a kind's Jobs from a *version* on, as ``lines`` does."""
    kind, failures = decisions.kind, 0
    while until is None or time.monotonic() < until:
        try:
            if not version:
                jobs, version = _listed(client, kind, followed)
                yield from decisions.replace(jobs)
            opened = time.monotonic()
            for event in _watch(client, kind, followed, version, until):
                failures = 0
                version = event["object"]["metadata"]["resourceVersion"]
                if (line := _taken(decisions, event)) is not None:
                    yield line
            if time.monotonic() - opened < _TOO_SHORT_SECONDS:
                time.sleep(_wait(1, until))
        except Gone:
            version = ""
        except Unreachable:
            if until is not None and time.monotonic() >= until:
                return
            failures += 1
            if failures >= _FAILURES:
                raise
            time.sleep(_wait(failures, until))


def _merged(courses: Sequence[Iterator[DecisionLine]]) -> Iterator[DecisionLine]:
    """Yield what all courses do, each in a thread; the first error of one ends all."""
    told: SimpleQueue[DecisionLine | ClusterError | None] = SimpleQueue()

    def follow(course: Iterator[DecisionLine]) -> None:
        try:
            for line in course:
                told.put(line)
        except ClusterError as error:
            told.put(error)
        told.put(None)

    for course in courses:
        threading.Thread(target=follow, args=(course,), daemon=True).start()
    left = len(courses)
    while left:
        line = told.get()
        if isinstance(line, ClusterError):
            raise line
        if line is None:
            left -= 1
        else:
            yield line


def _taken(decisions: Decisions, event: Mapping[str, Any]) -> DecisionLine | None:
    kind, job = event.get("type"), event["object"]
    if kind in ("ADDED", "MODIFIED"):
        return decisions.put(job)
    if kind == "DELETED":
        decisions.drop(job)
    return None


def _listed(
    client: Client, kind: JobKind, followed: FollowedJobs
) -> tuple[list[Mapping[str, Any]], str]:
    jobs: list[Mapping[str, Any]] = []
    version = ""
    for page in list_pages(client, followed.path(kind), followed.params):
        jobs += page.get("items") or ()
        version = page["metadata"]["resourceVersion"]
    return jobs, version


def _watch(
    client: Client, kind: JobKind, followed: FollowedJobs, version: str, until: float | None
) -> Iterator[Mapping[str, Any]]:
    left = math.inf if until is None else max(until - time.monotonic(), 0.01)
    seconds = min(left, _WATCH_SECONDS)
    params = {
        **followed.params,
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(math.ceil(seconds)),
    }
    read_seconds = left if left < _WATCH_SECONDS else _WATCH_SECONDS + _GRACE_SECONDS
    for event in client.watch(followed.path(kind), params, read_seconds=read_seconds):
        if event.get("type") == "ERROR":
            if event["object"].get("code") == _GONE:
                raise Gone
            raise Unreachable(str(event["object"].get("message")))
        yield event
        if until is not None and time.monotonic() >= until:
            return


def _wait(failures: int, until: float | None) -> float:
    seconds = min(2.0 ** (failures - 1), _LONGEST_WAIT_SECONDS)
    return seconds if until is None else max(0.0, min(seconds, until - time.monotonic()))


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
    from webhook.api.kubernetes_api import Unreachable

    left, output, where = given["count"], given["output"], given["scope"].listed
    access = given["scope"].access
    followed = FollowedJobs(namespace=where, selector=given["selector"])
    # Policies are read whole, for what they match; of Jobs the metadata tell all.
    with connected(access) as whole, connected(access, metadata_only=True) as client:
        lasting = given["lasting"]
        until = None if lasting is None else time.monotonic() + lasting
        since = None if given["since"] is None else time.time() - given["since"]
        try:
            kinds = _kinds(whole)
            for line in lines(
                client,
                followed,
                kinds=kinds,
                since=since,
                until=until,
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
