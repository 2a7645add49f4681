"""Write helm/files/dashboard.json, for Grafana: `python -m hack.dashboard`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hack.panel_rows import ROWS
from hack.panels import Panel

FILE: Final = Path(__file__).resolve().parent.parent / "helm/files/dashboard.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_HEIGHT: Final = 7
# Name and the series that have it as a label.
_CHOICES: Final = (
    ("namespace", "kueue_fallback_ready"),
    ("policy", 'kueue_fallback_policy_ready{namespace=~"$namespace"}'),
)


def dashboard() -> dict[str, Any]:
    return {
        "uid": "kueue-fallback",
        "title": "kueue-fallback",
        "description": "Where new Jobs are sent, why, and whether it keeps up.",
        "tags": ["kueue", "kueue-fallback"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    for name, series in _CHOICES:
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": f"label_values({series}, {name})",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": row, "gridPos": place, "panels": []}
        top, left = top + 1, 0
        for panel in panels:
            if left + panel.width > _COLUMNS:
                top, left = top + _HEIGHT, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": _HEIGHT}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left += panel.width
        top += _HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    kind = "stat" if panel.number else "timeseries"
    return {
        "type": kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _NUMBER if panel.number else _LINES,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"instant": True} if panel.number else {}),
            }
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


_NUMBER: Final = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto"}
_LINES: Final = {
    "legend": {"displayMode": "list", "placement": "bottom"},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


if __name__ == "__main__":
    FILE.write_text(text())
