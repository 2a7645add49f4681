"""YAML files with the line of each path, and the Jobs and policies in them.

A CronJob counts as the Job that it would make next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from webhook.jobs import BY_NAME, JOB
from webhook.model import fields
from webhook.model.fields import FieldError, child
from webhook.model.policy.fallback_policy import KIND, TEAM_KIND
from webhook.model.yaml_loader import Loader

if TYPE_CHECKING:
    from webhook.model.policy.fallback_policy import FallbackPolicy


CRON_JOB: Final = "CronJob"
DEEPEST: Final = 100
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_TEMPLATE: Final = "spec.jobTemplate"
_TAG: Final = "tag:yaml.org,2002:"
_JSON_TAGS: Final = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float")}
"""Of scalars that are no text in JSON, which is what the API server takes."""


class ManifestError(ValueError):
    """A file cannot be read; *line* is the line of the mistake, 0 if it is in no line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestObject:
    """One object of a file."""

    value: Any
    lines: Mapping[str, int]
    """Path in its document to line; "" is the whole document's."""
    noted: tuple[tuple[str, str], ...] = ()
    """Path and text of what may be read otherwise than it was meant in its document."""
    file: str = ""
    prefix: str = ""
    """Path of the object in its document: empty, or ``items[0].``."""
    cron_job: Mapping[str, Any] | None = None
    """Of a Job that is not there yet, the CronJob that would make it."""

    @classmethod
    def made_by(cls, cron_job: Mapping[str, Any], name: str) -> ManifestObject:
        """Return the next Job of the cluster's CronJob, which *name* names for people.

        Raises:
            FieldError: it has no template.

        """
        return cls(value=next_job(cron_job), lines={"": 0}, file=name, cron_job=cron_job)

    @property
    def where(self) -> str:
        """Return file and line at which it begins; of what is in no file its name."""
        line = self.line("")
        return f"{self.file}:{line}" if line else self.file

    def line(self, path: str) -> int:
        """Return the line of a path, or of the nearest path above it."""
        place = (self.prefix + path).rstrip(".")
        while place and place not in self.lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        return self.lines[place]

    @property
    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield path and text of what may be read otherwise than it was meant."""
        for path, text in self.noted:
            if path.startswith(self.prefix):
                yield path.removeprefix(self.prefix), text

    def wrong(self, path: str, message: str) -> FieldError:
        """Return an error whose path begins with file and line."""
        where = f"{self.file}:{self.line(path)}"
        return FieldError(f"{where}: {path}" if path else where, message)


def read_documents(text: str) -> Iterator[ManifestObject]:
    """Yield the documents of a file, each as one object; empty ones are left out.

    Raises:
        ManifestError: *text* is not YAML.

    """
    try:
        loader = Loader(text)
        while loader.check_node():
            node: Any = loader.get_node()
            reader = _Reader(loader)
            value = reader.read(node, "", 0)
            if value is not None:
                lines = {**reader.lines, "": node.start_mark.line + 1}
                yield ManifestObject(value=value, lines=lines, noted=tuple(reader.notes))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(f"not YAML: {error.problem}", mark.line + 1 if mark else 0) from error
    except yaml.YAMLError as error:
        raise ManifestError(f"not YAML: {error}") from error
    except RecursionError:
        raise ManifestError(f"deeper than {DEEPEST} levels") from None


_MOST_VALUES = 100_000
"""In one document, as in a review; aliases count as what they stand for."""


class _Reader:
    """Turns one document's nodes into a value."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.lines: dict[str, int] = {}
        self.notes: list[tuple[str, str]] = []
        self._values = 0

    def read(self, node: yaml.Node, path: str, depth: int) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES:
            # Aliases of aliases make any number of values from a few lines.
            raise ManifestError(f"more than {_MOST_VALUES} values", node.start_mark.line + 1)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if depth > DEEPEST:
            raise ManifestError(f"deeper than {DEEPEST} levels", node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [
                self.read(child_node, f"{path}[{index}]", depth + 1) for index, child_node in items
            ]
        return self._scalar(node, path) if isinstance(node, yaml.ScalarNode) else None

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        own = [key.value for key, _ in node.value]
        self._loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ManifestError("a key must be a text", line)
            key = str(key_node.value)
            here = child(path, key)
            if key in mapping and own.count(key) > 1:
                self.notes.append((here, f'key "{key}" already set in map: the last one counts'))
            self.lines[here] = line
            mapping[key] = self.read(value_node, here, depth + 1)
        return mapping

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        if node.style or node.tag not in _JSON_TAGS:
            return node.value
        try:
            value = self._loader.construct_object(node)
        except (ValueError, KeyError) as error:
            kind = node.tag.removeprefix(_TAG)
            raise ManifestError(f"not YAML: no {kind}: {node.value}", self.lines[path]) from error
        if isinstance(value, bool) and node.value.lower() not in ("true", "false"):
            text = f"{node.value} is read as {str(value).lower()}: a text needs quotes"
            self.notes.append((path, text))
        return value


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
    name = _name(file)
    for document in read_documents(read_text(file)):
        for value, prefix in _items(document.value):
            yield replace(document, value=value, file=name, prefix=prefix)


def files_in(paths: Iterable[str], *, is_recursive: bool = False) -> Iterator[str]:
    """Yield the files that -f names; of a folder, as with kubectl, its JSON and YAML by name.

    Raises:
        FieldError: a folder has none.

    """
    for path in paths:
        folder = Path(path)
        if path == "-" or not folder.is_dir():
            yield path
            continue
        every = folder.rglob("*") if is_recursive else folder.iterdir()
        found = sorted(str(file) for file in every if file.suffix in _SUFFIXES and file.is_file())
        if not found:
            raise FieldError(path, f"no file ends with {', '.join(_SUFFIXES)}")
        yield from found


def read_jobs(files: Iterable[str], namespace: str) -> Sequence[ManifestObject]:
    """Read the Jobs of files, and those that CronJobs would make, each with its namespace.

    *namespace* is for those that name none.

    Raises:
        FieldError: there is none, or one cannot be read; names file and line.

    """
    names = list(files)
    wanted = {*BY_NAME, CRON_JOB}
    entries = [entry for file in names for entry in _readable(file)]
    jobs = [_job(entry, namespace) for entry in entries if entry.value.get("kind") in wanted]
    if not jobs:
        there = sorted({str(entry.value.get("kind")) for entry in entries})
        only = f", only {', '.join(there)}" if there else ""
        raise FieldError(", ".join(map(_name, names)), f"no Job in it{only}")
    return jobs


def read_one_job(file: str, namespace: str) -> ManifestObject:
    """Read the one Job of a file, as ``read_jobs`` does.

    Raises:
        FieldError: there is none, or several; names file and line.

    """
    jobs = read_jobs([file], namespace)
    if len(jobs) != 1:
        raise FieldError(_name(file), f"expected one Job, found {len(jobs)}")
    return jobs[0]


def _job(entry: ManifestObject, namespace: str) -> ManifestObject:
    if not isinstance(entry.value.get("metadata"), dict):
        raise entry.wrong("metadata", "expected an object")
    job = entry
    if entry.value["kind"] == CRON_JOB:
        try:
            made = next_job(entry.value)
        except FieldError as error:
            raise entry.wrong(error.path, error.message) from error
        prefix = f"{entry.prefix}{_TEMPLATE}."
        job = replace(entry, value=made, prefix=prefix, cron_job=entry.value)
    metadata = {**job.value["metadata"]}
    metadata["namespace"] = metadata.get("namespace") or namespace
    return replace(job, value={**job.value, "metadata": metadata})


def next_job(cron_job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Job that a CronJob would make, as its controller does.

    https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/cronjob/utils.go#L239

    Raises:
        FieldError: it has no template.

    """
    metadata = fields.mapping(cron_job, "metadata", "")
    template = fields.mapping(fields.mapping(cron_job, "spec", ""), "jobTemplate", "spec")
    if not template:
        raise FieldError(_TEMPLATE, "expected an object")
    own = fields.mapping(template, "metadata", _TEMPLATE)
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            **{key: own[key] for key in ("labels", "annotations") if key in own},
            **{key: metadata[key] for key in ("namespace",) if key in metadata},
            "generateName": f"{fields.text(metadata, 'name', 'metadata')}-",
        },
        "spec": fields.mapping(template, "spec", _TEMPLATE),
    }


def in_namespace(policy: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Return a policy's object, if it is a team's that names no namespace in *namespace*."""
    metadata = policy.get("metadata")
    if policy.get("kind") != TEAM_KIND or not namespace or not isinstance(metadata, dict):
        return policy
    return {**policy, "metadata": {"namespace": namespace, **metadata}}


def read_policies(file: str, namespace: str = "") -> list[FallbackPolicy]:
    """Read the policies of a file; *namespace* is for those of teams that name none.

    Without it they must.

    Raises:
        FieldError: there is none, or one is wrong; names file and line.

    """
    from webhook.model.policy.fallback_policy import READ_BY_KIND, PolicyError

    policies = []
    for entry in _readable(file):
        if read := READ_BY_KIND.get(str(entry.value.get("kind"))):
            try:
                policies.append(read(in_namespace(entry.value, namespace)))
            except PolicyError as error:
                lines = (
                    f"{entry.file}:{entry.line(mistake.path)}: {mistake}"
                    for mistake in error.errors
                )
                raise FieldError("", "\n".join(lines)) from error
    if not policies:
        raise FieldError(_name(file), f"expected a {KIND}")
    return policies


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _readable(file: str) -> Iterator[ManifestObject]:
    name = _name(file)
    try:
        for number, entry in enumerate(objects(file), 1):
            if not isinstance(entry.value, dict):
                raise entry.wrong("", f"document {number}: expected an object")
            yield entry
    except ManifestError as error:
        where = f"{name}:{error.line}" if error.line else name
        raise FieldError(where, error.message) from error


def _items(value: Any) -> Iterator[tuple[Any, str]]:
    if isinstance(value, dict) and str(value.get("kind", "")).endswith("List"):
        items = value.get("items")
        for index, entry in enumerate(items if isinstance(items, list) else ()):
            yield entry, f"items[{index}]."
    else:
        yield value, ""
