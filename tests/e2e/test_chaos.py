"""Pending Jobs are moved to and fro while quotas, queues, webhook and controller change at random.

The controller moves those that it thinks are about to start; the test asks for moves as well, so
that there are many. `CHAOS_SEED` chooses what happens; the Jobs, and how long, depend on FULL.
"""

import contextlib
import os
import random
import re
import time
import urllib.request
from collections import Counter

import pytest

from hack import kwok, paper
from hack.api import ApiError
from tests.conftest import FULL
from tests.e2e import courses
from tests.e2e.decisions import applied_policy, decision_of, finish_time, queue_of
from tests.e2e.moving import hold
from tests.e2e.plane import has_condition

NAMES = paper.names_with("chaos", namespace="chaos")
SEED = int(os.environ.get("CHAOS_SEED", "1"))
PENDING, ACTS, FASTER = (200, 300, 2.0) if FULL else (30, 16, 5.0)
PAUSE_SECONDS = 1.5
MOST_ACTS = 10 * ACTS
"""On a busy machine it takes more until one was moved as often as it may be."""
RULES = {
    "after": "2s",
    "minimumGain": {"time": "1s", "percent": 1},
    "maxMoves": 3,
    "adopt": True,
}
MOVES_AT_ONCE = 10
MOVE_TO = "kueue-fallback.dev/move-to"
OUTCOMES = re.compile(r'_controller_moves_total\{outcome="(\w+)",policy="[^"]*"\} (\S+)')


@pytest.fixture(scope="module", autouse=True)
def policy(plane, webhook):
    """One that moves Jobs for little, those too that came while the webhook was down."""
    plane.client.apply(paper.namespace(NAMES))
    plane.client.apply_all(paper.queues(NAMES))
    policy = finish_time(NAMES, runTime=f"{paper.LIGHT_SECONDS / FASTER:.0f}s")
    policy["spec"]["reconsider"] = RULES
    # It could not change in Jobs that nobody has decided.
    del policy["spec"]["options"][1]["adaptation"]["env"]
    with applied_policy(plane.client, policy, NAMES):
        yield


class Chaos:
    """What happens to the queues and to us; everything by one seed."""

    def __init__(self, plane, webhook):
        self.plane, self.webhook = plane, webhook
        self.seed = random.Random(SEED)
        self.names = []
        """Of all Jobs."""
        self.most_moves = 0
        """Of one Job."""
        self.acts = [self.change_quotas] * 5 + [self.stop_a_queue] * 3 + [self.restart_webhook]
        if FULL:
            # Another one leads only after 12 seconds.
            self.acts.append(self.restart_controller)

    def act(self):
        self.move_some()
        self.seed.choice(self.acts)()

    def move_some(self):
        """Ask for moves as the controller does, of Jobs that may be moved once more."""
        found = courses.jobs(self.plane.client, NAMES.namespace, self.names)
        self.most_moves = max([self.most_moves, *map(moves_of, found.values())])
        movable = [
            job
            for _, job in sorted(found.items())
            if job["spec"].get("suspend") and moves_of(job) < RULES["maxMoves"]
        ]
        for job in self.seed.sample(movable, min(MOVES_AT_ONCE, len(movable))):
            other = "gpu" if queue_of(job) == NAMES.cpu_queue else "cpu"
            metadata = {"annotations": {MOVE_TO: other}}
            metadata["resourceVersion"] = job["metadata"]["resourceVersion"]
            name = job["metadata"]["name"]
            with contextlib.suppress(ApiError):
                # Refused where it has changed, or may not be moved any more.
                self.plane.client.patch(
                    "batch/v1", "Job", name, {"metadata": metadata}, namespace=NAMES.namespace
                )

    def change_quotas(self):
        gpu, cpu = self.seed.choice((0, 1, 2, 4, 8)), self.seed.choice((1, 3, 6, 9))
        courses.set_quotas(self.plane.client, NAMES, gpu=gpu, cpu=cpu)

    def stop_a_queue(self):
        """Stop one for a while; those that run are evicted now and then, and may be moved then."""
        queue = self.seed.choice((NAMES.gpu_cluster_queue, NAMES.cpu_cluster_queue))
        hold(self.plane.client, queue, self.seed.choice(("Hold", "Hold", "HoldAndDrain")))
        self.pause()
        hold(self.plane.client, queue, "None")

    def restart_webhook(self):
        self.webhook.kill()
        create_missing(self.plane.client, self.names, to=PENDING + 3)
        self.webhook.start()

    def restart_controller(self):
        name = self.webhook.controllers[0].name
        self.plane.kill(name)
        self.plane.start(name)

    def pause(self):
        """Let it last for a while, so that what happens next happens at any moment."""
        time.sleep(self.seed.uniform(0, 2 * PAUSE_SECONDS))

    def calm(self):
        """Let everything run, with room for all."""
        self.webhook.wait_until_ready()
        courses.set_quotas(self.plane.client, NAMES, gpu=PENDING, cpu=PENDING)


def test_every_job_completes_once_where_it_belongs_whatever_happens(plane, webhook):
    print(f"again: CHAOS_SEED={SEED} pytest tests/e2e/test_chaos.py")
    client, chaos = plane.client, Chaos(plane, webhook)
    for number in range(MOST_ACTS):
        if number >= ACTS and chaos.most_moves == RULES["maxMoves"]:
            break
        create_missing(client, chaos.names, to=PENDING)
        chaos.act()
        chaos.pause()
    chaos.calm()

    found = courses.wait_until_all_complete(client, NAMES, chaos.names)
    moves = [moves_of(job) for job in found.values()]
    print(f"{len(found)} Jobs, by moves {Counter(moves)}; {outcomes(webhook)}")
    assert courses.wrong(client, NAMES, chaos.names) == {}
    assert max(moves) == RULES["maxMoves"]


def moves_of(job):
    return (decision_of(job) or {}).get("moves", 0)


def create_missing(client, names, *, to):
    """Create as many Jobs as are missing to so many unfinished ones; add their names."""
    found = courses.jobs(client, NAMES.namespace, names)
    left = sum(not has_condition(job, "Complete") for job in found.values())
    new = [f"light-{len(names) + number}" for number in range(to - left)]
    client.create_all([job_named(name) for name in new])
    names += new


def job_named(name):
    """A Job whose pods take as long to start as the fastest do; once they run, nobody repairs."""
    job = paper.light_job(name, NAMES, faster=FASTER)
    job["spec"]["template"]["metadata"]["annotations"][kwok.STARTS_IN] = "3s"
    return job


def outcomes(webhook):
    """Read what became of moves, as far as this controller has seen it."""
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        return dict(OUTCOMES.findall(answer.read().decode()))
