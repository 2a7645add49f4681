"""An older version of the chart, to upgrade from and to roll back to."""

from pathlib import Path

import yaml

from hack.release import HELM_SECONDS, Release

__all__ = ["HELM_SECONDS", "Release", "former"]


def former(chart: Path) -> None:
    """Make the chart an older one: a definition with a field less, and another setting."""
    path = chart / "files/fallbackpolicies.yaml"
    definition = yaml.safe_load(path.read_text())
    del definition["spec"]["names"]["shortNames"]
    path.write_text(yaml.safe_dump(definition))
    values = chart / "values.yaml"
    values.write_text(values.read_text().replace("settings: {}", "settings: {keep_alive: 100}"))
