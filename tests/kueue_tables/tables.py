"""The tables of Kueue's own scheduler tests, as `python -m hack.kueue_tables make` left them."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hack.kueue_tables.pruned import resolved

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    table: str
    fields: dict[str, Any]
    """As Kueue's test names them; ``want...`` is what Kueue does. What is empty is left out."""
    common: dict[str, Any]
    """What holds for each case of the table."""
    gates: dict[str, bool]
    """Feature gates that are not at their default."""

    @property
    def name(self):
        return self.fields["name"]

    def all(self, *names):
        """Return the members of these lists, of the table's and of the case's own."""
        lists = [place.get(name, ()) for name in names for place in (self.common, self.fields)]
        # Where the order does not matter, Kueue's tests have a map from names.
        return [
            member
            for members in lists
            for member in (members.values() if isinstance(members, dict) else members)
        ]


@lru_cache
def cases(table):
    stored = json.loads((DATA / f"{table}.json").read_text())
    common = stored["common"]
    return tuple(
        Case(
            table=table,
            fields=resolved(record, common),
            common=common,
            gates=stored["meta"].get("featureGates", {}) | record.get("featureGates", {}),
        )
        for record in stored["cases"]
    )
