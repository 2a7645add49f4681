"""The candidates for words that a shell completes: names in the cluster, and all for kubectl.

kubectl completes a plugin's words with a program ``kubectl_complete-<plugin>`` on the path: it gets
the words, the last one unfinished, and prints one candidate a line and then ``:`` and a number that
says what else may be offered.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import ShellComplete

from webhook.api.cluster_access import ClusterAccess
from webhook.jobs import KINDS
from webhook.model.job import OPTION_LABEL

_VARIABLE = "_KUEUE_FALLBACK_COMPLETE"
_NO_FILES = 4
_FILES = 0


def for_kubectl(main: click.Command) -> None:
    """Print candidates for the last of the words, in kubectl's form."""
    *words, incomplete = sys.argv[1:] or [""]
    click.echo("\n".join(candidates(main, words, incomplete)))


def candidates(main: click.Command, words: Sequence[str], incomplete: str) -> list[str]:
    completing = ShellComplete(main, {}, "kubectl fallback", _VARIABLE)
    completions = completing.get_completions(list(words), incomplete)
    lines = [
        f"{candidate.value}\t{candidate.help}" if candidate.help else str(candidate.value)
        for candidate in completions
        if candidate.type == "plain"
    ]
    wants_files = any(candidate.type in ("file", "dir") for candidate in completions)
    return [*lines, f":{_FILES if wants_files else _NO_FILES}"]


_MOST = "500"


def jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Sequence[str]:
    """Return the names of the namespace's Jobs."""
    return _job_names(ctx, incomplete, {})


def decided_jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Sequence[str]:
    """Return the names of Jobs that carry the label of a decision."""
    return _job_names(ctx, incomplete, {"labelSelector": OPTION_LABEL})


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Sequence[str]:
    return _starting(incomplete, _listed(ctx, "/api/v1/namespaces", {}))


def _job_names(ctx: click.Context, incomplete: str, params: Mapping[str, str]) -> Sequence[str]:
    from webhook.commands.connect import Scope, named

    where = Scope(access=_access(ctx), namespace=ctx.params.get("namespace") or "").here
    try:
        kind, begun = named(incomplete)
    except click.UsageError:
        return ()
    names = _starting(begun, _listed(ctx, kind.path(where), params))
    if incomplete and not names and "/" not in incomplete:
        return _starting(incomplete.lower(), (f"{each.kind.lower()}/" for each in KINDS.values()))
    return [incomplete.removesuffix(begun) + name for name in names]


def _listed(ctx: click.Context, path: str, params: Mapping[str, str]) -> Iterable[str]:
    from webhook.api.calls import SHORT_SECONDS
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import ClusterError

    client = Client(_access(ctx), metadata_only=True, answer_seconds=SHORT_SECONDS)
    try:
        listed: Mapping[str, Any] = client.get(path, {**params, "limit": _MOST})
    except ClusterError:
        # No error can be shown: the shell shows what is on standard output as words.
        return ()
    return [source["metadata"]["name"] for source in listed.get("items") or ()]


def _access(ctx: click.Context) -> ClusterAccess:
    given = ctx.params
    return ClusterAccess(
        kubeconfig=given.get("kubeconfig") or "",
        context=given.get("context") or "",
        user=given.get("as_user") or "",
        groups=tuple(given.get("as_groups") or ()),
    )


def _starting(incomplete: str, names: Iterable[str]) -> Sequence[str]:
    return sorted(name for name in names if name.startswith(incomplete))
