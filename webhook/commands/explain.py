"""``explain``: the very function that admission runs, on a file, with its reasons as a table."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.model.fields import FieldError

if TYPE_CHECKING:
    from webhook.cluster.state import State
    from webhook.jobs import JobKind
    from webhook.model.decision import Outcome
    from webhook.model.policy import FallbackPolicy
    from webhook.model.queues import Snapshot


@click.command("explain", short_help="Say what would be decided for a Job, and why.")
@click.option(
    "-f", "--filename", "job", required=True, metavar="JOB", help="A Job, or - for stdin."
)
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Only these policies.")
@click.option("--snapshot", metavar="FILE", help="A saved state; default: the cluster's.")
@click.option("-n", "--namespace", help="The Job's namespace, if its manifest names none.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def command(
    job: str,
    policies: tuple[str, ...],
    snapshot: str | None,
    namespace: str | None,
    output: str,
    kubeconfig: str | None,
) -> None:
    """Decide a Job as admission would, change nothing, and show every option with its numbers.

    A snapshot is what this prints:

    \b
      kubectl get clusterqueues,localqueues,cohorts,resourceflavors,workloads,\\
        fallbackpolicies,namespaces -A -o json

    \b
    Examples:
      kueue-fallback explain -f job.yaml
      kueue-fallback explain -f job.yaml --snapshot snapshot.json --policy policy.yaml
      kubectl get job train -o yaml | kueue-fallback explain -f - -o json
    """
    try:
        read = _read_job(job, namespace)
        found = _snapshot(snapshot, kubeconfig, policies)
        if found is None:
            _show_dry_run(read, kubeconfig, output)
            return
        outcome = _consider(read, *found)
    except FieldError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    click.echo(_render(outcome, read, output))


def _snapshot(
    path: str | None, kubeconfig: str | None, policies: tuple[str, ...]
) -> tuple[Snapshot, float] | None:
    """Read the state with its forecasts, and when it was so; None: the user may not list it.

    A file is from when the last thing in it happened.
    """
    from webhook.surveys import foreseen

    state = _state(path, kubeconfig)
    if state is None:
        return None
    unix = time.time() if path is None else float(state.newest()) or time.time()
    found = state.snapshot(0.0, unix)
    if policies:
        found = _with_policies(found, policies)
    return foreseen(state, found, unix), unix


def _state(path: str | None, kubeconfig: str | None) -> State | None:
    """Read the state; None: the user may not list it."""
    from webhook.cluster.errors import Forbidden
    from webhook.cluster.snapshot_file import fetch_state, read_state
    from webhook.commands.connect import connected

    if path is not None:
        return read_state(path)
    with connected(kubeconfig) as client:
        try:
            return fetch_state(client)
        except Forbidden as error:
            click.echo(f"{error}: asking the webhook by a server-side dry run instead", err=True)
            return None


def _show_dry_run(job: Mapping[str, Any], kubeconfig: str | None, output: str) -> None:
    """Let the API server ask the webhook: for those who may create Jobs and list nothing."""
    from webhook.commands.connect import connected
    from webhook.model.job import DECISION

    path = f"/apis/batch/v1/namespaces/{job['metadata']['namespace']}/jobs"
    with connected(kubeconfig) as client:
        created = client.post(path, dict(job), {"dryRun": "All"})
    text = created.get("metadata", {}).get("annotations", {}).get(DECISION)
    if text is None:
        click.echo("Left untouched: no decision came back.")
        return
    found = json.loads(text)
    found.pop("original", None)
    click.echo(_dump(found, "yaml" if output == "text" else output))


def _with_policies(state: Snapshot, paths: tuple[str, ...]) -> Snapshot:
    import dataclasses

    from webhook.model.policy_values import sort_key

    found: list[FallbackPolicy] = []
    for path in paths:
        found += _read_policies(path)
    return dataclasses.replace(state, policies=tuple(sorted(found, key=sort_key)))


def _read_policies(path: str) -> list[FallbackPolicy]:
    from webhook.model.policy import KIND, PolicyError, read_policy

    documents = [item for item in _read_documents(path) if item.get("kind") == KIND]
    if not documents:
        raise FieldError(path, f"expected a {KIND}")
    try:
        return [read_policy(document) for document in documents]
    except PolicyError as error:
        raise FieldError(path, str(error)) from error


def _read_documents(path: str) -> list[Mapping[str, Any]]:
    import yaml

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = [item for item in yaml.safe_load_all(text) if item is not None]
    except OSError as error:
        raise FieldError(path, str(error.strerror)) from error
    except yaml.YAMLError as error:
        raise FieldError(path, f"not YAML: {error}") from error
    for index, document in enumerate(documents):
        if not isinstance(document, dict):
            raise FieldError(path, f"document {index + 1}: expected an object")
    return documents


def _read_job(path: str, namespace: str | None) -> Mapping[str, Any]:
    jobs = [item for item in _read_documents(path) if item.get("kind") == "Job"]
    if len(jobs) != 1:
        raise FieldError(path, f"expected one Job, found {len(jobs)}")
    metadata = jobs[0].get("metadata")
    if not isinstance(metadata, dict):
        raise FieldError(path, "metadata: expected an object")
    where = metadata.get("namespace") or namespace or "default"
    return {**jobs[0], "metadata": {**metadata, "namespace": where}}


def _kind(job: Mapping[str, Any]) -> JobKind:
    from webhook.jobs import KINDS

    api_version = str(job.get("apiVersion", "batch/v1"))
    group, _, version = api_version.rpartition("/")
    kind = KINDS.get((group, version, "Job"))
    if kind is None:
        raise FieldError("apiVersion", f"expected batch/v1, got {api_version}")
    return kind


def _consider(job: Mapping[str, Any], state: Snapshot, unix: float) -> Outcome:
    from webhook import flow
    from webhook.decide import folding

    moment = flow.Moment(
        now=state.as_of,
        unix=unix,
        time=datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        uid="0",
    )
    return flow.consider(job, _kind(job), folding.build(state, ()), moment, flow.Rules())


def _render(outcome: Outcome, job: Mapping[str, Any], output: str) -> str:
    from webhook.decide import explain
    from webhook.decide.table import table

    if output == "text":
        return table(outcome)
    found = explain.outcome_json(outcome)
    if outcome.edits:
        found["job"] = _patched(job, outcome)
    return _dump(found, output)


def _patched(job: Mapping[str, Any], outcome: Outcome) -> Any:
    """Apply the patch that admission would send with what everybody else applies patches with."""
    import copy

    import jsonpatch

    from webhook.admission import patch

    operations = patch.operations(outcome.edits, copy.deepcopy(dict(job)), _kind(job).allowed)
    return jsonpatch.apply_patch(job, operations)


def _dump(found: Mapping[str, Any], output: str) -> str:
    if output == "json":
        return json.dumps(found, indent=2)
    import yaml

    return str(yaml.safe_dump(dict(found), sort_keys=False)).rstrip()
