"""What a review of a Job costs whose template was seen before, in calls, which no machine changes.

Most Jobs come from few templates (docs/decisions/0007), so what follows from template and policy
alone is worked out once.
"""

import sys
import time

from hack import bodies, paper
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.admission.review import read_review
from webhook.flow.create import Rules
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics
from webhook.state.pipe import Update, changes
from webhook.state.snapshot import Snapshot
from webhook.state.snapshot_file import read_snapshot

RESEARCH = paper.Names(namespace="research")
"""Whose queues the saved state has."""
MOST_CALLS = 690
"""663 are made, some 90 of them by jsonpatch as it proves that the patch applies."""


def calls_of(action):
    """Count the calls of Python functions that *action* makes, those of libraries included."""
    calls = 0

    def profile(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def read(number):
    return read_review(bodies.review(RESEARCH, f"{number:012d}").encode())


def test_a_job_from_a_template_seen_before_takes_few_calls():
    snapshot = read_snapshot("examples/snapshot.json", 0.0, time.time())
    handler = Handler(Rules(), Metrics(), clock=lambda: 0.0)
    handler.update(Update(changed=changes(Snapshot(), snapshot), synced=True))
    # The first ones fill the queue that is free, so that later ones are sent elsewhere.
    before = [handler.admit(read(number)) for number in range(10)]
    again = read(len(before))

    calls = calls_of(lambda: handler.admit(again))

    assert all(verdict.patch for verdict in before)
    assert calls <= MOST_CALLS


def adapted(server, name):
    server.create(light_job(name))
    return server.considered[-1].outcome.decision.options[1].job.pod_sets


def test_what_an_option_makes_of_a_template_is_worked_out_once():
    server = Server(paper_snapshot())

    first, again = adapted(server, "first"), adapted(server, "again")

    assert first is again


def test_another_policy_of_the_same_name_makes_its_own_of_a_template_seen_before():
    server = Server(paper_snapshot())
    first = adapted(server, "first")

    server.show(paper_snapshot(generation=2))
    again = adapted(server, "again")

    assert first is not again
    assert first == again
