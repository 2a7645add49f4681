"""Records of runs as ConfigMaps: classes spread over a fixed number of objects by a digest.

``data.classes`` holds one class a line, as JSON; runs are packed, so that no object nears the
1 MiB that etcd takes.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from webhook.api.resources import RUN_TIMES, RUN_TIMES_LABEL, RUN_TIMES_VALUE
from webhook.learn.run_records import Packed, Record, crowded_out, unpack_outcomes, unpack_runs
from webhook.model import fields
from webhook.model.faults import attempted

SHARDS: Final = 32
MOST_BYTES: Final = 700_000
"""Of one object; beyond, classes of the home that takes the most are left out."""
_VERSION: Final = "1"
_NAME: Final = "program"
"""Under ``name`` stood arguments, too: they are not read, and so are not written again."""


def shard_of(key: str) -> int:
    return zlib.crc32(key.encode()) % SHARDS


def name_of(shard: int) -> str:
    return f"{RUN_TIMES}-{shard}"


def read_shard(source: Mapping[str, Any]) -> Mapping[str, Record]:
    """Read classes and their records; lines of another version, or damaged, are passed over."""
    data = fields.texts(source, "data", "")
    if data.get("version") != _VERSION:
        return {}
    found = map(_read_line, data.get("classes", "").split("\n"))
    return dict(filter(None, found))


def config_map(shard: int, records: Mapping[str, Record]) -> Mapping[str, Any]:
    """Write the records of one shard's classes; without namespace and version."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_of(shard), "labels": {RUN_TIMES_LABEL: RUN_TIMES_VALUE}},
        "data": {"version": _VERSION, "classes": _written(records)},
    }


def _written(records: Mapping[str, Record]) -> str:
    """Write one class a line, in the order of their keys: equal records are equal texts."""
    lines = {key: _line(key, record) for key, record in records.items()}
    sizes = {key: len(line.encode()) + 1 for key, line in lines.items()}
    for key in _too_many(sizes, records):
        del lines[key]
    return "\n".join(lines[key] for key in sorted(lines))


def _too_many(sizes: Mapping[str, int], records: Mapping[str, Record]) -> Iterator[str]:
    """List the classes for which there is no room."""
    over = sum(sizes.values()) - MOST_BYTES
    if over > 0:
        for key in crowded_out(sizes, records):
            yield key
            over -= sizes[key]
            if over <= 0:
                return


def _line(key: str, record: Record) -> str:
    outcomes = [[*place, _text(packed)] for place, packed in sorted(record.outcomes.items())]
    found = {
        "class": key,
        "coarse": record.coarse,
        _NAME: record.name,
        "runs": _texts(record.runs),
        "failed": _texts(record.failed),
        "outcomes": outcomes,
        "starts": _texts(record.starts),
        "dispatches": _texts(record.dispatches),
    }
    return json.dumps({name: value for name, value in found.items() if value}, ensure_ascii=False)


def _read_line(line: str) -> tuple[str, Record] | None:
    found, _ = attempted(lambda: _one(fields.from_json(line, "", longest=MOST_BYTES)))
    return found


def _one(source: Mapping[str, Any]) -> tuple[str, Record]:
    return fields.text(source, "class", ""), Record(
        coarse=fields.text(source, "coarse", ""),
        name=fields.text(source, _NAME, ""),
        runs=_packed(fields.texts(source, "runs", "")),
        failed=_packed(fields.texts(source, "failed", "")),
        outcomes=_packed_outcomes(fields.sequence(source, "outcomes", "")),
        starts=_packed(fields.texts(source, "starts", "")),
        dispatches=_packed(fields.texts(source, "dispatches", "")),
    )


def _packed(texts: Mapping[str, str]) -> Mapping[str, Packed]:
    found = {flavors: b64decode(text, validate=True) for flavors, text in texts.items()}
    for packed in found.values():
        unpack_runs(packed)
    return found


def _packed_outcomes(items: Iterable[Any]) -> Mapping[tuple[str, str], Packed]:
    found = {(str(policy), str(option)): b64decode(text) for policy, option, text in items}
    for packed in found.values():
        unpack_outcomes(packed)
    return found


def _texts(runs: Mapping[str, Packed]) -> Mapping[str, str]:
    return {flavors: _text(packed) for flavors, packed in sorted(runs.items())}


def _text(packed: Packed) -> str:
    return b64encode(packed).decode()
