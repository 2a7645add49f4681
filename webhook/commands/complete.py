"""What a shell may offer in the place of a word: names that the cluster has, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webhook.model.job import OPTION_LABEL

if TYPE_CHECKING:
    import click

_SECONDS = 2.0
"""Whoever presses a key waits no longer."""
_MOST = "500"


def jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Sequence[str]:
    """Name the Jobs of the namespace."""
    return _job_names(ctx, incomplete, {})


def decided_jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Sequence[str]:
    """Name the Jobs that carry the label of a decision."""
    return _job_names(ctx, incomplete, {"labelSelector": OPTION_LABEL})


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Sequence[str]:
    return _starting(incomplete, _listed(ctx, "/api/v1/namespaces", {}))


def _job_names(ctx: click.Context, incomplete: str, params: Mapping[str, str]) -> Sequence[str]:
    from webhook.commands.connect import jobs_path, name_of, namespace_or_current

    where = namespace_or_current(ctx.params.get("namespace"), ctx.params.get("kubeconfig"))
    kind = incomplete.removesuffix(name_of(incomplete))
    names = _starting(name_of(incomplete), _listed(ctx, jobs_path(where), params))
    return [kind + name for name in names]


def _listed(ctx: click.Context, path: str, params: Mapping[str, str]) -> Iterable[str]:
    from webhook.api.client import Client
    from webhook.api.errors import ClusterError

    kubeconfig = ctx.params.get("kubeconfig") or ""
    client = Client(kubeconfig, metadata_only=True, answer_seconds=_SECONDS)
    try:
        found: Mapping[str, Any] = client.get(path, {**params, "limit": _MOST})
    except ClusterError:
        # There is nobody to tell: the shell shows what is on standard output as words.
        return ()
    return [item["metadata"]["name"] for item in found.get("items") or ()]


def _starting(incomplete: str, names: Iterable[str]) -> Sequence[str]:
    return sorted(name for name in names if name.startswith(incomplete))
