"""What commands share with kubectl: its flags, and the cluster, namespace and Jobs that they name.

A command that cannot ask the cluster ends with exit code 1 and one line that says why.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from webhook.api.kubernetes_api import ClusterAccess, ClusterError, Forbidden
from webhook.api.watch import list_pages
from webhook.commands import terminal
from webhook.jobs import JOB, KINDS, JobKind
from webhook.model.fields import EMPTY, FieldError
from webhook.model.pods import Expression, Operator, Selector
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


def _is_there(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Refuse a kubeconfig of which no file exists; KUBECONFIG may name several."""
    if value and not any(Path(name).is_file() for name in value.split(os.pathsep)):
        raise click.BadParameter(f"File '{value}' does not exist.")
    return value


_CONNECTION: Final = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        envvar="KUBECONFIG",
        callback=_is_there,
        help="Path to the kubeconfig file.",
    ),
    click.option("--context", metavar="NAME", help="The kubeconfig's context to use."),
    click.option("--as", "as_user", metavar="USER", help="User to impersonate."),
    click.option(
        "--as-group",
        "as_groups",
        multiple=True,
        metavar="GROUP",
        help="Group to impersonate; may be repeated.",
    ),
)


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags by which kubectl finds a cluster; the command gets them as ``access``."""

    @functools.wraps(command)
    def connecting(
        *,
        kubeconfig: str | None,
        context: str | None,
        as_user: str | None,
        as_groups: tuple[str, ...],
        **given: Any,
    ) -> None:
        if as_groups and not as_user:
            raise click.UsageError("--as-group goes with --as.")
        access = ClusterAccess(
            kubeconfig=kubeconfig or "",
            context=context or "",
            user=as_user or "",
            groups=as_groups,
        )
        command(access=access, **given)

    for option in reversed(_CONNECTION):
        connecting = option(connecting)
    return connecting


namespace_option: Callable[[Any], Any] = click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help="Namespace; default: the context's.",
)
release_namespace_option: Callable[[Any], Any] = click.option(
    "--release-namespace",
    metavar="NAMESPACE",
    help="Namespace of the kueue-fallback release; default: from the webhook configuration.",
)
all_namespaces_option: Callable[[Any], Any] = click.option(
    "-A", "--all-namespaces", is_flag=True, help="All namespaces."
)


def scope_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of ``connection_options``; the command gets these, -n and -A as ``scope``."""

    @functools.wraps(command)
    def scoped(
        *,
        access: ClusterAccess,
        namespace: str | None = None,
        all_namespaces: bool = False,
        **given: Any,
    ) -> None:
        if namespace and all_namespaces:
            raise click.UsageError("Give -n or -A, not both.")
        scope = Scope(access=access, namespace=namespace or "", is_everywhere=all_namespaces)
        command(scope=scope, **given)

    return connection_options(scoped)


def filename_option(text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Return -f of a command: *text* is what it takes."""
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=required,
        metavar="FILE",
        help=f"{text}: a file, a folder, or -: stdin; may be repeated.",
    )


recursive_option: Callable[[Any], Any] = click.option(
    "-R", "--recursive", is_flag=True, help="With -f: folders with all subfolders."
)
selector_option: Callable[[Any], Any] = click.option(
    "-l", "--selector", metavar="QUERY", default="", help="Label query, as in -l team=ml,env!=dev."
)
_KEY: Final = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_VALUE: Final = r"[A-Za-z0-9]?[-A-Za-z0-9_.]*"
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_PRESENT: Final = re.compile(rf"(!?)\s*({_KEY})")
_PARTS: Final = re.compile(r",(?![^(]*\))")
"""Commas, but for those between parentheses."""
_SETS: Final = {"in": Operator.IN, "notin": Operator.NOT_IN}
_SIGNS: Final = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN}


def read_query(text: str) -> Selector:
    """Read the query of -l, such as ``team=ml,env!=dev,tier in (a, b),!legacy``; empty: everything.

    It is for what is not asked of an API server, which reads queries itself.
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api

    Raises:
        FieldError: it is none.

    """
    parts = _PARTS.split(text) if text.strip() else []
    return Selector(labels={}, expressions=tuple(_expression(part.strip()) for part in parts))


def _expression(part: str) -> Expression:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found[3].split(","))
        return Expression(key=found[1], operator=_SETS[found[2]], values=values)
    if found := _EQUAL.fullmatch(part):
        return Expression(key=found[1], operator=_SIGNS[found[2]], values=(found[3],))
    if found := _PRESENT.fullmatch(part):
        operator = Operator.DOES_NOT_EXIST if found[1] else Operator.EXISTS
        return Expression(key=found[2], operator=operator)
    raise FieldError("--selector", f"expected a label query such as team=ml,env!=dev, got {part!r}")


FOR_PROGRAMS: Final = ("json", "yaml", "name")
output_of_jobs_option: Callable[[Any], Any] = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", *FOR_PROGRAMS]),
    default="text",
    help="Output format.",
)
"""Of commands that list Jobs: as kubectl does, these print names alone, too."""
output_option: Callable[[Any], Any] = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml"]),
    default="text",
    help="Output format.",
)
