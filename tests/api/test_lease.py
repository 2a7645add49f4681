"""One candidate at a time, against an API server that holds objects."""

import pytest

from tests.controller.objects import Objects
from webhook.api import lease
from webhook.api.kubernetes_api import Forbidden, Refused, Unreachable
from webhook.api.lease import GIVE_UP_SECONDS, LEASE_SECONDS, RENEW_SECONDS, STEP_SECONDS

PLACE = "/apis/coordination.k8s.io/v1/namespaces/ours/leases/kueue-fallback-controller"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def stamp(self):
        return f"at {self.now}"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server():
    return Objects()


@pytest.fixture
def candidate(server, clock):
    def make(identity):
        return lease.Elector(server, "ours", identity=identity, clock=clock, stamp=clock.stamp)

    return make


def spec(server):
    return server.held[PLACE]["spec"]


def test_the_first_makes_the_lease_and_leads(server, candidate):
    first = candidate("a")

    wait = first.step()

    assert (wait, first.term()) == (RENEW_SECONDS, 1)
    assert server.held[PLACE]["kind"] == "Lease"
    assert spec(server) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": LEASE_SECONDS,
        "acquireTime": "at 1000.0",
        "renewTime": "at 1000.0",
        "leaseTransitions": 0,
    }


def test_a_renewal_changes_when_and_nothing_else(server, candidate, clock):
    first = candidate("a")
    first.step()
    server.held[PLACE]["metadata"]["labels"] = {"kept": "yes"}
    before = spec(server)
    clock.now += RENEW_SECONDS

    first.step()

    assert spec(server) == {**before, "renewTime": "at 1003.0"}
    assert server.held[PLACE]["metadata"]["labels"] == {"kept": "yes"}
    assert first.term() == 1


@pytest.mark.parametrize(("said", "lasts"), [(30, 30.0), (1, LEASE_SECONDS)])
def test_the_lease_lasts_as_long_as_its_holder_said_if_not_less(
    server, candidate, clock, said, lasts
):
    candidate("a").step()
    spec(server)["leaseDurationSeconds"] = said
    second = candidate("b")
    second.step()

    clock.now += lasts - 0.1
    second.step()

    assert second.term() == 0


def test_nobody_gives_back_what_another_holds(server, candidate, clock):
    first, second = candidate("a"), candidate("b")
    first.step()
    second.step()
    clock.now += LEASE_SECONDS
    second.step()

    first.resign()

    assert spec(server)["holderIdentity"] == "b"


def test_who_cannot_renew_leads_no_more_and_then_leads_again(server, candidate, clock):
    first = candidate("a")
    first.step()
    terms = []
    for _ in range(2):
        server.refusal = Unreachable("away")
        clock.now += GIVE_UP_SECONDS / 2
        assert first.step() == STEP_SECONDS
        terms.append(first.term())
    trouble = first.trouble

    first.step()

    assert (terms, trouble) == ([1, 0], "away")
    assert (first.term(), first.trouble) == (2, "")
    assert spec(server)["leaseTransitions"] == 0


@pytest.mark.parametrize(("given_to", "term"), [("b", 0), ("", 2)])
def test_whom_somebody_took_the_lease_from_leads_no_more(server, candidate, given_to, term):
    first = candidate("a")
    first.step()
    server.put(PLACE, {**server.get(PLACE), "spec": {"holderIdentity": given_to}})

    first.step()

    assert first.term() == term


def test_leadership_is_counted_from_before_the_claim_was_sent(server, candidate, clock):
    first, post = candidate("a"), server.post

    def slow(*arguments):
        clock.now += 3.0
        return post(*arguments)

    server.post = slow
    first.step()
    clock.now += GIVE_UP_SECONDS - 3.0 - 0.1
    before = first.term()
    clock.now += 0.1

    assert (before, first.term()) == (1, 0)


@pytest.mark.parametrize("held", [True, False], ids=["update", "create"])
def test_of_two_at_once_the_second_has_lost_and_complains_of_nothing(server, candidate, held):
    if held:
        candidate("before").step()
        spec(server)["holderIdentity"] = ""
    first, second = candidate("a"), candidate("b")
    get = server.get

    def overtaken(path):
        server.get = get
        try:
            return get(path)
        finally:
            first.step()

    server.get = overtaken
    wait = second.step()

    assert (first.term(), second.term()) == (1, 0)
    assert (wait, second.trouble) == (STEP_SECONDS, "")


def test_a_leader_is_heard_of_when_it_renews_not_when_it_is_first_seen(candidate, clock):
    first, second = candidate("a"), candidate("b")
    first.step()
    second.step()
    before = second.heard_at
    clock.now += RENEW_SECONDS
    first.step()

    second.step()

    assert (before, second.heard_at) == (float("-inf"), clock.now)


@pytest.mark.parametrize("error", [Forbidden("leases", "no right"), Refused(422, "invalid")])
def test_what_goes_wrong_is_told_until_it_goes_well(server, candidate, error):
    first = candidate("a")
    server.refusal = error

    first.step()
    trouble = first.trouble
    first.step()

    assert (trouble, first.trouble) == (str(error), "")


def test_who_cannot_give_back_leads_no_more_all_the_same(server, candidate):
    first = candidate("a")
    first.step()
    server.refusal = Unreachable("away")

    first.resign()

    assert (first.term(), first.trouble) == (0, "away")
