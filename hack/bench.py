"""Measure the webhook beside 20,000 pending Workloads: start, handler time, memory.

usage: python -m hack.bench [-o json] [--workloads N] [--queues N] [--rate N] [--seconds N]

On a control plane of its own: the real API server, Kueue only to make the queues active. Exits
with 1 when a target is missed. Every figure is wall time, so what else runs on the machine counts:
the load average is printed beside them.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack import bench_objects, bodies, load, meters, tools
from hack.bench_objects import Events
from hack.controlplane import ControlPlane
from hack.install import NAMESPACE, SERVICE, Installation

READY_SECONDS: Final = 20.0
HANDLER_MILLISECONDS: Final = 2.0
MEMORY_MEGABYTES: Final = 300.0
EVENTS_PER_SECOND: Final = 50.0

Figures = dict[str, Any]


def main() -> None:
    given = _arguments()
    state = Path(tempfile.mkdtemp(prefix="kueue-fallback-bench-"))
    plane: ControlPlane | None = None
    try:
        _say("starting the control plane")
        plane = ControlPlane(state, report=_say)
        with plane:
            figures = _measure(plane, given)
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing is left running.")
    finally:
        shutil.rmtree(state, ignore_errors=True)
    targets = _targets(figures)
    if given.output == "json":
        print(json.dumps({"figures": figures, "targets": targets}, indent=1))
    else:
        print("\n".join(_table(figures, targets)))
    sys.exit(0 if all(target["met"] for target in targets) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--workloads", type=int, default=20_000)
    parser.add_argument("--queues", type=int, default=200)
    parser.add_argument("--rate", type=float, default=200.0, help="reviews a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of reviews, twice")
    return parser.parse_args()


def _measure(plane: ControlPlane, given: argparse.Namespace) -> Figures:
    with Installation(plane) as installation:
        bench_objects.create_queues(plane, given.queues)
        _say(f"{given.queues} ClusterQueues are active; creating {given.workloads} Workloads")
        creating = bench_objects.create_workloads(plane, given.workloads, given.queues, _say)
        figures: Figures = {
            "workloads": given.workloads,
            "clusterQueues": given.queues,
            "creatingSeconds": round(creating, 1),
            "loadAverage": os.getloadavg()[0],
        }
        _say("starting the webhook")
        figures |= _start(installation)
        _say(f"{given.rate:.0f} reviews a second for {given.seconds:.0f} s, on a quiet cluster")
        figures["quiet"] = _reviews(installation, given)
        _say(f"the same beside {EVENTS_PER_SECOND:.0f} Workload events a second")
        with Events(plane, EVENTS_PER_SECOND, given.workloads) as events:
            figures["busy"] = _reviews(installation, given)
        figures["busy"]["events"] = events.done
        figures |= {
            "memoryMegabytes": _memory(installation),
            "loadAverageAfter": os.getloadavg()[0],
        }
        _say("the handler alone, in this process")
        figures["alone"] = meters.handler_alone(str(plane.kubeconfig), bench_objects.NAMES)
    return figures


def _start(installation: Installation) -> Figures:
    installation.stop()
    installation.plane.kill("controller")
    started = time.monotonic()
    installation.start()
    return {
        "readySeconds": round(time.monotonic() - started, 2),
        "cpuSecondsToReady": meters.cpu_seconds(_pid(installation)),
    }


def _memory(installation: Installation) -> dict[str, float]:
    return meters.memory_megabytes(_pid(installation))


def _pid(installation: Installation) -> int:
    return installation.plane.processes.pid(installation.replicas[0].name)


def _reviews(installation: Installation, given: argparse.Namespace) -> Figures:
    replica = installation.replicas[0]
    before = meters.reviews(replica.metrics)
    flags = (f"-rate={given.rate}", f"-seconds={given.seconds}", "-warm-up=50")
    answered = load.reviews(_webhook(installation), *flags)
    return {**answered, "handler": meters.difference(before, meters.reviews(replica.metrics))}


def _webhook(installation: Installation) -> load.Webhook:
    bodies_file = installation.plane.state / "reviews.jsonl"
    bodies_file.write_text(bodies.review(bench_objects.NAMES))
    return load.Webhook(
        port=installation.replicas[0].listen,
        authority=installation.ca_certificate,
        server_name=f"{SERVICE}.{NAMESPACE}.svc",
        bodies=bodies_file,
    )


def _targets(figures: Figures) -> list[dict[str, Any]]:
    slowest = max(figures[phase]["handler"]["p99"] for phase in ("quiet", "busy"))
    memory = sum(figures["memoryMegabytes"].values())
    return [
        _target("ready, seconds", figures["readySeconds"], READY_SECONDS),
        _target("handler p99, milliseconds", slowest, HANDLER_MILLISECONDS),
        _target("memory, megabytes", round(memory, 1), MEMORY_MEGABYTES),
    ]


def _target(name: str, value: float, below: float) -> dict[str, Any]:
    return {"name": name, "value": value, "below": below, "met": value < below}


def _table(figures: Figures, targets: Sequence[Mapping[str, Any]]) -> list[str]:
    before, after = figures["loadAverage"], figures["loadAverageAfter"]
    lines = [
        f"{figures['workloads']} pending Workloads in {figures['clusterQueues']} ClusterQueues",
        f"load average {before:.1f} before, {after:.1f} after, on {os.cpu_count()} CPUs",
        "",
        f"{'milliseconds':<34}{'p50':>9}{'p99':>9}{'max':>9}",
    ]
    for name, row in _rows(figures):
        worst = f"{row['max']:9.2f}" if "max" in row else ""
        lines.append(f"{name:<34}{row['p50']:9.2f}{row['p99']:9.2f}{worst}")
    lines.append("")
    for name, megabytes in figures["memoryMegabytes"].items():
        seconds = figures["cpuSecondsToReady"].get(name, 0.0)
        lines.append(f"{name}: {megabytes} MB, {seconds} s of CPU until ready")
    lines.append("")
    for target in targets:
        verdict = "met" if target["met"] else "MISSED"
        lines.append(
            f"{target['name']:<34}{target['value']:9.2f}  < {target['below']:g}  {verdict}"
        )
    return lines


def _rows(figures: Figures) -> list[tuple[str, Mapping[str, float]]]:
    rows: list[tuple[str, Mapping[str, float]]] = []
    for phase, words in (("quiet", "quiet"), ("busy", f"{EVENTS_PER_SECOND:.0f} events/s")):
        found = figures[phase]
        rows += [
            (f"handler, {words}", found["handler"]),
            (f"client, {words}", found["latency"]),
            (f"client since its moment, {words}", found["sinceMoment"]),
        ]
    alone = figures["alone"]
    return [*rows, ("alone, wall", alone["wall"]), ("alone, CPU", alone["cpu"])]


def _say(text: str) -> None:
    """Show progress apart from the result."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    tools.ensure()
    load.program()
    main()
