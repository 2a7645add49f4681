"""Two controllers, of which one writes; the other takes over when it is killed or ends in order."""

import os
import re
import signal
import urllib.request

import pytest

from hack import paper
from hack.install import NAMESPACE, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API
from tests.stopped import stopped
from webhook.api import lease

NAMES = paper.names_with("leader", namespace="default")
LEADS = re.compile(r"^kueue_fallback_controller_leader (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def installed(own_plane):
    """Two controllers and the queues of a policy."""
    own_plane.client.apply_all(paper.queues(NAMES))
    with Installation(own_plane) as found:
        found.add_controller()
        yield found
    own_plane.client.delete(POLICY_API, "FallbackPolicy", NAMES.policy)


@pytest.fixture
def both(installed):
    """Both controllers are running; returns who leads, and who does not."""
    for each in installed.controllers:
        if not installed.plane.processes.is_running(each.name):
            installed.plane.start(each.name)
    installed.wait_until_ready()
    return wait_for(lambda: leader_and_follower(installed), "one leads")


def leader_and_follower(installed):
    first, second = installed.controllers
    found = {(True, False): (first, second), (False, True): (second, first)}
    return found.get((leads(first), leads(second)))


def leads(controller):
    url = f"http://127.0.0.1:{controller.metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        (value,) = LEADS.findall(answer.read().decode())
    return float(value) == 1


def wait_until_written(installed, generation):
    """Wait until the status speaks of that generation of the policy."""

    def written():
        policy = installed.plane.client.get(POLICY_API, "FallbackPolicy", NAMES.policy)
        conditions = policy.get("status", {}).get("conditions", ())
        return generation in [each["observedGeneration"] for each in conditions]

    wait_for(written, "the status is written")


def change_policy(installed, mode):
    """Make the status say less than the policy does; returns the policy's generation."""
    return installed.plane.client.apply(paper.policy(NAMES, mode=mode))["metadata"]["generation"]


def lease_of(installed):
    api = "coordination.k8s.io/v1"
    return installed.plane.client.get(api, "Lease", lease.NAME, namespace=NAMESPACE)["spec"]


def written_by(installed, controller):
    """Count the statuses that the controller says it wrote."""
    log = installed.plane.processes.log(controller.name).read_text()
    return len(re.findall(rf"FallbackPolicy {NAMES.policy}: (not )?ready", log))


def end_in_order(plane, name):
    """Ask a controller to end, and let it take its time."""
    os.kill(plane.processes.pid(name), signal.SIGTERM)
    wait_for(lambda: not plane.processes.is_running(name), f"{name} has ended")
    plane.stop(name)


def test_one_of_two_writes(installed, both):
    leader, follower = both

    wait_until_written(installed, change_policy(installed, "Observe"))

    wait_for(lambda: written_by(installed, leader), "the leader says so")
    assert written_by(installed, follower) == 0
    assert lease_of(installed)["holderIdentity"]


def test_the_other_writes_when_the_leader_was_killed(installed, both):
    leader, follower = both
    wait_until_written(installed, change_policy(installed, "Advise"))
    before = lease_of(installed)

    installed.plane.kill(leader.name)
    generation = change_policy(installed, "Enforce")

    wait_until_written(installed, generation)
    after = lease_of(installed)
    assert leads(follower)
    assert after["holderIdentity"] != before["holderIdentity"]
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1


def test_a_leader_that_ends_in_order_gives_the_lease_back(installed, both):
    leader, follower = both
    before = lease_of(installed)

    end_in_order(installed.plane, leader.name)

    # It is free at once: nobody waits until it is over.
    assert lease_of(installed)["holderIdentity"] != before["holderIdentity"]
    wait_for(lambda: leads(follower), "the other leads")
    wait_until_written(installed, change_policy(installed, "Observe"))
    assert lease_of(installed)["leaseTransitions"] == before["leaseTransitions"] + 1


def test_a_leader_that_is_held_up_leads_no_more_when_it_goes_on(installed, both):
    leader, follower = both
    pid = installed.plane.processes.pid(leader.name)

    with stopped(pid):
        wait_for(lambda: leads(follower), "the other leads")

    assert not leads(leader)
    assert leads(follower)
