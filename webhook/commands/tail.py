"""``tail``: each decision as it appears on a Job, changes, or is taken back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from webhook.commands import complete, terminal
from webhook.commands.connect import UNREACHED, connected, kubeconfig_option, namespace_or_current
from webhook.commands.durations import Duration

if TYPE_CHECKING:
    from webhook.commands.following import Line

_WIDTHS = (19, 8, 30, 10)
"""Of time, event, Job and option; the reason takes what is left."""


@click.command("tail", short_help="Print decisions as they are made.")
@click.option(
    "-n",
    "--namespace",
    shell_complete=complete.namespaces,
    help="Of the Jobs; default: the kubeconfig's current one.",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option("--since", type=Duration(), help="Begin with the decisions of this last time.")
@click.option("--for", "lasting", type=Duration(), help="End after this time.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many lines.")
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json"]), default="text")
@kubeconfig_option
def command(**given: Any) -> None:
    """Follow Jobs and print a line when a decision appears, is moved, or is undone.

    With -o json each line is an object. A policy in mode Observe writes nothing on Jobs, so its
    decisions are not seen here but in the server's log. You need the rights to list and watch
    Jobs.

    \b
    Ctrl-C ends it with exit code 0; 3: the cluster cannot be reached.

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
    from webhook.api.errors import Unreachable
    from webhook.commands import following

    left, output, kubeconfig = given["count"], given["output"], given["kubeconfig"]
    everywhere = given["all_namespaces"]
    where = "" if everywhere else namespace_or_current(given["namespace"], kubeconfig)
    with connected(kubeconfig, metadata_only=True) as client:
        lasting = given["lasting"]
        until = None if lasting is None else time.monotonic() + lasting
        since = None if given["since"] is None else time.time() - given["since"]
        try:
            for line in following.lines(client, where, since=since, until=until):
                terminal.say(written(line, output))
                left = left and left - 1
                if left == 0:
                    return
        except Unreachable as error:
            terminal.say(f"The watch is lost: {error}", err=True)
            sys.exit(UNREACHED)


def written(line: Line, output: str) -> str:
    if output == "json":
        return json.dumps(line.as_json())
    return "".join(_cells(line, terminal.width(output)))


def _cells(line: Line, limit: int | None) -> Iterator[str]:
    times = line.time.removesuffix("Z").replace("T", " ")
    job = f"{line.namespace}/{line.name}"
    used = 0
    for text, size in zip((times, line.event, job, line.option or "-"), _WIDTHS, strict=True):
        shown = terminal.cut(terminal.harmless(text), None if limit is None else size)
        cell = f"{shown:<{size}}  "
        used += len(cell)
        yield terminal.tinted(cell, like=text) if text == line.event else cell
    yield terminal.cut(
        terminal.harmless(line.reason), None if limit is None else max(limit - used, 10)
    )
