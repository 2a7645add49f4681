"""Reads the manifests of what a scenario submits: a Job that is one Workload, or a service.

Pure: the files that it names are read by a function that comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from webhook.decide import wishes
from webhook.jobs import BY_NAME, JobKind, kind_of
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import Job
from webhook.simulate.scenario_spec import JobTemplate, ServiceSpec
from webhook.state.snapshot_file import objects_in

Object: TypeAlias = Mapping[str, Any]
Placed: TypeAlias = tuple[Object, str]
"""An object, and the place to name in errors."""
ReadText: TypeAlias = Callable[[str], str]
"""Path as written in the scenario to the file's content; raises FieldError."""

_OF_A_RUN = ("name", "generateName", "uid", "resourceVersion", "creationTimestamp")
_ONE_BY_ONE = ("Deployment", "LeaderWorkerSet")
"""Kinds each replica of which is a Workload, so that their number may change."""


def text(read_text: ReadText, file: str, path: str) -> str:
    """Read a file that the scenario names at *path*."""
    try:
        return read_text(file)
    except FieldError as error:
        raise FieldError(path, str(error)) from error


def template(spec: JobTemplate, path: str, read_text: ReadText) -> Object:
    """Read a Job's manifest, without its name, uid and times, which each of its runs has anew."""
    source, place = _manifest(spec.job, spec.file, f"{path}.job", read_text)
    said = {wishes.DEADLINE: spec.deadline, wishes.VALUE_OF_TIME: spec.value}
    job, read = _anew(source, place, {key: text for key, text in said.items() if text is not None})
    if not read.pod_sets or read.workloads != 1:
        queued = read.workloads if read.pod_sets else 0
        message = f"expected what Kueue queues as one Workload, got a {read.kind} that is {queued}"
        raise FieldError(f"{place}.spec", message)
    return job


def service_manifest(spec: ServiceSpec, path: str, read_text: ReadText) -> Placed:
    """Read a service's manifest likewise, and return it with its place."""
    source, place = _manifest(spec.service, spec.file, f"{path}.service", read_text)
    service, read = _anew(source, place, {})
    if read.kind not in _ONE_BY_ONE:
        expected = " or a ".join(_ONE_BY_ONE)
        raise FieldError(f"{place}.kind", f"expected a {expected}, got a {read.kind}")
    if not read.pod_sets:
        raise FieldError(f"{place}.spec.replicas", "expected at least 1")
    return service, place


def _anew(source: Object, place: str, said: Mapping[str, str]) -> tuple[Object, Job]:
    """Return what is created time and again, with what more is *said* of it."""
    kind = _kind_of(source, place)
    metadata = fields.mapping(source, "metadata", place)
    kept = {key: value for key, value in metadata.items() if key not in _OF_A_RUN}
    if said:
        kept["annotations"] = {**fields.texts(metadata, "annotations", place), **said}
    job = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "default", **kept},
        "spec": fields.mapping(source, "spec", place),
    }
    try:
        read = kind.read(job)
    except FieldError as error:
        raise FieldError(f"{place}.{error.path}", error.message) from error
    for pod_set in read.pod_sets:
        if not pod_set.template.containers:
            where = ".".join((place, *(pod_set.path or ()), "spec", "containers"))
            raise FieldError(where, "expected at least one")
    return job, read


def _kind_of(source: Object, place: str) -> JobKind:
    for key in ("apiVersion", "kind"):
        if key not in source:
            raise FieldError(f"{place}.{key}", "expected, but not there")
    try:
        return kind_of(source)
    except FieldError as error:
        raise FieldError(f"{place}.{error.path}", error.message) from error


def _manifest(written: Object | None, file: str | None, path: str, read_text: ReadText) -> Placed:
    """Return what is written at *path*, or else the one Job in the file beside it."""
    if written is not None:
        return written, path
    name, place = str(file), f"{path.rpartition('.')[0]}.file"
    jobs = [dict(source) for source, _ in objects_in(text(read_text, name, place), name)]
    jobs = [job for job in jobs if job.get("kind") in BY_NAME]
    if len(jobs) != 1:
        raise FieldError(place, f"expected one Job in {name}, found {len(jobs)}")
    return jobs[0], place
