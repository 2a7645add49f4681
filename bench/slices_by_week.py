"""Replays weeks of a trace of GPU pods under what `report --slices` advised the week before.

`python -m bench.slices_by_week openb_pod_list_gpushare100.csv --gpus 20 --whole 9`; the trace
(openb, cluster-trace-gpu-v2023 of alibaba/clusterdata) is not part of this project. What a pod
needs is its gpu_milli, as in examples/scenarios/slices.yaml.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from typing import Final

from webhook.cost.geometries import WHOLE, geometry
from webhook.hindsight.repartition import DeviceDemand, advise, waits_of
from webhook.model.costs.device_table import DEVICES

A100: Final = DEVICES["NVIDIA-A100-SXM4-80GB"]
BALANCED: Final = geometry(
    {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-2g.20gb": 1, "nvidia.com/mig-3g.40gb": 1}
)
GIB: Final = 1 << 30
NEEDS: Final = ((142, 9 * GIB), (285, 17 * GIB), (571, 35 * GIB))
"""Up to so many thousandths of a GPU to bytes; who asks for more needs a whole one."""
WEEK: Final = 7 * 86_400.0
LEAST: Final = 50
"""Pods in a week that tells anything."""


def demands(path: Path) -> list[DeviceDemand]:
    """Read the pods of one GPU, or of a part of one, that were scheduled and ended."""
    found = []
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["num_gpu"] != "1" or not row["scheduled_time"] or not row["deletion_time"]:
                continue
            asked = int(row["gpu_milli"])
            need = next((memory for most, memory in NEEDS if asked <= most), None)
            seconds = float(row["deletion_time"]) - float(row["scheduled_time"])
            found.append(DeviceDemand(float(row["creation_time"]), seconds, need))
    return sorted(found, key=lambda demand: demand.rank)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gpus", type=int, default=20)
    parser.add_argument("--whole", type=int, default=9, help="so many of them; the rest is cut")
    given = parser.parse_args()
    before = {WHOLE: given.whole, BALANCED: given.gpus - given.whole}
    weeks = defaultdict(list)
    every = demands(given.trace)
    for demand in every:
        weeks[int((demand.at - every[0].at) // WEEK)].append(demand)
    told = [number for number in sorted(weeks) if len(weeks[number]) >= LEAST]
    print("WEEK  JOBS  WAITED  WITH ADVICE  NEXT WEEK  WITH ADVICE  WHY NOT")
    for count, number in enumerate(told[:-1], 1):
        advice = advise(A100, before, weeks[number])
        then = weeks[number + 1]
        now, later = waits_of(A100, before, then), waits_of(A100, advice.after, then)
        print(
            f"{count:4}  {advice.jobs:4}  {advice.now.waited:6.0f}  {advice.then.waited:11.0f}"
            f"  {now.waited:9.0f}  {later.waited:11.0f}  {advice.why_not}"
        )


if __name__ == "__main__":
    main()
