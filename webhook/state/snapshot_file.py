"""Reads a saved or a live cluster once, into a State and a Snapshot: what ``explain`` decides on.

A file is what ``kubectl get ... -A -o json`` prints: a List, or several documents; YAML is read
too. Kinds that decisions do not need are skipped.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.api import resources as kinds
from webhook.api.kubernetes_api import Forbidden, KubernetesApi, NotServed
from webhook.api.resources import ReadObject, Resource, key_of
from webhook.api.watch import list_pages, path_of
from webhook.learn.estimates import Learned
from webhook.model import fields
from webhook.model.fields import FieldError, as_mapping
from webhook.model.policy.custom_object import PolicyError
from webhook.model.yaml_loader import FastLoader
from webhook.state.readers import READERS, read_by_kind
from webhook.state.snapshot import Snapshot
from webhook.state.state import State
from webhook.state.watched import (
    NODES_WITH_ROOM,
    autoscalers,
    run_times,
    series,
    training_runtimes,
    watched,
)

_KINDS: Mapping[str, str] = {
    "ClusterQueue": kinds.CLUSTER_QUEUES,
    "ClusterTrainingRuntime": kinds.TRAINING_RUNTIMES[0],
    "TrainingRuntime": kinds.TRAINING_RUNTIMES[1],
    "LocalQueue": kinds.LOCAL_QUEUES,
    "Cohort": kinds.COHORTS,
    "ResourceFlavor": kinds.FLAVORS,
    "Workload": kinds.WORKLOADS,
    "AdmissionCheck": kinds.CHECKS,
    "MultiKueueConfig": kinds.MULTIKUEUE_CONFIGS,
    "MultiKueueCluster": kinds.MULTIKUEUE_CLUSTERS,
    "WorkloadPriorityClass": kinds.PRIORITY_CLASSES,
    "Topology": kinds.TOPOLOGIES,
    "Node": kinds.NODES,
    "Namespace": kinds.NAMESPACES,
    "LimitRange": kinds.LIMIT_RANGES,
    "RuntimeClass": kinds.RUNTIME_CLASSES,
    "HorizontalPodAutoscaler": kinds.AUTOSCALERS,
    "PriorityClass": kinds.POD_PRIORITIES,
    "DeviceClass": kinds.DEVICE_CLASSES,
    "FallbackPolicy": kinds.POLICIES,
    "TeamFallbackPolicy": kinds.TEAM_POLICIES,
    "AcceleratorProfile": kinds.ACCELERATOR_PROFILES,
    "Tariff": kinds.TARIFFS,
    "MutatingWebhookConfiguration": kinds.WEBHOOKS,
}
_CONFIG_MAPS = (kinds.KUEUE_CONFIG, kinds.OFF_SWITCH, kinds.CONGESTION)
DEFAULTED = {
    *_CONFIG_MAPS,
    kinds.KUEUE_DEPLOYMENT,
    kinds.WEBHOOKS,
    kinds.RUN_TIMES,
    kinds.TOPOLOGIES,
    kinds.NODES,
    kinds.POD_PRIORITIES,
    kinds.DEVICE_CLASSES,
    kinds.TEAM_POLICIES,
    kinds.ACCELERATOR_PROFILES,
    kinds.TARIFFS,
    *kinds.TRAINING_RUNTIMES,
    kinds.AUTOSCALERS,
}
"""Not every user may read these; without them defaults are assumed."""


def read_snapshot(path: str, now: float, unix: float) -> Snapshot:
    """Read a file as ``read_state`` does; its state is as of *now*.

    *unix* is that instant in seconds since 1970, by which refusals end; at 0 none has.
    """
    return read_state(path).snapshot(now, unix)


def read_state(path: str) -> State:
    """Read a file (``-``: standard input).

    Raises:
        FieldError: it cannot be read; names the file and the place in it.

    """
    return state_of(_read_entries(path))


def snapshot_of(objects: Iterable[tuple[Mapping[str, Any], str]], now: float = 0.0) -> Snapshot:
    """Read objects, each with the place to name in errors; no refusal has ended.

    Raises:
        FieldError: one cannot be read; names the place and what is wrong there.

    """
    return state_of(_entries(objects)).snapshot(now, 0.0)


def read_learned(path: str) -> Learned:
    """Read what a file (``-``: standard input) says of runs; no refusal has ended.

    Raises:
        FieldError: it cannot be read; names the file and the place in it.

    """
    return _learned(_read_entries(path), 0.0)


def fetch_snapshot(client: KubernetesApi, *, now: float, unix: float) -> Snapshot:
    """List everything as ``fetch_state`` does; *now* and *unix* as in ``read_snapshot``."""
    return fetch_state(client).snapshot(now, unix)


def fetch_state(
    client: KubernetesApi,
    *,
    namespace: str = "kueue-fallback",
    kueue_namespace: str = "kueue-system",
) -> State:
    """List everything once.

    Raises:
        Forbidden: names what may not be listed.
        Unreachable: there is no answer.

    """
    resources = watched(namespace=namespace, kueue_namespace=kueue_namespace, team_policies=True)
    entries, _ = _list_all(
        client, (*resources, *training_runtimes(), autoscalers(), run_times(namespace))
    )
    if entries.get(kinds.TOPOLOGIES):
        entries |= _list_all(client, (NODES_WITH_ROOM,))[0]
    return state_of({**entries, **_list_series(client, entries, namespace)})


def _list_series(
    client: KubernetesApi, entries: Mapping[str, list[ReadObject]], namespace: str
) -> Mapping[str, list[ReadObject]]:
    """List the ConfigMaps that Tariffs name, in our namespace or where exporters write them.

    Which ones the webhook may read is not known here; what the user may not read is left out.
    """
    found: dict[str, list[ReadObject]] = {}
    for name in sorted(_named_by_tariffs(entries)):
        for where in (namespace, _EXPORTERS):
            resource = series(f"{where}/{name}", namespace)
            with contextlib.suppress(Forbidden, NotServed):
                if listed := list(_listed(client, resource)):
                    found[f"{kinds.SERIES}{name}"] = listed
                    break
    return found


_EXPORTERS: Final = "kube-system"


def _named_by_tariffs(entries: Mapping[str, list[ReadObject]]) -> frozenset[str]:
    """Return the ConfigMaps that Tariffs name."""
    tariffs = (entry.value for entry in entries.get(kinds.TARIFFS, ()) if entry.value is not None)
    sources = (source for tariff in tariffs for source in tariff.spec.series.named)
    return frozenset(source.config_map for source in sources)


def fetch_learned(
    client: KubernetesApi, *, namespace: str, unix: float
) -> tuple[Learned, tuple[str, ...]]:
    """List what says something of runs; also return what could not be listed, and why.

    Raises:
        Forbidden: names what may not be listed.
        Unreachable: there is no answer.

    """
    needed = (kinds.WORKLOADS, kinds.POLICIES, kinds.TEAM_POLICIES)
    everything = watched(namespace=namespace, kueue_namespace="", team_policies=True)
    wanted = [resource for resource in everything if resource.kind in needed]
    entries, unread = _list_all(client, (*wanted, run_times(namespace)))
    return _learned(entries, unix), unread


def _list_all(
    client: KubernetesApi, resources: Iterable[Resource]
) -> tuple[dict[str, list[ReadObject]], tuple[str, ...]]:
    entries: dict[str, list[ReadObject]] = {}
    unread = []
    for resource in resources:
        try:
            entries[resource.kind] = list(_listed(client, resource))
        except NotServed:
            entries[resource.kind] = []
        except Forbidden as error:
            if resource.kind not in DEFAULTED:
                raise
            unread.append(str(error))
    return entries, tuple(unread)


def state_of(entries: Mapping[str, list[ReadObject]]) -> State:
    """Build a state; kinds that are missing keep their defaults."""
    state = State(at_once=None)
    for kind, of_kind in {kinds.KUEUE_CONFIG: [], **entries}.items():
        state.replace_read(kind, of_kind)
    return state


def _learned(entries: Mapping[str, list[ReadObject]], unix: float) -> Learned:
    state = state_of(entries)
    state.snapshot(0.0, unix)
    return state.learned(unix)


def _read_entries(path: str) -> Mapping[str, list[ReadObject]]:
    return _entries(read_objects(path))


def read_objects(path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Return the objects of a file (``-``: standard input), each with the place to name in errors.

    Raises:
        FieldError: it cannot be read.

    """
    try:
        content = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FieldError(path, str(getattr(error, "strerror", "") or error)) from error
    return ((source, f"{path} {at}") for source, at in objects_in(content, path))


def _entries(objects: Iterable[tuple[Mapping[str, Any], str]]) -> Mapping[str, list[ReadObject]]:
    entries: defaultdict[str, list[ReadObject]] = defaultdict(list)
    others: dict[str, Mapping[str, Any]] = {}
    for source, place in objects:
        kind = kind_of(source)
        if kind:
            entries[kind].append(read_placed(kind, source, place))
        elif source.get("kind") == "ConfigMap":
            others[key_of(source)[1]] = source
    for name in _named_by_tariffs(entries) & others.keys():
        kind = f"{kinds.SERIES}{name}"
        entries[kind].append(read_by_kind(kind, others[name]))
    return entries


def _listed(client: KubernetesApi, resource: Resource) -> Iterator[ReadObject]:
    for page in list_pages(client, path_of(client, resource), resource.params):
        for source in page.get("items") or ():
            yield read_by_kind(resource.kind, source)


def kind_of(source: Mapping[str, Any]) -> str:
    """Return the kind's name in ``resources``; empty: decisions do not need it."""
    if source.get("kind") == "ConfigMap":
        name = key_of(source)[1]
        if name.startswith(kinds.RUN_TIMES):
            return kinds.RUN_TIMES
        return name if name in _CONFIG_MAPS else ""
    if source.get("kind") == "Deployment":
        return kinds.KUEUE_DEPLOYMENT if key_of(source)[1] == kinds.KUEUE_DEPLOYMENT else ""
    return _KINDS.get(str(source.get("kind")), "")


def read_placed(kind: str, source: Mapping[str, Any], place: str) -> ReadObject:
    try:
        return ReadObject(key_of(source), READERS[kind](source))
    except FieldError as error:
        raise FieldError(f"{place}.{error.path}", error.message) from error
    except PolicyError as error:
        raise FieldError(place, str(error)) from error


def objects_in(content: str, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the objects of a file with their places in it; a List yields its items.

    Raises:
        FieldError: it is neither JSON nor YAML, or holds no objects.

    """
    for number, document in enumerate(_documents(content, path), 1):
        if document is None:
            continue
        here = f"document {number}" if number > 1 else ""
        source = as_mapping(document, f"{path} {here}".strip())
        if "items" not in source:
            yield source, here or "document 1"
            continue
        try:
            items = fields.objects(source, "items", "")
        except FieldError as error:
            raise FieldError(f"{path} {error.path}", error.message) from error
        for listed, place in items:
            yield listed, f"{here} {place}".strip()


def _documents(content: str, path: str) -> Iterator[Any]:
    # JSON first: it is a hundred times faster than YAML, which would read it too.
    if content.lstrip().startswith("{"):
        try:
            yield json.loads(content)
        except RecursionError:
            raise FieldError(path, f"nested more than {fields.DEEPEST} deep") from None
        except json.JSONDecodeError as error:
            where = f"{path} line {error.lineno}"
            raise FieldError(where, f"expected JSON: {error.msg}") from error
        return
    try:
        if _is_deep(content):
            raise FieldError(path, f"nested more than {fields.DEEPEST} deep")
        yield from yaml.load_all(content, Loader=FastLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path} line {mark.line + 1}" if mark else path
        problem = getattr(error, "problem", None) or error
        raise FieldError(where, f"expected YAML: {problem}") from error


_IN_ONE_LINE = re.compile(rf"^ *(?:[-?:][ \t]+){{{fields.DEEPEST}}}", re.MULTILINE)
_NO_BRACKETS = re.compile(r"[^][{}]+")


def _is_deep(content: str) -> bool:
    """Return whether a few characters a level nest it so deeply that libyaml's stack overflows."""
    # Brackets in strings only cost the time to look closely.
    brackets = _NO_BRACKETS.sub("", content)
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
    if max(depths, default=0) <= fields.DEEPEST and not _IN_ONE_LINE.search(content):
        return False
    depth = 0
    for event in yaml.parse(content, Loader=FastLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > fields.DEEPEST:
            return True
    return False
