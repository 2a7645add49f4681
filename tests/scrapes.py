"""What a scrape brings, held against the table that the metrics themselves keep."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from webhook.api.resources import RUN_TIMES, SIGNING_KEYS
from webhook.controller import followed_watches
from webhook.jobs import KINDS
from webhook.metric_table import (
    A_CLUSTER,
    A_FLAVOR,
    A_NAMESPACE,
    A_POLICY,
    A_PRICED_RESOURCE,
    A_SLICE,
    A_TARIFF,
    A_TREE,
    AN_OPTION,
    ANY_OPTION,
    ANY_POLICY,
)
from webhook.reconsider import pending_jobs
from webhook.state.watched import watched

RESOURCES = {
    *(followed_watches.followed(kind).kind for kind in KINDS.values()),
    RUN_TIMES,
    SIGNING_KEYS,
    *(pending_jobs.followed(kind).kind for kind in KINDS.values()),
    *(one.kind for one in watched(namespace="ours", kueue_namespace="kueue-system")),
}
BOUNDED = {
    A_POLICY: {"light-gpu", "another"},
    ANY_POLICY: {"light-gpu", "another"},
    AN_OPTION: {"gpu", "cpu", "none"},
    ANY_OPTION: {"gpu", "cpu", "none"},
    A_NAMESPACE: {"team"},
    A_TARIFF: {"here"},
    A_TREE: {"queue gpu-cq"},
    A_CLUSTER: {"", "far"},
    A_FLAVOR: {"gpu"},
    A_PRICED_RESOURCE: {"nvidia.com/gpu"},
    A_SLICE: {"nvidia.com/mig-3g.20gb"},
    "a resource that is watched": RESOURCES,
}


def scraped(text):
    """Each series as (name of its metric, type, labels)."""
    families = text_string_to_metric_families(text)
    return [
        (family.name + "_total" * (family.type == "counter"), family.type, sample.labels)
        for family in families
        for sample in family.samples
    ]


def shown(metrics):
    return scraped(generate_latest(metrics.registry).decode())


def check(metrics):
    """Hold what would be scraped against the table; return the names."""
    return check_series(shown(metrics), metrics.table.metrics)


def check_series(found, metrics, bounded=BOUNDED):
    table = {metric.name: metric for metric in metrics}
    for name, kind, labels in found:
        metric = table[name]
        assert kind == metric.kind, name
        given = {label: value for label, value in labels.items() if label != "le"}
        assert set(given) == set(metric.labels), name
        for label, values in metric.labels.items():
            allowed = bounded[values] if isinstance(values, str) else set(map(str, values))
            assert given[label] in allowed, (name, label)
    return {name for name, _, _ in found}
