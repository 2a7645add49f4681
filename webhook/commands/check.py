"""``check``: says about policies in files what ``kubectl apply`` would, without a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from webhook.commands import manifest
from webhook.model.policy import GROUP, KIND, VERSION, PolicyError, read_policy


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
    "files",
    required=True,
    multiple=True,
    metavar="FILE",
    help="A file with policies, YAML or JSON, or - for stdin; repeatable.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def command(files: tuple[str, ...], output: str) -> None:
    """Check FallbackPolicies as `kubectl apply` would: the same verdict, the same texts.

    Each mistake is one line: file, line, path and text. Other kinds are skipped with a note.

    \b
    Exit codes: 0 all are valid, 2 a policy or a file is wrong.

    \b
    Examples:
      kueue-fallback check -f policy.yaml
      helm template . | kueue-fallback check -f - -o json
    """
    findings = [finding for file in files for finding in check(file)]
    failed = any(finding.kind == "error" for finding in findings)
    if output == "json":
        click.echo(json.dumps(_summary(findings, valid=not failed), indent=2))
    else:
        for finding in findings:
            click.echo(str(finding), err=finding.kind in ("skipped", "note"))
    sys.exit(2 if failed else 0)


def check(file: str) -> Iterator[Finding]:
    """Check each document of a file, in order; a file without a policy is a mistake too."""
    name = "stdin" if file == "-" else file
    policies = 0
    try:
        for document in manifest.read(_text(file)):
            for value, prefix in _objects(document.value):
                policies += _is_policy(value)
                yield from _check(value, prefix, document, name)
    except manifest.ManifestError as error:
        yield Finding(kind="error", file=name, line=error.line, path="", message=error.message)
    else:
        if not policies:
            message = f"no {KIND} in it"
            yield Finding(kind="error", file=name, line=0, path="", message=message)


def _text(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise manifest.ManifestError(f"not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise manifest.ManifestError(error.strerror or str(error)) from error


def _objects(value: Any) -> Iterator[tuple[Any, str]]:
    """Take lists apart, as kubectl does."""
    if isinstance(value, dict) and value.get("kind") in ("List", f"{KIND}List"):
        items = value.get("items")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield item, f"items[{index}]."
    else:
        yield value, ""


def _is_policy(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == KIND


def _check(value: Any, prefix: str, document: manifest.Document, file: str) -> Iterator[Finding]:
    def finding(kind: str, path: str, message: str) -> Finding:
        line = document.line((prefix + path).rstrip("."))
        return Finding(kind=kind, file=file, line=line, path=path, message=message)

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
        for key, line in document.repeated:
            message = f'key "{key}" already set in map: the last one counts'
            yield Finding(kind="note", file=file, line=line, path=key, message=message)
        try:
            policy = read_policy(value)
        except PolicyError as error:
            for one in error.errors:
                yield finding("error", one.path, str(one))
        else:
            yield finding("valid", "", f"{KIND} {policy.name} is valid")


def _summary(findings: list[Finding], *, valid: bool) -> Mapping[str, Any]:
    return {
        "valid": valid,
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
