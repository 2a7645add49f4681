"""``check``: validates policies in files as ``kubectl apply`` would, without a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from webhook.commands import manifest, terminal
from webhook.decide import undo_limits
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import GROUP, KIND, VERSION, PolicyError, read_policy

if TYPE_CHECKING:
    from webhook.commands.check_sample import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the answer. *kind* is valid, skipped, note or error."""

    kind: str
    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.message}"


@click.command("check", short_help="Check policies, with the API server's texts.")
@click.option(
    "-f",
    "--filename",
    "paths",
    required=True,
    multiple=True,
    metavar="FILE",
    help="A file with policies, YAML or JSON, or - for stdin; repeatable.",
)
@click.option("--sample", metavar="JOB", help="A Job to try in every option, on the cluster.")
@click.option("-n", "--namespace", help="The sample's, if its manifest names none.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def command(
    *,
    paths: tuple[str, ...],
    sample: str | None,
    namespace: str | None,
    output: str,
    kubeconfig: str | None,
) -> None:
    """Check FallbackPolicies as `kubectl apply` would: the same verdict, the same texts.

    Each mistake is one line: file, line, path and text. Other kinds are skipped with a note.

    With --sample the API server is asked, by a dry run, whether it would create the Job under
    each option, and a pod of it, so that quotas, LimitRanges and other admission policies speak
    before a user meets them. You need the rights to create Jobs and pods there, and to list
    LocalQueues.

    \b
    Exit codes: 0 all are valid, 1 the sample is refused in an option, 2 a policy or a file is
    wrong, 3 the cluster cannot be reached (with --sample alone).

    \b
    Examples:
      kueue-fallback check -f policy.yaml
      helm template . | kueue-fallback check -f - -o json
      kueue-fallback check -f policy.yaml --sample job.yaml -n team
    """
    findings = [finding for file in paths for finding in check(file)]
    failed = any(finding.kind == "error" for finding in findings)
    trials: Sequence[Trial] | None = None
    if sample is not None and not failed:
        from webhook.commands.check_sample import tried_on_cluster

        try:
            trials = tried_on_cluster(paths, sample, namespace, kubeconfig)
        except FieldError as error:
            terminal.say(str(error), err=True)
            sys.exit(2)
    if output == "json":
        terminal.say(json.dumps(_summary(findings, trials, valid=not failed), indent=2))
    else:
        for finding in findings:
            terminal.say(str(finding), err=finding.kind in ("skipped", "note"))
        for trial in trials or ():
            terminal.say(str(trial))
    refused = any(not trial.is_accepted for trial in trials or ())
    sys.exit(2 if failed else int(refused))


def check(file: str) -> Iterator[Finding]:
    """Check each document of a file, in order; a file without a policy is a mistake, too."""
    name = "stdin" if file == "-" else file
    policies = 0
    try:
        for found in manifest.objects(file):
            policies += _is_policy(found.value)
            yield from _check(found)
    except manifest.ManifestError as error:
        yield Finding(kind="error", file=name, line=error.line, path="", message=error.message)
    else:
        if not policies:
            message = f"no {KIND} in it"
            yield Finding(kind="error", file=name, line=0, path="", message=message)


def _is_policy(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == KIND


def _check(found: manifest.ManifestObject) -> Iterator[Finding]:
    value = found.value

    def finding(kind: str, path: str, message: str) -> Finding:
        line = found.line(path)
        return Finding(kind=kind, file=found.file, line=line, path=path, message=message)

    if not isinstance(value, dict):
        yield finding("error", "", "expected an object")
    elif "kind" not in value or "apiVersion" not in value:
        missing = [key for key in ("apiVersion", "kind") if key not in value]
        yield finding("error", "", ", ".join(f"{key} not set" for key in missing))
    elif not _is_policy(value):
        yield finding("skipped", "kind", f"skipped: {value['kind']} is not a {KIND}")
    elif value["apiVersion"] != f"{GROUP}/{VERSION}":
        message = f'no matches for kind "{KIND}" in version "{value["apiVersion"]}"'
        yield finding("error", "apiVersion", message)
    else:
        for key, line in found.document.repeated:
            message = f'key "{key}" already set in map: the last one counts'
            yield Finding(kind="note", file=found.file, line=line, path=key, message=message)
        for kind, path, message in _judged(value):
            yield finding(kind, path, message)


def _judged(value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, path, message): each mistake, or that it is valid and what to know of it."""
    try:
        policy = read_policy(value)
    except PolicyError as error:
        for one in error.errors:
            yield "error", one.path, str(one)
    else:
        yield "valid", "", f"{KIND} {policy.name} is valid"
        for limit in undo_limits.of_policy(policy):
            yield "note", limit.path, str(limit)


def _summary(
    findings: list[Finding], trials: Sequence[Trial] | None, *, valid: bool
) -> Mapping[str, Any]:
    return {
        "valid": valid,
        **({} if trials is None else {"sample": [trial.as_json() for trial in trials]}),
        "findings": [
            {
                "kind": finding.kind,
                "file": finding.file,
                "line": finding.line or None,
                "path": finding.path,
                "message": finding.message,
            }
            for finding in findings
        ],
    }
