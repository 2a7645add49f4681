"""Connects a command to a cluster, or ends it with exit code 1 and one line that says why.

Also the namespace and the Job that are meant, as kubectl finds them, and durations as options.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from webhook.api.kubernetes_api import ClusterAccess, Forbidden
from webhook.api.watch import list_pages
from webhook.commands import terminal
from webhook.jobs import JOB, KINDS, JobKind
from webhook.model.fields import EMPTY
from webhook.model.words import nearest
from webhook.state.readers import OUR_WEBHOOK

if TYPE_CHECKING:
    from webhook.api.client import Client


FAULT = 1
"""Exit code of a command that finds something wrong, or cannot ask the cluster.

0 is good, and 2 says that the command itself, or a file that it was given, is wrong.
"""


@contextlib.contextmanager
def connected(access: ClusterAccess, *, metadata_only: bool = False) -> Iterator[Client]:
    """Connect as kubectl does: by the flags, else by the pod's ServiceAccount.

    A ``ClusterError`` inside the block is printed and ends the program with code ``FAULT``.
    """
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import ClusterError

    try:
        yield Client(access, metadata_only=metadata_only)
    except ClusterError as error:
        terminal.say(str(error), err=True)
        sys.exit(FAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a command looks, as kubectl finds it: the cluster, and one of its namespaces or all."""

    access: ClusterAccess
    namespace: str = ""
    """That of -n; empty: none was given."""
    is_everywhere: bool = False
    """All namespaces, by -A."""

    @property
    def here(self) -> str:
        """Return the namespace of -n, else that of the context."""
        from webhook.api.connection import default_namespace

        return self.namespace or default_namespace(self.access)

    @property
    def listed(self) -> str:
        """Return the namespace of which Jobs are listed; empty: all."""
        return "" if self.is_everywhere else self.here


def named(job: str) -> tuple[JobKind, str]:
    """Return kind and name of a Job from ``train``, ``rayjob/train`` or ``rayjobs.ray.io/train``.

    Raises:
        click.UsageError: the kind is none that is decided.

    """
    given, slash, name = job.partition("/")
    if not slash:
        return JOB, job
    if cron_job_named(job):
        raise click.UsageError(f"{job}: a CronJob is no Job; name one of those that it has made")
    return type_named(given), name


def type_named(given: str) -> JobKind:
    """Return the kind of Job that a word names as kubectl takes it: ``rayjobs``, ``deploy``.

    Raises:
        click.UsageError: it is none that is decided.

    """
    kind = _KINDS.get(given.lower())
    if kind is None:
        known = sorted(each.kind.lower() for each in KINDS.values())
        hint = nearest(given.lower(), known) or f" (there are {', '.join(known)})"
        raise click.UsageError(f"{given}: no type of Job{hint}")
    return kind


def with_type(reference: str) -> str:
    """Return ``job/train`` for ``train``; the reference of another kind has its type already."""
    return reference if "/" in reference else f"{JOB.kind.lower()}/{reference}"


def cron_job_named(job: str) -> str:
    """Return the name of a CronJob from ``cronjob/nightly``; empty: it is something else."""
    given, _, name = job.partition("/")
    return name if given.lower().removesuffix(".batch") in _CRON_JOBS else ""


def cron_job_path(namespace: str, name: str = "") -> str:
    path = f"/apis/{JOB.api_version}/namespaces/{quote(namespace, safe='')}/cronjobs"
    return f"{path}/{quote(name, safe='')}" if name else path


def references(words: Sequence[str]) -> Sequence[str]:
    """Return the Jobs that are named: ``train sweep``, ``rayjob/train``, or ``jobs train sweep``.

    As with kubectl a first word that is a type counts as one if a name follows it.

    Raises:
        click.UsageError: a name is empty, as that of a variable of a shell that is not set.

    """
    for word in words:
        if not word.rpartition("/")[2]:
            raise click.UsageError(f"expected the name of a Job, got {word!r}")
    if not words:
        return words
    first, *names = words
    is_type = "/" not in first and (first.lower() in _KINDS or cron_job_named(f"{first}/any"))
    if names and is_type and not any("/" in name for name in names):
        return [f"{first}/{name}" for name in names]
    return words


def one_reference(_ctx: click.Context, _param: click.Parameter, words: Sequence[str]) -> str:
    """Return the one Job that is named, as the callback of an argument; empty: none is.

    Raises:
        click.UsageError: several are named.

    """
    named_jobs = references(words)
    if len(named_jobs) > 1:
        raise click.UsageError(f"expected one Job, got {len(named_jobs)}: {' '.join(named_jobs)}")
    return named_jobs[0] if named_jobs else ""


def missing_job(client: Client, kind: JobKind, namespace: str, name: str) -> str:
    """Return a sentence that there is no such Job, with a similar name if one exists."""
    hint = similar(client, kind.path(namespace), name)
    return f"There is no {kind.kind} {namespace}/{name}{hint}."


def similar(client: Client, path: str, name: str) -> str:
    """Return `` (there is NAME)`` for the object below *path* with the most similar name.

    Empty: none is similar, or they may not be listed.
    """
    from webhook.api.kubernetes_api import ClusterError

    try:
        names = [item["metadata"]["name"] for item in listed(client, path)]
    except ClusterError:
        return ""
    return nearest(name, names)


def listed(
    client: Client, path: str, params: Mapping[str, str] = EMPTY
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects below a path, page by page."""
    for page in list_pages(client, path, params):
        yield from page.get("items") or ()


_SHORT: Final = {
    "AppWrapper": "aw",
    "Deployment": "deploy",
    "LeaderWorkerSet": "lws",
    "StatefulSet": "sts",
}
"""The short names that kubectl knows, of the kinds that have some."""
_CRON_JOBS: Final = ("cj", "cronjob", "cronjobs")
_KINDS: Final = {
    name: kind
    for kind in KINDS.values()
    for type_name in (kind.kind.lower(), kind.plural, _SHORT.get(kind.kind, kind.plural))
    for name in (type_name, f"{type_name}.{kind.group}")
}
RELEASE_NAMESPACE = "kueue-fallback"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def configurations(client: Client) -> Sequence[Mapping[str, Any]]:
    """Return the webhook configurations by which the API server calls us.

    Raises:
        Forbidden: the user may not list them.

    """
    return [
        configuration
        for configuration in listed(client, _WEBHOOKS)
        if any(hook.get("name") == OUR_WEBHOOK for hook in configuration.get("webhooks") or ())
    ]


def namespace_of(webhook_configurations: Sequence[Mapping[str, Any]]) -> str:
    """Return the namespace to whose Service the API server sends reviews; empty: to none."""
    for hook in (
        hook for configuration in webhook_configurations for hook in configuration["webhooks"]
    ):
        service = hook.get("clientConfig", {}).get("service") or {}
        if service.get("namespace"):
            return str(service["namespace"])
    return ""


def release_namespace_of(client: Client, given: str | None) -> str:
    """Return our namespace: the given one, else the one to which the API server sends reviews."""
    if given:
        return given
    try:
        return namespace_of(configurations(client)) or RELEASE_NAMESPACE
    except Forbidden:
        return RELEASE_NAMESPACE


_CANNOT = re.compile(r'User "([^"]*)" cannot \w+ resource "([^"]*)"')


def forbidden_once(reasons: Iterable[str]) -> Iterator[str]:
    """Yield reasons why something is not read, those of missing rights as one line."""
    lacking: dict[str, str] = {}
    user = ""
    for reason in reasons:
        if found := _CANNOT.search(reason):
            user = found[1]
            lacking[found[2]] = ""
        else:
            yield reason
    if lacking:
        yield f"You may not see {', '.join(lacking)} (user {user}): what follows leaves them out."


_DAYS = re.compile(r"([0-9]{1,5})d")
_DAY_SECONDS = 86_400.0


class Duration(click.ParamType[float]):
    """Seconds, from a text such as ``10s``, ``1h30m`` or ``2d12h``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        # pydantic behind them would make every --help wait.
        from webhook.model.policy import fallback_policy, patterns

        days = _DAYS.match(value)
        rest = value[days.end() :] if days else value
        if not (days and not rest) and not re.fullmatch(patterns.DURATION, rest):
            self.fail(f"expected a duration such as 10s, 1h30m or 2d, got {value!r}", param, ctx)
        return (_DAY_SECONDS * int(days[1]) if days else 0.0) + fallback_policy.seconds(rest)
