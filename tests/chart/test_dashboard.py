"""The dashboard and the alerts ask for what exists, and each panel says what it shows."""

import json
import re
from pathlib import Path

import pytest
import yaml

from hack import metrics_page
from webhook.metric_table import Kind

FILES = Path(__file__).resolve().parents[2] / "helm/files"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target for panel in PANELS for target in panel["targets"]]
RULES = [
    rule
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
OURS = {metric.name: metric for metric in (*metrics_page.server(), *metrics_page.controller())}
OF_THE_SCRAPE = {"namespace", "pod", "job", "instance"}
OF_THE_API_SERVER = {
    "apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "le"},
    "apiserver_admission_webhook_fail_open_count": {"name"},
    "apiserver_admission_webhook_rejection_count": {"name", "error_type"},
}
OF_KUEUE = {"kueue_pending_workloads": {"cluster_queue", "status"}}


def labels_of_series():
    """Every series that is scraped, and its labels."""
    known = OF_THE_API_SERVER | OF_KUEUE
    for name, metric in OURS.items():
        labels = {*metric.labels, *OF_THE_SCRAPE}
        if metric.kind is Kind.HISTOGRAM:
            known |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": labels}
            known[f"{name}_count"] = labels
        else:
            known[name] = labels
    return known


KNOWN = labels_of_series()
SERIES = re.compile(r"\b((?:kueue_fallback|kueue_pending|process|apiserver)_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING = re.compile(r"\b(by|on)\s*\(([^)]*)\)")


def asked_for(expression):
    return {name for name, _ in SERIES.findall(expression)}


def grouped_by(expression, *words):
    groups = [labels for word, labels in GROUPING.findall(expression) if word in words]
    return {label for labels in groups for label in re.findall(r"\w+", labels)}


def unknown(expression):
    """What the expression asks for that no series is or has."""
    found = SERIES.findall(expression)
    wanted = {(name, label) for name, text in found for label in LABEL.findall(text)}
    existing = set().union(*(KNOWN.get(name, set()) for name, _ in found))
    return {
        *(asked_for(expression) - set(KNOWN)),
        *((name, label) for name, label in wanted if label not in KNOWN.get(name, {})),
        *(grouped_by(expression, "by", "on") - existing),
    }


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_title_a_unit_and_queries_for_series_and_labels_that_exist(panel):
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        assert asked_for(target["expr"])
        assert unknown(target["expr"]) == set()


@pytest.mark.parametrize("target", QUERIES, ids=lambda target: target["expr"])
def test_a_legend_names_labels_that_the_query_leaves(target):
    left = grouped_by(target["expr"], "by") or set().union(
        *(KNOWN[name] for name in asked_for(target["expr"]))
    )

    assert target["legendFormat"]
    assert set(re.findall(r"{{\s*(\w+)\s*}}", target["legendFormat"])) - left == set()


def test_panels_have_numbers_titles_and_places_of_their_own():
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    titles = [panel["title"] for panel in PANELS]
    fields = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(set(numbers)) == len(numbers)
    assert len(set(titles)) == len(titles)
    assert len(set(fields)) == len(fields)
    assert max(x for x, _ in fields) < 24


def test_the_choices_are_among_labels_that_exist():
    choices = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]

    assert [each["name"] for each in choices] == ["namespace", "policy"]
    for each in choices:
        series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]).groups()
        assert unknown(series) == set()
        assert label in KNOWN[asked_for(series).pop()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_series_and_labels_that_exist(rule):
    assert asked_for(rule["expr"])
    assert unknown(rule["expr"]) == set()


def test_every_metric_of_ours_is_on_the_dashboard():
    shown = {name for target in QUERIES for name in asked_for(target["expr"])}
    shown = {re.sub("_(bucket|sum|count)$", "", name) for name in shown}

    assert {name for name in OURS if "process_" not in name} - shown == {
        "kueue_fallback_clock_ahead_seconds",  # told by /readyz and the log
        "kueue_fallback_leaderless_seconds",  # told by an alert and the log
        "kueue_fallback_state_synced",  # told by its age
        "kueue_fallback_controller_state_synced",
        "kueue_fallback_controller_ready",
        "kueue_fallback_controller_watch_age_seconds",
    }
