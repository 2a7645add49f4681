"""The webhook beside 20,000 pending Workloads: start, handler time, memory."""

import os
import time
from collections.abc import Callable
from typing import Final

from bench import objects
from bench.report import Figures, Scale, Target, table
from hack import bodies, load, meters
from hack.install import NAMESPACE, SERVICE, Installation

READY_SECONDS: Final = 20.0
HANDLER_MILLISECONDS: Final = 2.0
MEMORY_MEGABYTES: Final = 300.0
EVENTS_PER_SECOND: Final = 50.0
HEADER: Final = ("milliseconds", "reviews", "errors", "patched", "p50", "p99", "max")

Say = Callable[[str], None]


def fill(installation: Installation, scale: Scale, say: Say) -> Figures:
    """Create the queues and the pending Workloads; Kueue does not run afterwards."""
    plane = installation.plane
    objects.create_queues(plane, scale.queues)
    say(f"{scale.queues} ClusterQueues are active; creating {scale.workloads} Workloads")
    seconds = objects.create_workloads(plane, scale.workloads, scale.queues, say)
    return {
        "workloads": scale.workloads,
        "clusterQueues": scale.queues,
        "creatingSeconds": round(seconds, 1),
    }


def measure(installation: Installation, scale: Scale, say: Say) -> Figures:
    plane = installation.plane
    figures: Figures = {"loadAverage": os.getloadavg()[0]}
    say("starting the webhook")
    figures |= _start(installation)
    say(f"{scale.rate:.0f} reviews a second for {scale.seconds:.0f} s, on a quiet cluster")
    figures["quiet"] = _at_rate(installation, scale)
    say(f"the same beside {EVENTS_PER_SECOND:.0f} Workload events a second")
    with objects.Events(
        plane, EVENTS_PER_SECOND, workloads=scale.workloads, queues=scale.queues
    ) as events:
        figures["busy"] = _at_rate(installation, scale)
    figures["busy"]["events"] = events.done
    figures["memoryMegabytes"] = meters.memory_megabytes(_pid(installation))
    figures["loadAverageAfter"] = os.getloadavg()[0]
    say("the handler alone, in this process")
    figures["alone"] = meters.handler_alone(str(plane.kubeconfig), objects.NAMES)
    return figures


def _at_rate(installation: Installation, scale: Scale) -> Figures:
    """Send reviews at a rate; return what the load program and the server's histogram saw."""
    path = installation.plane.state / "reviews.jsonl"
    path.write_text(bodies.review(objects.NAMES))
    replica = installation.replicas[0]
    target = load.Webhook(
        port=replica.listen,
        authority=installation.ca_certificate,
        server_name=f"{SERVICE}.{NAMESPACE}.svc",
        bodies=path,
    )
    before = meters.reviews(replica.metrics)
    flags = (f"-rate={scale.rate}", f"-seconds={scale.seconds}", "-warm-up=50")
    answered = load.reviews(target, *flags)
    return {**answered, "handler": meters.difference(before, meters.reviews(replica.metrics))}


def _start(installation: Installation) -> Figures:
    installation.stop()
    installation.plane.kill("controller")
    started = time.monotonic()
    installation.start()
    return {
        "readySeconds": round(time.monotonic() - started, 2),
        "cpuSecondsToReady": meters.cpu_seconds(_pid(installation)),
    }


def _pid(installation: Installation) -> int:
    return installation.plane.processes.pid(installation.replicas[0].name)


def targets(figures: Figures) -> list[Target]:
    slowest = max(figures[phase]["handler"]["p99"] for phase in ("quiet", "busy"))
    # How much of it the size of the state costs; the rest is the rate and other load.
    alone = figures["alone"]["wall"]["p99"]
    memory = sum(figures["memoryMegabytes"].values())
    return [
        Target(name="ready, seconds", value=figures["readySeconds"], limit=READY_SECONDS),
        Target(name="handler p99, ms", value=slowest, limit=HANDLER_MILLISECONDS),
        Target(name="handler p99, alone, ms", value=alone, limit=HANDLER_MILLISECONDS),
        Target(name="memory, MB", value=round(memory, 1), limit=MEMORY_MEGABYTES),
    ]


def lines(figures: Figures) -> list[str]:
    alone = figures["alone"]
    before, after = figures["loadAverage"], figures["loadAverageAfter"]
    found = [
        *_rows("quiet", figures["quiet"]),
        *_rows(f"{EVENTS_PER_SECOND:.0f} events/s", figures["busy"]),
        *(
            [f"handler alone, {what}", "", "", "", *(alone[key][q] for q in ("p50", "p99", "max"))]
            for key, what in (("wall", "wall time"), ("cpu", "CPU time"))
        ),
    ]
    memory = [
        [name, megabytes, figures["cpuSecondsToReady"].get(name, 0.0)]
        for name, megabytes in figures["memoryMegabytes"].items()
    ]
    return [
        f"load average {before:.1f} before, {after:.1f} after",
        *table(HEADER, found),
        "",
        *table(("process", "MB", "CPU s until ready"), memory),
    ]


def _rows(words: str, found: Figures) -> list[list[object]]:
    errors, patched = sum(found["errors"].values()), found["notes"].get("patched", 0)
    handler, client = found["handler"], found["latency"]
    return [
        [f"handler, {words}", "", "", "", handler["p50"], handler["p99"], ""],
        [
            f"client, {words}",
            *(found["calls"], errors, patched),
            *(client["p50"], client["p99"], client["max"]),
        ],
    ]
