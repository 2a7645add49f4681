"""Records of ended runs, in few bytes: the newest of each class by flavors, and their ConfigMaps.

Records of one class from several sources merge to the same record in whatever order and however
often: a record is a set of runs, of which the newest are kept.
"""

from __future__ import annotations

import heapq
import json
import struct
import zlib
from base64 import b64decode, b64encode
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from webhook.api.resources import RUN_TIMES, RUN_TIMES_LABEL, RUN_TIMES_VALUE
from webhook.learn.device_runs import DEVICE_RUN, merged_device_runs
from webhook.learn.device_runs import unpack as unpack_device_runs
from webhook.learn.job_class import NO_MARK, Mark
from webhook.learn.service_points import SERVICE_POINT, merged_points, unpack_points
from webhook.model import fields
from webhook.model.faults import attempted
from webhook.model.fields import EMPTY
from webhook.model.forecasts import AT_LEVEL, IN_CLUSTER, home_of
from webhook.model.topologies import PlacedPods

MOST_RUNS = 40
"""Successful runs kept of a class on given flavors; ``learn.estimates`` weighs them by age."""
MOST_FAILED = 8
MOST_SAID = 6
"""Of the newest of these, also what their owners said."""
MOST_BEGUN = 6
"""Delays kept of a class in one place, and of all classes together: 10,000 classes must take less
than 50 MB, with all else that is kept of them."""
FAILURES_THAT_TELL = 3
MOST_PLACES = 8
"""Flavors, and options, kept of one class: the newest."""

_RUN = struct.Struct("<IHI")
_OUTCOME = struct.Struct("<IHI?")
_Key = TypeVar("_Key", str, tuple[str, str])
Packed: TypeAlias = bytes
_NO_OUTCOMES: Mapping[tuple[str, str], Packed] = {}


class Run(NamedTuple):
    """One run; equal values are the same run.

    Durations and outcomes are packed apart, so what is unpacked has only one of both.
    """

    finished: int
    """Seconds since 1970, by the API server's clock, which has whole seconds."""
    uid: int
    """16 bits of a digest of its Workload's uid."""
    seconds: int = 0
    """From its last admission to its end."""
    generation: int = 0
    """Generation of the policy when it decided."""
    succeeded: bool = True


class ClassRecord(NamedTuple):
    """What is remembered of one class."""

    coarse: str = ""
    name: str = ""
    """For people: an image and a program."""
    runs: Mapping[str, Packed] = EMPTY
    """Flavors to successful runs, the oldest first."""
    said: Mapping[str, Packed] = EMPTY
    """Flavors to the same runs, as long as their owners said they would be in the first option;
    those of which nothing was said are left out."""
    failed: Mapping[str, Packed] = EMPTY
    """Flavors to failed runs."""
    evicted: Mapping[str, Packed] = EMPTY
    """Flavors to the same successful runs with, instead of seconds, how often they were evicted
    before as Nodes or pods were lost; those that never were are left out."""
    outcomes: Mapping[tuple[str, str], Packed] = _NO_OUTCOMES
    """(policy, option) to outcomes; of Jobs left as submitted both are empty."""
    starts: Mapping[str, Packed] = EMPTY
    """Flavors to how long after its admission all pods of a run were ready."""
    dispatches: Mapping[str, Packed] = EMPTY
    """ClusterQueue to how long its AdmissionChecks took after the reservation of quota."""
    measured: Mapping[str, Packed] = EMPTY
    """Model of a device to what runs used of it (``device_runs``)."""
    served: Mapping[str, Packed] = EMPTY
    """Device and option, as ``cost.learned_serving.place_of`` has them, to what services did there
    (``service_points``)."""

    @property
    def last(self) -> int:
        """The time of the newest run's end or start, or point, in seconds since 1970; 0: none."""
        groups = (self.runs, self.failed, self.starts, self.dispatches)
        all_packed = [packed for group in groups for packed in group.values()]
        runs = [unpack_runs(packed[-_RUN.size :])[0].finished for packed in all_packed]
        served = self.served.values()
        points = [unpack_points(packed[-SERVICE_POINT.size :])[0].at for packed in served]
        return max((*runs, *points), default=0)


class WorkloadRun(NamedTuple):
    """A Workload's run as far as it has come; times in seconds since 1970, 0: not reached."""

    run: Run
    """Of one that has not ended only the ``uid`` is known."""
    flavors: str = ""
    cluster: str = ""
    """Where MultiKueue has sent it; empty: it runs here."""
    cluster_queue: str = ""
    reserved: int = 0
    """0 also if no AdmissionCheck is between reservation and admission."""
    admitted: int = 0
    ready: int = 0
    """When all its pods were ready for the first time."""
    mark: Mark = NO_MARK
    name: str = ""
    """As in ``ClassRecord``; it and what follows are known once it has ended."""
    policy: str = ""
    option: str = ""
    placed: tuple[PlacedPods, ...] = ()
    """Where its pods were in the domains of Topologies."""
    level: str = ""
    """The lowest level of which one domain had all of its pods; empty: that is not known."""
    evicted: int = 0
    """How often it was evicted before, as Nodes or pods were lost."""

    @property
    def has_ended(self) -> bool:
        return self.run.finished > 0

    def beginning(self) -> ClassRecord:
        """Return what is learned from how it began."""
        starts, dispatches = {}, {}
        if self.flavors and self.ready >= self.admitted > 0:
            start = pack_runs([Run(self.ready, self.run.uid, self.ready - self.admitted)])
            starts = dict.fromkeys(places(self.flavors, self.cluster), start)
        if self.admitted >= self.reserved > 0:
            dispatch = Run(self.admitted, self.run.uid, self.admitted - self.reserved)
            dispatches = {self.cluster_queue: pack_runs([dispatch])}
        coarse = self.mark.job_class.coarse
        return ClassRecord(coarse=coarse, starts=starts, dispatches=dispatches)

    def record(self) -> ClassRecord:
        """Return what is learned from it, now that it has ended."""
        where = (*places(self.flavors, self.cluster), *at_level(self.flavors, self.level))
        packed = dict.fromkeys(where, pack_runs([self.run]))
        succeeded, said = self.run.succeeded, self.mark.said
        said_runs = dict.fromkeys(where, pack_runs([self.run._replace(seconds=said)]))
        evicted = dict.fromkeys(where, pack_runs([self.run._replace(seconds=self.evicted)]))
        return self.beginning()._replace(
            name=self.name,
            runs=packed if succeeded else {},
            said=said_runs if succeeded and said else {},
            failed={} if succeeded else packed,
            evicted=evicted if succeeded and self.evicted else {},
            outcomes={(self.policy, self.option): pack_outcomes([self.run])},
        )


def crowded_out(sizes: Mapping[str, int], records: Mapping[str, ClassRecord]) -> Iterator[str]:
    """Yield the keys of records in the order in which they are dropped to make room.

    Of the home that takes the most, the one that ended longest ago: no home crowds out another.
    """
    taken: Counter[str] = Counter()
    oldest: defaultdict[str, deque[str]] = defaultdict(deque)
    for key in sorted(sizes, key=lambda key: (records[key].last, key)):
        taken[home_of(key)] += sizes[key]
        oldest[home_of(key)].append(key)

    def rank(home: str) -> tuple[int, int, str]:
        return -taken[home], records[oldest[home][0]].last, home

    heap = [rank(home) for home in oldest]
    heapq.heapify(heap)
    while heap:
        home = heapq.heappop(heap)[-1]
        key = oldest[home].popleft()
        taken[home] -= sizes[key]
        if oldest[home]:
            heapq.heappush(heap, rank(home))
        yield key


def places(flavors: str, cluster: str) -> tuple[str, ...]:
    """Return the keys of a run: its flavors, and these in the cluster it was sent to."""
    return (flavors, f"{flavors}{IN_CLUSTER}{cluster}") if cluster else (flavors,)


def at_level(flavors: str, level: str) -> tuple[str, ...]:
    """Return the key of a run on flavors whose pods are all in one domain of a level."""
    return (f"{flavors}{AT_LEVEL}{level}",) if level else ()


def split_place(place: str) -> tuple[str, str]:
    """Split a key into flavors and worker cluster."""
    flavors, _, cluster = place.partition(IN_CLUSTER)
    return flavors, cluster


def merged(one: ClassRecord, other: ClassRecord) -> ClassRecord:
    """Merge two records of one class."""
    if one == other:
        return one
    return ClassRecord(
        coarse=_least(one.coarse, other.coarse),
        name=_least(one.name, other.name),
        runs=_merged(one.runs, other.runs, merged_runs, _RUN),
        said=_merged(one.said, other.said, partial(merged_runs, most=MOST_SAID), _RUN),
        failed=_merged(one.failed, other.failed, partial(merged_runs, most=MOST_FAILED), _RUN),
        evicted=_merged(one.evicted, other.evicted, merged_runs, _RUN),
        outcomes=_merged(one.outcomes, other.outcomes, _merged_outcomes, _OUTCOME),
        starts=_merged(one.starts, other.starts, merged_begun, _RUN),
        dispatches=_merged(one.dispatches, other.dispatches, merged_begun, _RUN),
        measured=_merged(one.measured, other.measured, merged_device_runs, DEVICE_RUN),
        served=_merged(one.served, other.served, merged_points, SERVICE_POINT),
    )


def merged_runs(one: Packed, other: Packed, most: int = MOST_RUNS) -> Packed:
    if one == other:
        return one
    return pack_runs(sorted({*unpack_runs(one), *unpack_runs(other)})[-most:])


def merged_begun(one: Packed, other: Packed) -> Packed:
    return merged_runs(one, other, MOST_BEGUN)


def pack_runs(runs: Iterable[Run]) -> Packed:
    return b"".join(_RUN.pack(run.finished, run.uid, run.seconds) for run in runs)


def unpack_runs(packed: Packed) -> tuple[Run, ...]:
    """Unpack runs.

    Raises:
        ValueError: it is not what ``pack_runs`` made.

    """
    return tuple(Run(finished, uid, seconds) for finished, uid, seconds in _unpacked(_RUN, packed))


def pack_outcomes(runs: Iterable[Run]) -> Packed:
    return b"".join(
        _OUTCOME.pack(run.finished, run.uid, run.generation, run.succeeded) for run in runs
    )


def unpack_outcomes(packed: Packed) -> tuple[Run, ...]:
    """Unpack what ``pack_outcomes`` made; the duration of these runs is not known."""
    return tuple(
        Run(finished, uid, generation=generation, succeeded=bool(succeeded))
        for finished, uid, generation, succeeded in _unpacked(_OUTCOME, packed)
    )


def _unpacked(layout: struct.Struct, packed: Packed) -> Iterable[tuple[int, ...]]:
    if len(packed) % layout.size:
        raise ValueError(f"expected a multiple of {layout.size} bytes, got {len(packed)}")
    return layout.iter_unpack(packed)


def _merged_outcomes(one: Packed, other: Packed) -> Packed:
    """Keep the newest success, and as many failures as a refusal needs."""
    both = sorted({*unpack_outcomes(one), *unpack_outcomes(other)})
    failures = [outcome for outcome in both if not outcome.succeeded][-FAILURES_THAT_TELL:]
    successes = [outcome for outcome in both if outcome.succeeded][-1:]
    return pack_outcomes(sorted([*failures, *successes]))


def _merged(
    one: Mapping[_Key, Packed],
    other: Mapping[_Key, Packed],
    merge: Callable[[Packed, Packed], Packed],
    layout: struct.Struct,
) -> Mapping[_Key, Packed]:
    if not one and not other:
        # Most records lack some of these, and an empty mapping of each would take memory.
        return one
    both = {key: merge(one.get(key, b""), other.get(key, b"")) for key in {**one, **other}}
    if len(both) > MOST_PLACES:
        newest = sorted(both, key=lambda key: (layout.unpack(both[key][-layout.size :])[0], key))
        both = {key: both[key] for key in newest[-MOST_PLACES:]}
    return both


def _least(one: str, other: str) -> str:
    return min(filter(None, (one, other)), default="")


SHARDS: Final = 32
MOST_BYTES: Final = 700_000
"""Limit for one ConfigMap; beyond, classes of the home that takes the most are left out."""
_VERSION: Final = "1"
_NAME: Final = "program"
"""Older records held arguments under ``name``: it is not read, and so not written again."""


def shard_of(key: str) -> int:
    return zlib.crc32(key.encode()) % SHARDS


def name_of(shard: int) -> str:
    return f"{RUN_TIMES}-{shard}"


def read_shard(source: Mapping[str, Any]) -> Mapping[str, ClassRecord]:
    """Read classes and their records; lines that are damaged or of another version are skipped."""
    data = fields.texts(source, "data", "")
    if data.get("version") != _VERSION:
        return {}
    records = map(_read_line, data.get("classes", "").split("\n"))
    return dict(filter(None, records))


def config_map(shard: int, records: Mapping[str, ClassRecord]) -> Mapping[str, Any]:
    """Return the ConfigMap of one shard's records; without namespace and resourceVersion."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_of(shard), "labels": {RUN_TIMES_LABEL: RUN_TIMES_VALUE}},
        "data": {"version": _VERSION, "classes": _written(records)},
    }


def _written(records: Mapping[str, ClassRecord]) -> str:
    """Return one class a line, in the order of their keys: equal records are equal texts."""
    lines = {key: _line(key, record) for key, record in records.items()}
    sizes = {key: len(line.encode()) + 1 for key, line in lines.items()}
    for key in _too_many(sizes, records):
        del lines[key]
    return "\n".join(lines[key] for key in sorted(lines))


def _too_many(sizes: Mapping[str, int], records: Mapping[str, ClassRecord]) -> Iterator[str]:
    """Yield the classes for which there is no room."""
    over = sum(sizes.values()) - MOST_BYTES
    if over > 0:
        for key in crowded_out(sizes, records):
            yield key
            over -= sizes[key]
            if over <= 0:
                return


def _line(key: str, record: ClassRecord) -> str:
    outcomes = [[*place, _text(packed)] for place, packed in sorted(record.outcomes.items())]
    content = {
        "class": key,
        "coarse": record.coarse,
        _NAME: record.name,
        "runs": _texts(record.runs),
        "said": _texts(record.said),
        "failed": _texts(record.failed),
        "evicted": _texts(record.evicted),
        "outcomes": outcomes,
        "starts": _texts(record.starts),
        "dispatches": _texts(record.dispatches),
        "measured": _texts(record.measured),
        "served": _texts(record.served),
    }
    return json.dumps({name: value for name, value in content.items() if value}, ensure_ascii=False)


def _read_line(line: str) -> tuple[str, ClassRecord] | None:
    return attempted(lambda: _record(fields.from_json(line, "", longest=MOST_BYTES)))[0]


def _record(source: Mapping[str, Any]) -> tuple[str, ClassRecord]:
    return fields.text(source, "class", ""), ClassRecord(
        coarse=fields.text(source, "coarse", ""),
        name=fields.text(source, _NAME, ""),
        runs=_packed(fields.texts(source, "runs", "")),
        said=_packed(fields.texts(source, "said", "")),
        failed=_packed(fields.texts(source, "failed", "")),
        evicted=_packed(fields.texts(source, "evicted", "")),
        outcomes=_packed_outcomes(fields.sequence(source, "outcomes", "")),
        starts=_packed(fields.texts(source, "starts", "")),
        dispatches=_packed(fields.texts(source, "dispatches", "")),
        measured=_packed(fields.texts(source, "measured", ""), unpack_device_runs),
        served=_packed(fields.texts(source, "served", ""), unpack_points),
    )


def _packed(
    texts: Mapping[str, str], unpacked: Callable[[Packed], object] = unpack_runs
) -> Mapping[str, Packed]:
    by_place = {place: b64decode(text, validate=True) for place, text in texts.items()}
    for packed in by_place.values():
        unpacked(packed)
    return by_place


def _packed_outcomes(items: Iterable[Any]) -> Mapping[tuple[str, str], Packed]:
    by_option = {(str(policy), str(option)): b64decode(text) for policy, option, text in items}
    for packed in by_option.values():
        unpack_outcomes(packed)
    return by_option


def _texts(runs: Mapping[str, Packed]) -> Mapping[str, str]:
    return {flavors: _text(packed) for flavors, packed in sorted(runs.items())}


def _text(packed: Packed) -> str:
    return b64encode(packed).decode()
