"""The server, its observer and the load program, and no API server that wants the same CPUs.

On a cluster the API server has a machine of its own. Here a cluster is played, with as many
Workloads, so that what is measured of the server is the server's own.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import moves, moves_alone, objects, played, serving
from bench.report import Figures, Scale, Target
from bench.serving import Say
from hack import bodies, kueue, load, tools
from hack.api import Object
from hack.embedded.api_server import EmbeddedServer


def measure(scale: Scale, say: Say) -> Figures:
    load.program()
    with (
        tempfile.TemporaryDirectory(prefix="kueue-fallback-") as name,
        EmbeddedServer(items(scale), gives_way=True) as cluster,
    ):
        folder = Path(name)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(cluster.kubeconfig()))
        say(f"starting the webhook beside {scale.workloads} played Workloads")
        with played.served(folder, kubeconfig, bodies.review(objects.NAMES)) as served:
            found = serving.three_phases(served, cluster.forget, scale, say)
            return {**found, "moves": moves_alone.measure(folder, cluster, served, scale, say)}


def items(scale: Scale) -> Iterator[Object]:
    """Yield what the other sections have on their cluster; the first Workloads run."""
    *others, policy = objects.on_cluster(scale.queues)
    policy["spec"]["reconsider"] = moves.RECONSIDER
    yield from kueue.played(tools.kueue_version())
    yield from (*others, policy)
    names = objects.queue_names(scale.queues)
    running = min(scale.workloads, objects.GPUS * scale.queues)
    for number in range(scale.workloads):
        item = objects.workload(number, names)
        item["metadata"]["creationTimestamp"] = objects.CREATED
        yield {**item, "status": objects.running(number, names)} if number < running else item


def targets(figures: Figures) -> list[Target]:
    return [*serving.latency_targets(figures), *moves.targets(figures["moves"])]


def lines(figures: Figures) -> list[str]:
    return [*serving.latency_lines(figures), "", *moves.lines(figures["moves"])]
