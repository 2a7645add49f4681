"""Objects in the files that a user names, each with the file and line that errors tell."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.commands import manifest
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import KIND

if TYPE_CHECKING:
    from webhook.model.policy.fallback_policy import FallbackPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One object of a file."""

    value: Any
    file: str
    prefix: str
    """Where it stands in its document: empty, or ``items[0].``."""
    document: manifest.Document

    def line(self, path: str) -> int:
        return self.document.line((self.prefix + path).rstrip("."))

    def wrong(self, path: str, message: str) -> FieldError:
        """Make an error whose path begins with file and line."""
        where = f"{self.file}:{self.line(path)}"
        return FieldError(f"{where}: {path}" if path else where, message)


def read_text(file: str) -> str:
    """Read a file, or standard input.

    Raises:
        ManifestError: it cannot be read, or is no text.

    """
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise manifest.ManifestError(f"not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise manifest.ManifestError(error.strerror or str(error)) from error


def objects(file: str) -> Iterator[Found]:
    """List the objects of a file; lists are taken apart, as kubectl does.

    Raises:
        ManifestError: it cannot be read, or is not YAML.

    """
    name = "stdin" if file == "-" else file
    for document in manifest.read(read_text(file)):
        for value, prefix in _items(document.value):
            yield Found(value=value, file=name, prefix=prefix, document=document)


def read_job(file: str, namespace: str) -> tuple[Mapping[str, Any], Found]:
    """Read the one Job of a file; *namespace* is for a manifest that names none.

    Raises:
        FieldError: there is none, or several; names file and line.

    """
    jobs = [found for found in _readable(file) if found.value.get("kind") == "Job"]
    if len(jobs) != 1:
        raise FieldError("stdin" if file == "-" else file, f"expected one Job, found {len(jobs)}")
    (job,) = jobs
    metadata = job.value.get("metadata")
    if not isinstance(metadata, dict):
        raise job.wrong("metadata", "expected an object")
    where = metadata.get("namespace") or namespace
    return {**job.value, "metadata": {**metadata, "namespace": where}}, job


def read_policies(file: str) -> list[FallbackPolicy]:
    """Read the policies of a file.

    Raises:
        FieldError: there is none, or one is wrong; names file and line.

    """
    from webhook.model.policy.fallback_policy import PolicyError, read_policy

    policies = []
    for found in _readable(file):
        if found.value.get("kind") == KIND:
            try:
                policies.append(read_policy(found.value))
            except PolicyError as error:
                lines = (f"{found.file}:{found.line(each.path)}: {each}" for each in error.errors)
                raise FieldError("", "\n".join(lines)) from error
    if not policies:
        raise FieldError("stdin" if file == "-" else file, f"expected a {KIND}")
    return policies


def _readable(file: str) -> Iterator[Found]:
    name = "stdin" if file == "-" else file
    try:
        for number, found in enumerate(objects(file), 1):
            if not isinstance(found.value, dict):
                raise found.wrong("", f"document {number}: expected an object")
            yield found
    except manifest.ManifestError as error:
        where = f"{name}:{error.line}" if error.line else name
        raise FieldError(where, error.message) from error


def _items(value: Any) -> Iterator[tuple[Any, str]]:
    if isinstance(value, dict) and value.get("kind") in ("List", "JobList", f"{KIND}List"):
        items = value.get("items")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield item, f"items[{index}]."
    else:
        yield value, ""
