"""How fresh each server's state is: asked from its own metrics, through the API server's proxy."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from webhook.api.errors import ClusterError
from webhook.commands.connect import pages
from webhook.commands.look import Part

if TYPE_CHECKING:
    from webhook.api.client import Client

_LABELS = "app.kubernetes.io/name=kueue-fallback,app.kubernetes.io/component=webhook"
_OURS = "kueue_fallback_"
_LIMIT_SECONDS = 15.0
_CLUSTER = "cluster_"
_CERTIFICATE = "certificate_"
_UNTESTED = "untested_"


def replicas(client: Client, namespace: str, unix: float) -> Part:
    """Ask each server.

    Raises:
        Forbidden: the user may not list pods there.

    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = [
        pod
        for page in pages(client, path, {"labelSelector": _LABELS})
        for pod in page.get("items") or ()
    ]
    if not listed:
        return Part(unknown=f"there is no pod of the server in namespace {namespace}")
    shown = [_replica(client, pod, unix) for pod in listed]
    trouble = [
        f"{each['name']} is {each['state']}"
        for each in shown
        if each["state"] in ("stale", "not ready")
    ]
    trouble += [
        f"the certificate of {each['name']} is expired"
        for each in shown
        if (each["certificateSecondsLeft"] or 1) < 0
    ]
    trouble += [
        f"cluster {name} is stale at {each['name']}"
        for each in shown
        for name in each["staleClusters"]
    ]
    return Part(shown=shown, trouble=tuple(trouble))


def _replica(client: Client, pod: Mapping[str, Any], unix: float) -> dict[str, Any]:
    metadata = pod["metadata"]
    found = {
        "name": metadata["name"],
        "state": "unknown" if _is_ready(pod) else "not ready",
        "stateAgeSeconds": None,
        "certificateSecondsLeft": None,
        "clusterStateAgeSeconds": {},
        "staleClusters": [],
        "kueueUntested": [],
        "message": "",
    }
    place = f"{metadata['name']}:{_port(pod)}"
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{place}/proxy/metrics"
    try:
        told = _told(client.get_text(path))
    except ClusterError as error:
        return {**found, "message": str(error)}
    age = told.get("state_age_seconds", inf)
    limit = told.get("state_age_limit_seconds", _LIMIT_SECONDS)
    if found["state"] != "not ready":
        found["state"] = "ready" if age <= limit else "stale"
    ends = [value for name, value in told.items() if name.startswith(_CERTIFICATE)]
    clusters = {
        name.removeprefix(_CLUSTER): value
        for name, value in sorted(told.items())
        if name.startswith(_CLUSTER)
    }
    return {
        **found,
        "stateAgeSeconds": None if age == inf else round(age, 1),
        "certificateSecondsLeft": round(min(ends) - unix) if ends else None,
        "clusterStateAgeSeconds": {name: round(each, 1) for name, each in clusters.items()},
        "staleClusters": [name for name, each in clusters.items() if each > limit],
        "kueueUntested": sorted(
            name.removeprefix(_UNTESTED)
            for name, each in told.items()
            if name.startswith(_UNTESTED) and each > 0
        ),
    }


def _told(text: str) -> Mapping[str, float]:
    """Read the samples that matter."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(_OURS)
            if name == "certificate_expiration_timestamp_seconds" and sample.value > 0:
                found[_CERTIFICATE + ",".join(sample.labels.values())] = sample.value
            elif name == "cluster_state_age_seconds":
                found[_CLUSTER + sample.labels.get("cluster", "")] = sample.value
            elif name == "kueue_untested":
                found[_UNTESTED + sample.labels.get("reason", "")] = sample.value
            elif name in ("state_age_seconds", "state_age_limit_seconds"):
                found[name] = sample.value
    return found


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _port(pod: Mapping[str, Any]) -> int:
    ports = (port for each in pod["spec"]["containers"] for port in each.get("ports") or ())
    return next(
        (int(port["containerPort"]) for port in ports if port.get("name") == "metrics"), 8080
    )
