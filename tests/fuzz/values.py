"""Strategies: values that Kubernetes takes and nobody expects, and objects made hostile with them.

Long texts are one unit many times over: what is drawn stays small, so that a failure is shrunk
soon.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hypothesis import strategies as st

from webhook.model.job import (
    DECIDED_BY,
    DECISION,
    DECISION_ID,
    ENV_PREFIX,
    JOB_CLASS,
    MOVE_REASON,
    MOVE_TO,
    OPTION_LABEL,
    OURS,
    PRIORITY_LABEL,
    PROBE,
    QUEUE_LABEL,
    REASON,
    UNDONE,
    UNDONE_FROM,
)

LONGEST: Final = 200_000
"""Characters; all annotations of an object may have 262,144."""
LONG_DIGITS: Final = 5_000
"""More than Python turns into a number, or a number into a text."""
_KUEUE: Final = "kueue.x-k8s.io/"
LIKELY: Final = (DECISION, JOB_CLASS, DECIDED_BY, DECISION_ID, OPTION_LABEL, UNDONE, UNDONE_FROM)
"""Keys of what is believed of a Job."""
KEYS: Final = (
    *(DECISION, DECISION_ID, DECIDED_BY, JOB_CLASS, REASON, OPTION_LABEL, PROBE),
    *(MOVE_TO, MOVE_REASON, UNDONE, UNDONE_FROM, QUEUE_LABEL, PRIORITY_LABEL),
    *(f"{OURS}{name}" for name in ("policy", "allow", "deadline", "max-wait", "max-slowdown")),
    *(f"{OURS}{name}" for name in ("run-time", "repair", "signature", "x", "option", "off")),
    *(f"{ENV_PREFIX}0.RUN_ENV", f"{ENV_PREFIX}x"),
    *(f"{_KUEUE}{name}" for name in ("elastic-job", "job-min-parallelism", "stopping")),
    *(f"{_KUEUE}{name}" for name in ("prebuilt-workload-name", "max-exec-time-seconds")),
    *(f"{_KUEUE}{name}" for name in ("podset-required-topology", "podset-slice-size")),
    *(f"{_KUEUE}{name}" for name in ("multikueue-origin", "workload-slice-replacement-for")),
    *(f"{_KUEUE}{name}" for name in ("admission-gated-by", "concurrent-admission-parent")),
    "workload-type",
    "team",
)
"""Of labels and annotations: all that anything reads, and two that nothing does."""
_UNITS: Final = (
    *("a", "9", "0", "-", "a-", "9-", "deadbeef-", "1.", "1:", "1e", "1e+", "0x", " ", "~", ","),
    *("\n", "\t", "\x1b[2J", "\u202e", "\u00e9", "\U0001f4a5", "\u0130", "\ufffd", "\x7f"),
    *('"', "\\", "[", "{", "}", "<script>", "%s", "{0}", "../", "${X}", "$(X)"),
)
_NUMBERS: Final = (
    *(0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**64),
    *(10**10, 10**11, 10**18),
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT")
_QUANTITY: Final = re.compile(r"\d+([mkMGTPE]i?)?$")
_TIMES: Final = (
    *("0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"),
    *("2038-01-19T03:14:08Z", "2106-02-07T06:28:16Z", "2200-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59Z", "2026-11-21T06:00:00.123456789Z", "2026-02-30T00:00:00Z"),
    *("2026-11-21T06:00:00+23:59", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
    "2026-11-21T06:00:00",
)
_QUANTITIES: Final = (
    *("0", "1", "-1", "500m", "0.1m", "1n", "1u", "1e3", "1E3", "1e-9", "1Ei", "1E", "9E", "8Ei"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e18", "1e100"),
    *("1e1000000", "1e-1000000", ".5", "5.", "+1", "0x1", "1_000", "\u0661", "\u00b2", "", " 1"),
)

lengths = st.sampled_from([1, 63, 64, 200, 253, 1_000, 4_096, 5_000, 32_000, LONGEST])
long_texts = st.builds(lambda unit, count: (unit * count)[:count], st.sampled_from(_UNITS), lengths)
short_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.sampled_from(
    ["", "a", "none", "gpu", "cpu", "gpu-lq", "no-such-queue", "-", ".", "a/b", "a" * 253, "\u00fc"]
)
times = st.sampled_from(_TIMES)
digits = st.builds(
    lambda sign, digit, count: sign + digit * count,
    st.sampled_from(["", "", "", "-"]),
    st.sampled_from(["9", "1", "0"]),
    st.sampled_from([1, 10, 11, 20, 400, LONG_DIGITS]),
)
quantities = st.one_of(
    st.sampled_from(_QUANTITIES),
    digits,
    st.builds("{}{}".format, digits, st.sampled_from(["m", "Ki", "Ei", "E", "e9"])),
    st.builds(lambda n: "0." + "0" * n + "1", st.sampled_from([1, 18, 400, LONG_DIGITS])),
)
durations = st.sampled_from(
    ["0s", "-5m", "1h", "999999999h", "1e9s", "9" * 400 + "s", "1h1h1h", "s", "1s" * 2_000, "5"]
)
numbers = st.sampled_from(_NUMBERS) | st.integers(-5, 5)
_hexes = st.sampled_from(["0123456789abcdef", "~0123456789abcdef", "a=b", ""])
marks = st.builds("{} {} {}".format, _hexes, _hexes | long_texts, digits)
"""What may stand where ``job_class.mark_text`` has written."""


def _nested(opening: str, closing: str, depth: int) -> str:
    return opening * depth + closing * depth


deep = st.builds(
    lambda ends, depth: _nested(*ends, depth),
    st.sampled_from([("[", "]"), ('{"a":', "}"), ("[[],", "]"), ("[", "")]),
    st.sampled_from([10, 128, 700, 20_000]),
).map(lambda text: text.replace(":}", ":1}").replace(",]", ",1]"))
"""JSON texts that nest; some of them are damaged."""

_SPELLED: Final = {
    '"@digits@"': "9" * LONG_DIGITS,
    '"@huge@"': "1" + "0" * 400,
    '"@infinite@"': "1e999",
    '"@nan@"': "NaN",
    '"@deep@"': _nested("[", "]", 700),
    "@surrogate@": "\\ud800",
}
"""Placeholders, as JSON, to what it can spell and ``json.dumps`` does not."""
odd_json = st.sampled_from([name.strip('"') for name in _SPELLED])


def dumped(value: Any) -> str:
    """Write JSON, with placeholders spelled out."""
    text = json.dumps(value, ensure_ascii=False)
    for name, spelled in _SPELLED.items():
        text = text.replace(name, spelled)
    return text


def decision(**rest: Any) -> dict[str, Any]:
    """Return what stands on a Job that was decided and moved, with all that any version wrote."""
    stay = {"time": "2026-11-21T05:59:00Z", "option": "gpu", "reason": "moved", "startsIn": 3.5}
    option = {"queue": "gpu-lq", "clusterQueue": "mine-cq", "pending": 3, "startsIn": 12.5}
    places = {
        "/spec/template/spec/nodeSelector/tenant": None,
        "/spec/template/spec/affinity": {"nodeAffinity": {}},
        "/spec/template/spec/containers/main/image": "elsewhere",
        "/spec/template/spec/containers/main/env/RUN_ENV": {"value": "gpu"},
        "/spec/template/spec/containers/main/resources/requests/cpu": "4",
        "/spec/template/metadata/labels/kueue-fallback.dev~1option": None,
    }
    return {
        "version": 1,
        "id": "abc-0123abcd",
        "time": "2026-11-21T05:58:00Z",
        "policy": "forecast",
        "mode": "Enforce",
        "option": "cpu",
        "reason": "sent to cpu-lq (cpu): starts now",
        "from": {"queue": "gpu-lq"},
        "original": places,
        "submitted": "2026-11-21T05:58:00Z hostile",
        "stateAge": 0.1,
        "moves": 1,
        "history": [stay],
        "changed": ["image"],
        "options": [
            {"name": "gpu", **option, "runs": 20.0, "finishesIn": 32.5, "rejected": "waits: x"},
            {"name": "cpu", **option, "runsBy": "the policy", "cluster": "near"},
        ],
        **rest,
    }


scalars = st.one_of(
    st.none(), st.booleans(), numbers, quantities, times, durations, names, short_texts, long_texts
)
anything = st.one_of(
    scalars,
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(scalars, max_size=3),
    st.dictionaries(short_texts, scalars, max_size=3),
)
"""JSON, of the type that was wanted or not."""


@st.composite
def mutated(draw: st.DrawFn, base: Any, special: st.SearchStrategy[Any], most: int = 3) -> Any:
    """Draw a copy of some JSON with a few places that say something else, or are not there.

    Most are of the type that was there; *special* values go anywhere.
    """
    found = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, most))):
        parent, key = draw(st.sampled_from(list(_places(found)) or [({"": ""}, "")]))
        how = draw(st.integers(0, 9))
        value = draw(special if how == 0 else anything if how == 1 else _like(parent[key]))
        what = draw(st.sampled_from(["set", "set", "set", "set", "add", "drop", "repeat"]))
        _change(parent, key, what, value)
    return found


def _like(value: Any) -> st.SearchStrategy[Any]:
    """Draw a value of the same type; a text of the kind that it seems to be."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        return numbers
    if isinstance(value, dict):
        return st.dictionaries(names, _like(next(iter(value.values()), "")), max_size=3)
    if isinstance(value, list):
        return st.lists(_like(value[0]) if value else scalars, max_size=3)
    text = str(value)
    if _TIME.match(text):
        return times
    return quantities if _QUANTITY.match(text) else names | short_texts | long_texts


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


def _change(parent: Any, key: Any, what: str, value: Any) -> None:
    if what == "set":
        parent[key] = value
    elif what == "drop":
        del parent[key]
    elif what == "repeat" and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent[key]) for _ in range(50))
    elif isinstance(parent, dict):
        parent[str(value)[:200]] = copy.deepcopy(parent[key])
    else:
        parent.append(value)


decisions = st.one_of(
    mutated(decision(), anything | odd_json).map(dumped),
    deep,
    deep.map(lambda text: dumped(decision(original="@deep@")).replace("@deep@", text)),
    long_texts,
)


def _texts_at(key: str) -> st.SearchStrategy[str]:
    """Draw a text of the kind that is read there."""
    meant: Mapping[str, st.SearchStrategy[str]] = {
        DECISION: decisions,
        JOB_CLASS: marks,
        UNDONE_FROM: decisions,
        DECIDED_BY: st.sampled_from(["forecast", "light-gpu", "none"]),
        OPTION_LABEL: st.sampled_from(["cpu", "gpu", "other"]),
        PRIORITY_LABEL: names,
    }
    return meant.get(key, durations)


_general = st.one_of(long_texts, short_texts, digits, names, times, durations, decisions)


@st.composite
def texts(draw: st.DrawFn, most: int = 4) -> dict[str, str]:
    """Draw labels or annotations: what is believed of a Job first, and of the kind that is read."""
    found = {}
    for _ in range(draw(st.integers(0, most))):
        key = draw(st.sampled_from(LIKELY if draw(st.booleans()) else KEYS))
        found[key] = draw(_texts_at(key) if draw(st.booleans()) else _general)
    return found
