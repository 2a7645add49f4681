"""Where the time of a create goes: the API server's own measures, and the handler's, by part.

Each is a sum in seconds that grows; what one grew by between two readings, divided by the creates
between them, is what that part took of each.
"""

import re
from collections.abc import Mapping
from typing import Final

from bench.report import Figures, spread, table
from hack import meters
from hack.install import Replica
from hack.plane import Plane

_ADMISSION: Final = "apiserver_admission_"
_WEBHOOK: Final = f"{_ADMISSION}webhook_admission_duration_seconds_sum"
_STEP: Final = f"{_ADMISSION}step_admission_duration_seconds_sum"
OURS: Final = "  the call of our webhook"
KUEUES: Final = "  Kueue's mutating webhook"
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "mutating admission, all of it": (_STEP, 'type="admit"'),
    "  our webhook's match conditions": (
        f"{_ADMISSION}match_condition_evaluation_seconds_sum",
        'name="create.kueue-fallback.dev"',
    ),
    OURS: (_WEBHOOK, 'name="create.kueue-fallback.dev"'),
    KUEUES: (_WEBHOOK, 'name="mjob.kb.io"'),
    "  policies in the API server's process": (
        f"{_ADMISSION}controller_admission_duration_seconds_sum",
        'name="MutatingAdmissionPolicy"',
    ),
    "validating admission, all of it": (_STEP, 'type="validate"'),
    "  Kueue's validating webhook": (_WEBHOOK, 'name="vjob.kb.io"'),
}
"""Each part with its metric and a label of it."""
HANDLER: Final = "    our handler in that call"
_SAMPLE: Final = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_HANDLER: Final = re.compile(
    r'^kueue_fallback_review_seconds_sum\{operation="CREATE"\} (\S+)$', re.MULTILINE
)


def seconds(plane: Plane, replica: Replica, *, is_called: bool) -> dict[str, float]:
    """Read how long each part of all creates has taken; *is_called*: our webhook runs."""
    found = _parts(plane.client.send("GET", "/metrics").body.decode())
    if is_called:
        text = meters.scrape(replica.metrics)
        found[HANDLER] = sum(map(float, _HANDLER.findall(text)))
    return found


def _parts(text: str) -> dict[str, float]:
    samples = [match.groups() for match in _SAMPLE.finditer(text)]
    return {
        part: sum(
            float(value)
            for name, labels, value in samples
            if name == metric and label in labels and 'operation="CREATE"' in labels
        )
        for part, (metric, label) in _PARTS.items()
    }


def by_create(before: Mapping[str, float], after: Mapping[str, float], count: int) -> Figures:
    """Return the milliseconds that each part took of a create."""
    return {part: round((after[part] - before[part]) * 1000 / count, 3) for part in after}


def lines(found: Mapping[str, list[Figures]]) -> list[str]:
    """Return a table of the parts; *found*: each contender's figures, round by round."""
    parts = list(
        dict.fromkeys(part for rounds in found.values() for each in rounds for part in each)
    )
    order = [part for part in (*_PARTS, HANDLER) if part in parts]
    rows = [
        [
            part,
            *(
                spread([each[part] for each in rounds], digits=2) if part in rounds[0] else "-"
                for rounds in found.values()
            ),
        ]
        for part in order
    ]
    return table(("1 at once, ms of each create", *found), rows) if rows else []
