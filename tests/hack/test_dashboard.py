"""The dashboard and the alerts ask for what exists, and each panel says what it shows."""

import json
import re
from pathlib import Path

import pytest
import yaml

from hack import dashboard, metrics_page

ALERTS = Path(__file__).resolve().parents[2] / "helm/files/alerts.yaml"
OF_THE_API_SERVER = {
    "apiserver_admission_webhook_admission_duration_seconds",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
}
OURS = {metric.name for metric in (*metrics_page.server(), *metrics_page.controller())}
PANELS = [panel for panel in dashboard.dashboard()["panels"] if panel["type"] != "row"]
NAME = re.compile(r"\b(?:kueue_fallback|process|apiserver)_\w+")


def asked_for(expression):
    return {re.sub("_(bucket|sum|count)$", "", name) for name in NAME.findall(expression)}


def known():
    return {re.sub("_(bucket|sum|count)$", "", name) for name in OURS | OF_THE_API_SERVER}


def test_the_file_is_current():
    assert dashboard.FILE.read_text() == dashboard.text()
    assert json.loads(dashboard.text()) == dashboard.dashboard()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_title_a_unit_a_source_and_metrics_that_exist(panel):
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        assert target["legendFormat"]
        assert asked_for(target["expr"])
        assert asked_for(target["expr"]) <= known()


def test_panels_have_numbers_titles_and_places_of_their_own():
    numbers = [panel["id"] for panel in dashboard.dashboard()["panels"]]
    titles = [panel["title"] for panel in PANELS]
    fields = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard.dashboard()["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(set(numbers)) == len(numbers)
    assert len(set(titles)) == len(titles)
    assert len(set(fields)) == len(fields)
    assert max(x for x, _ in fields) < 24


def test_the_alerts_ask_for_what_exists():
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert asked_for(rule["expr"]), rule["alert"]
            assert asked_for(rule["expr"]) <= known(), rule["alert"]


def test_every_metric_of_ours_is_on_the_dashboard():
    targets = [target for panel in PANELS for target in panel["targets"]]
    shown = {name for target in targets for name in asked_for(target["expr"])}

    assert {name for name in OURS if "process_" not in name} - shown == {
        "kueue_fallback_state_synced",  # told by its age
        "kueue_fallback_controller_state_synced",
        "kueue_fallback_controller_ready",
        "kueue_fallback_controller_watch_age_seconds",
    }
