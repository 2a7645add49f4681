"""Make Kueue's own chart run outside of a cluster: its objects and its configuration. Pure."""

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from hack.definitions import without_texts

Object = dict[str, Any]

NAMESPACE: Final = "kueue-system"
WEBHOOK_SERVICE: Final = "kueue-webhook-service"
CONFIG_MAP: Final = "kueue-manager-config"
CERTIFICATE_SECRET: Final = "kueue-webhook-server-cert"  # noqa: S105 - a name
CONFIG_KEY: Final = "controller_manager_config.yaml"
# What asks for an API that is not installed.
LEFT_OUT: Final = frozenset({"APIService", "ServiceMonitor"})


def configuration(
    rendered: Iterable[Object], *, ports: Mapping[str, int], certificates: str, extra: Object
) -> Object:
    """Return the chart's configuration, changed for a process on loopback, then by `extra`."""
    config_map = next(item for item in rendered if _is_config_map(item))
    config: Object = yaml.safe_load(config_map["data"][CONFIG_KEY])
    here = {
        "leaderElection": {"leaderElect": False},
        "webhook": {"port": ports["webhook"], "host": "127.0.0.1", "certDir": certificates},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['health']}"},
        "clientConnection": {"qps": 1000, "burst": 2000},
        # Its server insists on a fixed folder for its certificate.
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["batch/job"]},
    }
    return merged(merged(config, here), extra)


def objects(
    rendered: Iterable[Object],
    *,
    port: int,
    certificate: Mapping[str, str],
    config: Object,
    version: str,
) -> list[Object]:
    """Return the chart's objects with its webhooks and conversions calling `port` on loopback.

    Its definitions come without texts.
    *certificate*: the data of Kueue's Secret, as another Kueue has made it; empty: this one makes
    its own, and tells all its definitions of it. Its Deployment says what runs, without a pod of
    its own: the process beside it is of this version, and has the same arguments but for the places
    of its files.
    """
    kept = [_copied(item) for item in rendered if item["kind"] not in LEFT_OUT]
    for item in kept:
        if item["kind"] == "Deployment":
            item["spec"]["replicas"] = 0
            manager = item["spec"]["template"]["spec"]["containers"][0]
            manager["image"] = f"{manager['image'].rpartition(':')[0]}:{version}"
        elif _is_config_map(item):
            item["data"][CONFIG_KEY] = yaml.safe_dump(config, sort_keys=False)
        else:
            point_at_loopback(item, service=WEBHOOK_SERVICE, port=port)
            _certify(item, certificate)
    return kept


def played(version: str) -> list[Object]:
    """Return what a Kueue of that version leaves in a cluster where it does not run at all."""
    manager = {"name": "manager", "image": f"kueue:{version}", "args": [f"--config=/{CONFIG_KEY}"]}
    volume = {"name": "manager-config", "configMap": {"name": CONFIG_MAP}}
    pod = {"containers": [manager], "volumes": [volume]}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kueue-controller-manager", "namespace": NAMESPACE},
            "spec": {"replicas": 0, "template": {"spec": pod}},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
            "data": {CONFIG_KEY: "kind: Configuration\n"},
        },
    ]


def point_at_loopback(item: Object, *, service: str, port: int) -> None:
    """Make the API server call a port on loopback wherever an object names the Service.

    A Service of type ExternalName sends the API server to localhost, while it still checks the
    certificate against the Service's name.
    """
    if item["kind"] == "Service" and item["metadata"]["name"] == service:
        item["spec"] = {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"name": "https", "port": port}],
        }
    for caller in _callers(item):
        called = caller["clientConfig"]["service"]
        if called["name"] == service:
            called["port"] = port


def merged(base: Object, extra: Object) -> Object:
    """Return `base` with the values of `extra`, mapping by mapping; lists are replaced."""
    result = json.loads(json.dumps(base))
    for key, value in extra.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return dict(result)


def _copied(item: Object) -> Object:
    is_definition = item["kind"] == "CustomResourceDefinition"
    return without_texts(item) if is_definition else copy.deepcopy(item)


def _certify(item: Object, certificate: Mapping[str, str]) -> None:
    if not certificate:
        return
    if (item["kind"], item["metadata"]["name"]) == ("Secret", CERTIFICATE_SECRET):
        item["data"] = dict(certificate)
    for caller in _callers(item):
        caller["clientConfig"]["caBundle"] = certificate["ca.crt"]


def _callers(item: Object) -> list[Object]:
    """Return the parts that tell the API server what to call."""
    conversion = item.get("spec", {}).get("conversion", {}).get("webhook")
    return [*item.get("webhooks", ()), *([conversion] if conversion else ())]


def _is_config_map(item: Object) -> bool:
    return (item["kind"], item["metadata"]["name"]) == ("ConfigMap", CONFIG_MAP)
