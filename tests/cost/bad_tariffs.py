"""Tariffs that are wrong or odd, and AcceleratorProfiles that are refused; they stand in YAML."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
KR = "data.json"
PRICE = {"price": "0.24"}
RATES = [{"flavors": ["gpu"], "resources": {"nvidia.com/gpu": "3"}}]


def unix(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A Tariff that an API server takes."""

    it: str
    spec: dict[str, Any]
    want: tuple[str, str] = ("Resolved", "")
    """The reason of Ready, and the path that its message begins with."""
    now: str = "2026-12-01T08:00:00+00:00"
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    text: Any = None
    """What the series holds; None: there is no ConfigMap."""
    electricity: float | None = 0.24
    """The price of a kWh at *now* that decisions use; None: it is not known."""
    carbon: float | None = None
    money: float | None = None
    """What an hour of a GPU costs."""
    clipped: int = 0

    @property
    def config_map(self) -> dict[str, Any] | None:
        if self.text is None:
            return None
        text = self.text if isinstance(self.text, str) else json.dumps(self.text)
        return {"metadata": {"namespace": "ours", "name": "points"}, "data": {KR: text}}


def _read(name: str) -> Any:
    return yaml.safe_load((HERE / f"{name}.yaml").read_text())


def _refused(cases: list[dict[str, Any]]) -> dict[str, tuple[dict[str, Any], str]]:
    return {case["it"]: (case["spec"], case["path"]) for case in cases}


_TARIFFS = _read("bad_tariffs")
REFUSED = _refused(_TARIFFS["refused"]) | {
    "more than 64 entries": ({"electricity": [PRICE] * 65}, "spec.electricity")
}
"""What it is, to the spec and the path at which it is refused."""
REFUSED_PROFILES = _refused(_read("bad_profiles"))
TAKEN = {case["it"]: Odd(**case) for case in _TARIFFS["taken"]}
TAKEN["a series that is nested deeply"] = replace(
    TAKEN["a series that is cut off"], it="a series that is nested deeply", text="[" * 5000
)
