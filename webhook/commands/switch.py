"""``off`` and ``on``: the ConfigMap that stops every new decision within a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from webhook.api.kubernetes_api import ClusterAccess, NotServed, Refused
from webhook.api.resources import OFF_SWITCH
from webhook.commands import terminal
from webhook.commands.kubectl import (
    connected,
    connection_options,
    release_namespace_of,
    release_namespace_option,
)

if TYPE_CHECKING:
    from webhook.api.client import Client


TRIES = 3
_NOT_ON = """\
Decisions are off everywhere, so {names} alone cannot be switched on. Either switch all on:
  kubectl fallback on
or also say where decisions stay off:
  kubectl fallback on && kubectl fallback off -n NAMESPACE"""

Off: TypeAlias = "frozenset[str] | None"
"""Namespaces in which decisions are off; empty: all; None: none."""

_namespaces: Callable[[Any], Any] = click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    help="Only this namespace; may be repeated.",
)


@click.command("off")
@_namespaces
@release_namespace_option
@connection_options
def off(namespaces: tuple[str, ...], release_namespace: str | None, access: ClusterAccess) -> None:
    """Switch decisions off: leave every new Job as it is submitted, and move no Job.

    Jobs decided before keep their decision. `kubectl fallback on` switches decisions on again, and
    `kubectl fallback status` says whether they are off. With -n these namespaces are added to
    those in which decisions are off already.

    You need the right to get, create and update ConfigMaps in the release's namespace.

    Exit codes: 0 decisions are off, 1 the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback off
      kubectl fallback off -n team-a -n team-b
    """
    named = frozenset(namespaces)

    def also_there(before: Off) -> Off:
        if not named or before == frozenset():
            return frozenset()
        return named | (before or frozenset())

    _, after = _change(release_namespace, access, also_there)
    what = "new Jobs are left as they are submitted; on again: kubectl fallback on"
    terminal.say(f"Off{_where(after)}: {what}")


@click.command("on")
@_namespaces
@release_namespace_option
@connection_options
def on(namespaces: tuple[str, ...], release_namespace: str | None, access: ClusterAccess) -> None:
    """Switch decisions on again: new Jobs that a policy matches are decided.

    With -n they are on again in these namespaces only, and stay off in the others.

    You need the right to get, update and delete ConfigMaps in the release's namespace.

    Exit codes: 0 decisions are on, 1 they are off in all namespaces, so -n cannot exempt one, or
    the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback on
      kubectl fallback on -n team-a
    """
    named = frozenset(namespaces)

    def not_there(before: Off) -> Off:
        if named and before == frozenset():
            terminal.say(_NOT_ON.format(names=", ".join(sorted(named))), err=True)
            sys.exit(1)
        return (before - named or None) if named and before else None

    before, after = _change(release_namespace, access, not_there)
    if before is None or before == after:
        terminal.say("Decisions were not off.")
    elif after is None:
        terminal.say("On: new Jobs are decided.")
    else:
        there = f" in {', '.join(sorted(before - after))}"
        terminal.say(f"On{there}: new Jobs are decided; still off{_where(after)}.")


def _where(namespaces: Off) -> str:
    return f" in {', '.join(sorted(namespaces))}" if namespaces else ""


def _change(
    release_namespace: str | None, access: ClusterAccess, change: Callable[[Off], Off]
) -> tuple[Off, Off]:
    """Change where it is off in one write: a namespace that stays off is off at every moment."""
    with connected(access) as client:
        path = f"/api/v1/namespaces/{release_namespace_of(client, release_namespace)}/configmaps"
        for number in range(TRIES):
            config_map = _read(client, path)
            before = off_of(config_map)
            after = change(before)
            try:
                if before != after:
                    _write(client, path, config_map, after)
            except Refused as error:
                if not error.is_conflict or number == TRIES - 1:
                    raise
            else:
                return before, after
    raise AssertionError


def off_of(config_map: Mapping[str, Any] | None) -> Off:
    """Return where the ConfigMap stops decisions; without a ConfigMap: nowhere."""
    from webhook.state.readers import read_by_kind

    if config_map is None:
        return None
    return frozenset(read_by_kind(OFF_SWITCH, config_map).value.namespaces)


def _read(client: Client, path: str) -> Mapping[str, Any] | None:
    try:
        return client.get(f"{path}/{OFF_SWITCH}")
    except NotServed:
        return None


def _write(client: Client, path: str, config_map: Mapping[str, Any] | None, after: Off) -> None:
    if after is None:
        client.delete(f"{path}/{OFF_SWITCH}")
        return
    data = {"namespaces": ",".join(sorted(after))} if after else {}
    if config_map is None:
        metadata = {"name": OFF_SWITCH}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        client.post(path, body)
        return
    client.put(f"{path}/{OFF_SWITCH}", {**config_map, "data": data})
