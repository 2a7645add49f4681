"""Converts a line of the journal as version 0.1.0 wrote it, with short keys.

For one release: what that version wrote is too old to be kept a week after an upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final

from webhook.model.job import QUEUE_LABEL

_NAMES: Final = {
    "k": "key",
    "u": "uid",
    "kd": "kind",
    "ns": "namespace",
    "n": "name",
    "o": "outcome",
    "q": "queue",
    "cq": "clusterQueue",
    "cl": "cluster",
    "f": "flavors",
    "c": "jobClass",
    "cc": "coarse",
    "s": "submitted",
    "r": "ran",
    "l": "labels",
    "a": "annotations",
}
_OF_OPTIONS: Final = (
    *("name", "queue", "startsIn", "runs", "finishesIn"),
    *("rejected", "passedOver"),
)
_COSTS: Final = ("money", "electricity", "kWh", "carbonGrams")


def converted(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the line as ``journal.write_one`` would have written it."""
    entry = {name: line[short] for short, name in _NAMES.items() if short in line}
    entry["created"], entry["admitted"], entry["finished"] = line["t"]
    entry["queue"] = line.get("q", "")
    entry["used"] = [[cell, amount] for *cell, amount in line.get("us", ())]
    if "p" in line:
        entry["decision"] = _decision(line)
    return entry


def _decision(line: Mapping[str, Any]) -> Mapping[str, Any]:
    submitted = line.get("l", {}).get(QUEUE_LABEL, "")
    return {
        "version": 1,
        "time": datetime.fromtimestamp(line["t"][0] + line.get("d", 0.0), UTC).isoformat(),
        "policy": line["p"],
        "mode": line.get("m", ""),
        "option": line.get("op"),
        "leftAlone": line.get("la", ""),
        "from": {"queue": submitted},
        "moves": line.get("mv", 0),
        "options": [_option(offer, submitted, line.get("xc", ())) for offer in line.get("of", ())],
    }


def _option(offer: Sequence[Any], submitted: str, cost: Sequence[Any]) -> Mapping[str, Any]:
    option = dict(zip_longest(_OF_OPTIONS, offer, fillvalue=""))
    if option["queue"] == submitted:
        option["cost"] = dict(zip(_COSTS, cost, strict=False))
    return option
