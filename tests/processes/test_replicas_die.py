"""Replicas die under load: creations go on, and decisions with those who live."""

import contextlib
import re
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack import paper
from hack.install import WAITED_FOR, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, decision_of, fill, probe, queue_of

NAMES = paper.names_with("die", namespace="default")
AT_ONCE = 4
SOME = 20
CREATES = re.compile(r'_reviews_total\{[^}]*operation="CREATE"[^}]*\} (\S+)')


@pytest.fixture(scope="module")
def installed(own_plane):
    """Two replicas behind one address; a light Job is sent to CPU."""
    own_plane.client.apply_all(paper.queues(NAMES))
    with (
        Installation(
            own_plane, replicas=2, balanced="connections", chart_values=WAITED_FOR
        ) as found,
        applied_policy(own_plane.client, paper.policy(NAMES), NAMES),
    ):
        fill(own_plane, NAMES, gpu=14)
        wait_until_decided(found)
        yield found


@contextlib.contextmanager
def creating(installed):
    """Create Jobs by dry run until the end of the block; yields what they were admitted as."""
    created, ended = [], threading.Event()

    def create():
        while not ended.is_set():
            job = paper.light_job("load", NAMES)
            created.append(installed.plane.client.create(job, dry_run=True))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        creators = [pool.submit(create) for _ in range(AT_ONCE)]
        try:
            yield created
        finally:
            ended.set()
        for creator in creators:
            creator.result()


def reviews_of(replica):
    url = f"http://127.0.0.1:{replica.metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        return sum(map(float, CREATES.findall(answer.read().decode())))


def wait_until_decided(installed):
    for replica in installed.replicas:
        wait_for(replica.is_ready, f"{replica.name} is ready")
    wait_for(
        lambda: (probe(installed.plane.client, NAMES) or {}).get("option") == "cpu",
        "decided again",
    )


def test_one_of_two_replicas_killed_fails_no_create_and_decisions_go_on(installed):
    first, second = installed.replicas
    before = {replica.name: reviews_of(replica) for replica in installed.replicas}

    def asked(replica):
        return reviews_of(replica) - before[replica.name]

    with creating(installed) as created:
        wait_for(lambda: asked(first) + asked(second) > 2 * SOME, "some were reviewed")
        # The API server may keep to one connection, and so to one replica: that one dies.
        killed = 0 if asked(first) > asked(second) else 1
        living = installed.replicas[1 - killed]
        installed.kill(killed)
        reviewed = reviews_of(living)
        wait_for(lambda: reviews_of(living) > reviewed + SOME, "the other one decides")

    undecided = [job for job in created if decision_of(job) is None]
    # What was on its way to the dead one passed as submitted.
    assert len(undecided) <= AT_ONCE
    installed.start(killed)
    wait_until_decided(installed)


def test_with_both_replicas_dead_every_job_is_created_as_submitted(installed):
    installed.kill(0)
    installed.kill(1)
    job = installed.plane.client.create(paper.light_job("alone", NAMES), dry_run=True)
    installed.start(0)
    installed.start(1)

    assert (queue_of(job), decision_of(job)) == (NAMES.gpu_queue, None)
    wait_until_decided(installed)
