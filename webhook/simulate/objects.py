"""The Kubernetes objects of a scenario, from its files or from the scenario itself.

Pure but for the files, which a function given here reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from webhook.jobs import JOB
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import KIND, FallbackPolicy, PolicyError, read_policy
from webhook.simulate.scenario_spec import JobTemplate, Objects, SpecError
from webhook.state.snapshot_file import objects_in

Object: TypeAlias = Mapping[str, Any]
Placed: TypeAlias = tuple[Object, str]
"""An object, and the place to name in errors."""
ReadText: TypeAlias = Callable[[str], str]
"""Path as written in the scenario to the file's content; raises FieldError."""

_OF_A_RUN = ("name", "generateName", "uid", "resourceVersion", "creationTimestamp")
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def text(read_text: ReadText, file: str, path: str) -> str:
    """Read a file that the scenario names at *path*."""
    try:
        return read_text(file)
    except FieldError as error:
        raise FieldError(path, str(error)) from error


def listed(spec: Objects, path: str, read_text: ReadText) -> Iterator[Placed]:
    """Yield objects, first the files'; Workloads in files are left out."""
    for number, file in enumerate(spec.files):
        content = text(read_text, file, f"{path}.files[{number}]")
        for source, place in objects_in(content, file):
            if source.get("kind") != "Workload":
                yield source, f"{file} {place}"
    for number, source in enumerate(spec.objects):
        yield source, f"{path}.objects[{number}]"


def policy(source: Object, place: str) -> FallbackPolicy:
    if source.get("kind") != KIND:
        raise FieldError(place, f"expected a {KIND}, got kind {source.get('kind')}")
    try:
        return read_policy(source)
    except PolicyError as error:
        placed = ((f"{place}.{each.path}".rstrip("."), each.message) for each in error.errors)
        raise SpecError(tuple(FieldError(*each) for each in placed)) from error


def template(spec: JobTemplate, path: str, read_text: ReadText) -> Object:
    """Read a Job without what belongs to only one run of it."""
    source, place = _manifest(spec, path, read_text)
    metadata = fields.mapping(source, "metadata", place)
    kept = {key: value for key, value in metadata.items() if key not in _OF_A_RUN}
    job = {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"namespace": "default", **kept},
        "spec": fields.mapping(source, "spec", place),
    }
    try:
        pod_sets = JOB.read(job).pod_sets
    except FieldError as error:
        raise FieldError(f"{place}.{error.path}", error.message) from error
    if not all(pod_set.template.containers for pod_set in pod_sets):
        raise FieldError(f"{place}.spec.template.spec.containers", "expected at least one")
    return job


def _manifest(spec: JobTemplate, path: str, read_text: ReadText) -> Placed:
    if spec.job is not None:
        found, place = [spec.job], f"{path}.job"
    else:
        file, place = str(spec.file), f"{path}.file"
        found = [dict(each) for each, _ in objects_in(text(read_text, file, place), file)]
        found = [each for each in found if each.get("kind") == JOB.kind]
        if len(found) != 1:
            raise FieldError(place, f"expected one Job in {file}, found {len(found)}")
    kind = found[0].get("apiVersion"), found[0].get("kind")
    if kind != (JOB.api_version, JOB.kind):
        got = " ".join(map(str, kind))
        raise FieldError(place, f"expected a {JOB.api_version} {JOB.kind}, got {got}")
    return found[0], place


def with_namespaces(placed: Sequence[Placed], templates: Iterable[Object]) -> list[Placed]:
    """Add namespaces that are only named, and the label that every namespace has."""
    written = [each for each in placed if each[0].get("kind") == "Namespace"]
    rest = [each for each in placed if each[0].get("kind") != "Namespace"]
    named = {_metadata(source, place).get("name", "") for source, place in written}
    used = {str(_metadata(source, place).get("namespace", "")) for source, place in rest}
    used |= {each["metadata"]["namespace"] for each in templates}
    missing = sorted(used - named - {""})
    bare = [({"metadata": {"name": name}}, f"namespace {name}") for name in missing]
    return [(_labelled(*each), each[1]) for each in (*written, *bare)] + rest


def _labelled(source: Object, place: str) -> Object:
    metadata = _metadata(source, place)
    name = fields.text(metadata, "name", f"{place}.metadata")
    labels = {**fields.mapping(metadata, "labels", place), _NAMESPACE_LABEL: name}
    labelled = {**metadata, "labels": labels}
    return {**source, "apiVersion": "v1", "kind": "Namespace", "metadata": labelled}


def _metadata(source: Object, place: str) -> Object:
    return fields.mapping(source, "metadata", place)
