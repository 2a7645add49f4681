"""Turns the manifests of a case into our model, through the readers of the product itself."""

import json
from collections import defaultdict
from datetime import datetime

from webhook.model import quantity
from webhook.state.snapshot_file import kind_of, read_placed, state_of

NOW = datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()
"""When every case happens, in seconds since 1970 and on the clock of ``Snapshot.as_of``."""


def cluster(objects, case, **settings):
    """Return the State and the Snapshot of manifests, under the case's feature gates.

    *settings* are more of Kueue's own, by their names in its configuration.
    """
    entries = defaultdict(list)
    for source in (*objects, configuration(case, settings)):
        kind = kind_of(source)
        if kind and source.get("metadata", {}).get("name"):
            entries[kind].append(read_placed(kind, source, case.name))
    state = state_of(entries)
    return state, state.snapshot(NOW, NOW)


def configuration(case, settings):
    source = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": case.gates,
        "admissionFairSharing": case.common.get("afsConfig"),
        **settings,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {
            "controller_manager_config.yaml": json.dumps(
                {name: value for name, value in source.items() if value is not None}
            )
        },
    }


def key(source):
    """Name a Workload as the tables do."""
    return f"{source['metadata'].get('namespace', '')}/{source['metadata']['name']}"


def cells(usage):
    """Return {flavor: {resource: amount}} as the model's amounts."""
    return {
        (flavor, resource): amount
        for flavor, amounts in (usage or {}).items()
        for resource, amount in amounts.items()
    }


def amounts(assignment):
    """Return what an assignment of one pod set is charged, without what is zero."""
    return {
        (flavor, resource): amount
        for resource, flavor in assignment.get("flavors", {}).items()
        if (amount := quantity.parse(assignment["resourceUsage"][resource], resource=resource))
    }
