"""From the start of the server's process until it decides beside 20,000 played Workloads."""

import json
import os
import tempfile
from pathlib import Path
from typing import Final

from bench import alone, objects, played
from bench.report import Figures, Scale, Target, table
from bench.serving import Say
from hack import bodies, load, meters
from hack.embedded.api_server import EmbeddedServer

READY_SECONDS: Final = 6.0
MEMORY_MEGABYTES: Final = 250.0


def measure(scale: Scale, say: Say) -> Figures:
    load.program()
    with (
        tempfile.TemporaryDirectory(prefix="kueue-fallback-") as name,
        EmbeddedServer(alone.items(scale)) as cluster,
    ):
        folder = Path(name)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(cluster.kubeconfig()))
        say(f"starting the webhook beside {scale.workloads} played Workloads")
        load_average = os.getloadavg()[0]
        with played.served(folder, kubeconfig, bodies.review(objects.NAMES)) as served:
            return {
                "loadAverage": load_average,
                "readySeconds": round(meters.age_seconds(served.pid), 2),
                "cpuSecondsToReady": meters.cpu_seconds(served.pid),
                "memoryMegabytes": meters.memory_megabytes(served.pid),
            }


def targets(figures: Figures) -> list[Target]:
    memory = round(sum(figures["memoryMegabytes"].values()), 1)
    return [
        Target(name="ready, seconds", value=figures["readySeconds"], limit=READY_SECONDS),
        Target(name="memory, MB", value=memory, limit=MEMORY_MEGABYTES),
    ]


def lines(figures: Figures) -> list[str]:
    rows = [
        [name, megabytes, figures["cpuSecondsToReady"].get(name, 0.0)]
        for name, megabytes in figures["memoryMegabytes"].items()
    ]
    return [
        f"load average {figures['loadAverage']:.1f} before",
        *table(("process", "MB", "CPU s until ready"), rows),
    ]
