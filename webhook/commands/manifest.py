"""YAML files as kubectl reads them, with the line of each path, and the Jobs and policies in them.

kubectl's YAML is Go's: a plain scalar is resolved by other rules than PyYAML's (no dates, no base
60, ``1e3`` is a number, ``y`` is true).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from webhook.model.fields import FieldError, child
from webhook.model.policy.fallback_policy import KIND

if TYPE_CHECKING:
    from webhook.model.policy.fallback_policy import FallbackPolicy


DEEPEST: Final = 100
_CASES = (str.lower, str.capitalize, str.upper)
_TRUE: Final = frozenset(["y", "Y", *(f(w) for w in ("yes", "true", "on") for f in _CASES)])
_FALSE: Final = frozenset(["n", "N", *(f(w) for w in ("no", "false", "off") for f in _CASES)])
_NULL: Final = frozenset(["", "~", "null", "Null", "NULL"])
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class ManifestError(ValueError):
    """A file cannot be read: *line* is where, 0 if no line is wrong."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    value: Any
    lines: Mapping[str, int]
    """Path to line; "" is the whole document's."""
    repeated: tuple[tuple[str, int], ...] = ()
    """Keys that were set before in the same map, with their lines; the last one counts."""

    def line(self, path: str) -> int:
        """Return the line of a path, or of the nearest path above it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines[path]


def read(text: str) -> Iterator[Document]:
    """Yield the documents of a file; empty ones are left out.

    Raises:
        ManifestError: *text* is not YAML.

    """
    try:
        for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
            if node is not None:
                found = _Reader()
                value = found.read(node, "", 0)
                if value is not None:
                    lines = {**found.lines, "": node.start_mark.line + 1}
                    yield Document(value=value, lines=lines, repeated=tuple(found.repeated))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(f"not YAML: {error.problem}", mark.line + 1 if mark else 0) from error
    except yaml.YAMLError as error:
        raise ManifestError(f"not YAML: {error}") from error


class _Reader:
    """Turns one document's nodes into a value."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.repeated: list[tuple[str, int]] = []

    def read(self, node: yaml.Node, path: str, depth: int) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if depth > DEEPEST:
            raise ManifestError(f"deeper than {DEEPEST} levels", node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self.read(item, f"{path}[{index}]", depth + 1) for index, item in items]
        return _scalar(node) if isinstance(node, yaml.ScalarNode) else None

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ManifestError("a key must be a text", key_node.start_mark.line + 1)
            line, key = key_node.start_mark.line + 1, str(key_node.value)
            if key == "<<" and key_node.style is None:
                merged |= self._merged(value_node, path, depth)
                continue
            if key in found:
                self.repeated.append((key, line))
            self.lines[child(path, key)] = line
            found[key] = self.read(value_node, child(path, key), depth + 1)
        return {**merged, **found}

    def _merged(self, node: yaml.Node, path: str, depth: int) -> dict[str, Any]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Any] = {}
        for one in reversed(nodes):
            value = self.read(one, path, depth + 1)
            if not isinstance(value, dict):
                raise ManifestError("map merge needs a map", one.start_mark.line + 1)
            found |= value
        return found


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if node.style is not None or node.tag in ("tag:yaml.org,2002:binary", "!"):
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    return _number(text)


def _number(text: str) -> Any:
    plain = text.replace("_", "") if text[0] in "+-0123456789" else text
    if _INTEGER.fullmatch(plain):
        digits = plain.lstrip("+-").lower()
        base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 8 if digits.startswith("0") else 10)
        return int(plain, base)
    return float(plain) if _FLOAT.fullmatch(plain) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestObject:
    """One object of a file."""

    value: Any
    file: str
    prefix: str
    """Path of the object in its document: empty, or ``items[0].``."""
    document: Document

    def line(self, path: str) -> int:
        return self.document.line((self.prefix + path).rstrip("."))

    def wrong(self, path: str, message: str) -> FieldError:
        """Return an error whose path begins with file and line."""
        where = f"{self.file}:{self.line(path)}"
        return FieldError(f"{where}: {path}" if path else where, message)


def read_text(file: str) -> str:
    """Read a file, or standard input.

    Raises:
        ManifestError: it cannot be read, or is not text.

    """
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise ManifestError(error.strerror or str(error)) from error


def objects(file: str) -> Iterator[ManifestObject]:
    """Yield the objects of a file; a List yields its items, as with kubectl.

    Raises:
        ManifestError: it cannot be read, or is not YAML.

    """
    name = "stdin" if file == "-" else file
    for document in read(read_text(file)):
        for value, prefix in _items(document.value):
            yield ManifestObject(value=value, file=name, prefix=prefix, document=document)


def read_job(file: str, namespace: str) -> tuple[Mapping[str, Any], ManifestObject]:
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


def _readable(file: str) -> Iterator[ManifestObject]:
    name = "stdin" if file == "-" else file
    try:
        for number, found in enumerate(objects(file), 1):
            if not isinstance(found.value, dict):
                raise found.wrong("", f"document {number}: expected an object")
            yield found
    except ManifestError as error:
        where = f"{name}:{error.line}" if error.line else name
        raise FieldError(where, error.message) from error


def _items(value: Any) -> Iterator[tuple[Any, str]]:
    if isinstance(value, dict) and value.get("kind") in ("List", "JobList", f"{KIND}List"):
        items = value.get("items")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield item, f"items[{index}]."
    else:
        yield value, ""
