"""Moves as the server alone sees them: reviews of updates that it edits, and changed Workloads.

Beside an API server each move costs API server, Kueue and etcd CPU time, too, and on one machine
they take it from the server: this tells the server's own part.
"""

import base64
import copy
import http.client
import itertools
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import jsonpatch

from bench import moves, objects, reviews
from bench.report import Figures, Scale
from bench.reviews import Served
from bench.serving import Meanwhile, Say
from hack import bodies, load
from hack.api import Object
from hack.embedded.api_server import EmbeddedServer
from webhook.model.job import MOVE_TO

EVENTS_A_MOVE: Final = 3
"""Kueue's writes of a Workload that is moved, at least: its queue, what it asks for, its status."""
_A_NUMBER: Final = "135792468013"


def measure(
    folder: Path, cluster: EmbeddedServer, served: Served, scale: Scale, say: Say
) -> Figures:
    """Measure as ``moves`` does, with figures of the same form."""
    path = folder / "moves.jsonl"
    path.write_text("\n".join(map(json.dumps, reviews_of_moves(_asks(served)))))
    target = load.Webhook(
        port=served.target.port,
        authority=served.target.authority,
        server_name=served.target.server_name,
        bodies=path,
    )
    rounds = []
    for number in range(scale.rounds):
        say(f"reviews beside moves, round {number + 1} of {scale.rounds}")
        found: Figures = {}
        for phase in moves.PHASES[:: -1 if number % 2 else 1]:
            found[phase] = _phase(phase, cluster, served, target, scale)
        rounds.append(found)
    return {"rounds": rounds}


def _phase(
    phase: str, cluster: EmbeddedServer, served: Served, target: load.Webhook, scale: Scale
) -> Figures:
    if phase != "moving":
        return {**reviews.measured(served, scale), "movesASecond": 0.0}
    moved: list[Figures] = []
    flags = (f"-rate={moves.MOVES_A_SECOND}", f"-seconds={scale.seconds}")
    mover = threading.Thread(target=lambda: moved.append(load.reviews(target, *flags)))
    every = 1 / (EVENTS_A_MOVE * moves.MOVES_A_SECOND)
    with Meanwhile(_Changes(cluster, scale).change, every=every):
        mover.start()
        found = reviews.measured(served, scale)
        mover.join()
    (answers,) = moved
    made = answers["notes"].get("patched", 0)
    errors = {
        kind: found["errors"].get(kind, 0) + answers["errors"].get(kind, 0)
        for kind in {*found["errors"], *answers["errors"]}
    }
    return {**found, "errors": errors, "movesASecond": round(made / scale.seconds, 1)}


class _Changes:
    """Says of Workloads that wait, one after the other, that they are in the other queue now."""

    def __init__(self, cluster: EmbeddedServer, scale: Scale) -> None:
        running = min(scale.workloads - 1, objects.GPUS * scale.queues)
        self._cluster, self._names = cluster, objects.queue_names(scale.queues)
        self._turns = itertools.cycle(range(running, scale.workloads))
        self._queues = itertools.cycle((objects.NAMES.gpu_queue, objects.NAMES.cpu_queue))

    def change(self) -> None:
        item = objects.workload(next(self._turns), self._names)
        item["metadata"]["creationTimestamp"] = objects.CREATED
        item["spec"]["queueName"] = next(self._queues)
        self._cluster.apply(item)


def reviews_of_moves(ask: Callable[[Object], Object]) -> list[Object]:
    """Have one Job created, and moved back and forth; return what asks for both moves.

    *ask* has a review answered; in what it returns, the review's number is a place for others.
    """
    sent = json.loads(bodies.review(objects.NAMES))
    there = _moving(sent, _stored(sent, ask), "gpu")
    return [there, _moving(sent, _stored(there, ask), "cpu")]


def _moving(sent: Object, stored: Object, option: str) -> Object:
    """Return the review of an update that asks for nothing but a move."""
    asking = copy.deepcopy(stored)
    asking["metadata"]["annotations"][MOVE_TO] = option
    request = {"operation": "UPDATE", "object": asking, "oldObject": stored}
    return {**sent, "request": {**sent["request"], **request}}


def _stored(review: Object, ask: Callable[[Object], Object]) -> Object:
    """Return what an API server would store of a reviewed Job once Kueue has suspended it."""
    patch = json.loads(base64.b64decode(ask(review)["response"]["patch"]))
    job: Object = jsonpatch.apply_patch(review["request"]["object"], patch)
    job["metadata"]["creationTimestamp"] = objects.CREATED
    job["spec"]["suspend"] = True
    job["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
    return job


def _asks(served: Served) -> Callable[[Object], Object]:
    target = served.target
    context = ssl.create_default_context(cafile=str(target.authority))
    connection = http.client.HTTPSConnection(
        target.server_name, target.port, timeout=10, context=context
    )

    def ask(review: Object) -> Object:
        text = json.dumps(review).replace(bodies.NUMBER, _A_NUMBER)
        connection.request("POST", "/mutate?timeout=2s", body=text)
        answer: Object = json.load(connection.getresponse())
        patch = base64.b64decode(answer["response"]["patch"]).decode()
        patch = patch.replace(_A_NUMBER, bodies.NUMBER)
        answer["response"]["patch"] = base64.b64encode(patch.encode()).decode()
        return answer

    return ask
