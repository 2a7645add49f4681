"""The flags that commands share with kubectl, each with the same name, meaning and help."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from webhook.api.kubernetes_api import ClusterAccess
from webhook.commands.connect import Scope
from webhook.model.fields import FieldError
from webhook.model.pods import Expression, Operator, Selector


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
