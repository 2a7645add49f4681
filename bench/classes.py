"""Measure what it costs to remember many classes of Jobs: memory, and seconds to learn them.

usage: python -m bench.classes [CLASSES]
"""

import json
import math
import random
import resource
import sys
import time
import tracemalloc
from typing import Final

from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import (
    MOST_RUNS,
    SHARDS,
    ClassRecord,
    Run,
    config_map,
    pack_outcomes,
    pack_runs,
    shard_of,
)

CLASSES: Final = 10_000
FLAVORS: Final = ("t4", "plain")
_MEGABYTE: Final = 1e6


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CLASSES
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    began = time.process_time()
    runs = filled(count)
    runs.estimates(None)
    taken = time.process_time() - began
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {
        "classes": count,
        "runs": count * len(FLAVORS) * MOST_RUNS,
        "heldMegabytes": round(held / _MEGABYTE, 1),
        "mostResidentMegabytes": round((after - before) * 1024 / _MEGABYTE, 1),
        "tracedCpuSeconds": round(taken, 1),
        "largestConfigMapBytes": max(map(len, texts(runs))),
    }
    print(json.dumps(figures, indent=2))


def filled(count: int) -> RunTimeLearner:
    """Learn of as many classes as there may be, each with all the runs that are kept of it."""
    chance = random.Random(1)  # noqa: S311 - nothing secret
    runs = RunTimeLearner(most=max(count, 1))
    for number in range(count):
        median = chance.uniform(10, 5000)
        packed = {flavors: _runs(chance, median, number) for flavors in FLAVORS}
        outcome = Run(1_795_000_000 + number, number & 0xFFFF, generation=1)
        record = ClassRecord(
            coarse=f"~{number // 4:016x}",
            name=f"image-{number} python train.py --seed {number}",
            runs=packed,
            outcomes={("light", flavors): pack_outcomes([outcome]) for flavors in FLAVORS},
        )
        runs.merge(f"{number:016x}", record)
    return runs


def _runs(chance: random.Random, median: float, number: int) -> bytes:
    return pack_runs(
        Run(1_795_000_000 + at * 60 + number, at, round(median * math.exp(chance.gauss(0, 0.5))))
        for at in range(MOST_RUNS)
    )


def texts(runs: RunTimeLearner) -> list[str]:
    shards: list[dict[str, ClassRecord]] = [{} for _ in range(SHARDS)]
    for key, record in runs.records.items():
        shards[shard_of(key)][key] = record
    return [
        str(config_map(number, records)["data"]["classes"]) for number, records in enumerate(shards)
    ]


if __name__ == "__main__":
    main()
