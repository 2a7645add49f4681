"""The thread that strives for the Lease."""

import threading
import time

import pytest

from hack.waiting import WAIT_SECONDS
from tests.controller.objects import Objects
from webhook.api.kubernetes_api import Forbidden
from webhook.api.lease import Elector, Leadership

PLACE = "/apis/coordination.k8s.io/v1/namespaces/ours/leases/kueue-fallback-controller"


@pytest.fixture
def replica():
    """Make replicas on one API server; all of them end with the test."""
    made = []

    def make(server, identity="a"):
        elector = Elector(
            server, "ours", identity=identity, clock=time.monotonic, stamp=lambda: "now"
        )
        found = Replica(elector)
        made.append(found)
        return found

    yield make
    for each in made:
        each.leadership.stop()


class Replica:
    def __init__(self, elector):
        self.changed = threading.Event()
        self.lines = []
        self.leadership = Leadership(
            elector,
            on_change=self.changed.set,
            log=self.lines.append,
            uniform=lambda low, _: low,
        )


def holder(server):
    return server.held[PLACE]["spec"]["holderIdentity"]


def test_who_comes_to_lead_says_so_and_gives_the_lease_back_in_the_end(replica):
    server = Objects()
    found = replica(server)

    found.leadership.start()
    assert found.changed.wait(WAIT_SECONDS)
    led, held = found.leadership.is_leader(), holder(server)
    found.leadership.stop()

    assert (led, held) == (True, "a")
    assert (found.leadership.is_leader(), holder(server)) == (False, "")


def test_the_next_one_leads_soon_after(replica):
    server = Objects()
    first, second = replica(server), replica(server, "b")
    first.leadership.start()
    assert first.changed.wait(WAIT_SECONDS)
    second.leadership.start()

    first.leadership.stop()

    assert second.changed.wait(WAIT_SECONDS)
    assert second.leadership.is_leader()


def test_what_goes_wrong_is_logged_once_and_stands_in_the_notice(replica):
    server = Objects()
    refused = Forbidden("leases", "no right")
    server.refusal = refused
    found = replica(server)

    found.leadership.start()
    assert found.changed.wait(WAIT_SECONDS)

    assert found.lines == [
        "the Lease cannot be held: no right",
        "the Lease can be held again",
    ]
    assert found.leadership.notice() == ""
