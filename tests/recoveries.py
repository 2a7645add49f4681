"""What an API server may do to the processes, and how they are seen to be themselves again.

Each fault is a function of a plane. Those in `ON_ANY_PLANE` befall a real one, too.
"""

import copy
import http

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, metric, probe

NAMES = paper.names_with("recoveries", namespace="default")
POLICY = (POLICY_API, "FallbackPolicy")
FEW, MANY = 4, 30
"""Refusals: of the controller's writes, and of reads, of which each watched resource has some."""


def killed(plane):
    plane.kill("kube-apiserver")
    plane.start("kube-apiserver")


def killed_and_without_its_versions(plane):
    plane.kill("kube-apiserver")
    plane.forget_versions()
    plane.start("kube-apiserver")


def its_versions_forgotten(plane):
    plane.forget_versions()


def its_watches_dropped(plane):
    plane.embedded.drop_watches()


def conflicts_at_every_write(plane):
    plane.embedded.faults.refuse(http.HTTPStatus.CONFLICT, FEW, _by_us_but("GET"))


def expired_versions_at_every_read(plane):
    plane.embedded.faults.refuse(http.HTTPStatus.GONE, MANY, _by_us_but("POST", "PUT", "PATCH"))


def errors_at_everything(plane):
    plane.embedded.faults.refuse(http.HTTPStatus.INTERNAL_SERVER_ERROR, MANY, _by_us_but())


def too_many_calls(plane):
    plane.embedded.faults.refuse(http.HTTPStatus.TOO_MANY_REQUESTS, MANY, _by_us_but())


ON_ANY_PLANE = (killed, killed_and_without_its_versions)
ON_AN_EMBEDDED_PLANE = (
    *ON_ANY_PLANE,
    its_versions_forgotten,
    its_watches_dropped,
    conflicts_at_every_write,
    expired_versions_at_every_read,
    errors_at_everything,
    too_many_calls,
)


def _by_us_but(*methods):
    """Mean what the processes ask, which have tokens, and not what the test asks."""
    return lambda method, _, user: method not in methods and user.startswith("system:service")


def recovers(plane, webhook, fault):
    """Let a fault befall the plane, then change a policy: all that is running is to follow it."""
    policy = paper.policy(NAMES)
    plane.client.apply_all(paper.queues(NAMES))
    plane.client.apply(policy)
    follow(plane, policy)
    before = lives(plane, webhook)

    fault(plane)
    follow(plane, with_option(policy, fault.__name__.replace("_", "-")))

    wait_until_refused(plane)
    assert lives(plane, webhook) == before
    assert metric(webhook, "kueue_fallback_failures_total") == 0


def follow(plane, policy):
    """Apply a policy; the server decides by it, and the controller writes its status."""
    applied = plane.client.apply(policy)
    wanted = [option["name"] for option in policy["spec"]["options"]]

    def is_decided():
        decision = probe(plane.client, NAMES)
        return decision and [option["name"] for option in decision["options"]] == wanted

    def is_judged():
        status = plane.client.get(*POLICY, applied["metadata"]["name"]).get("status", {})
        seen = {each.get("observedGeneration") for each in status.get("conditions") or ()}
        return seen == {applied["metadata"]["generation"]}

    wait_for(is_decided, f"the server decides by {wanted}")
    wait_for(is_judged, f"the controller judges {wanted}")


def with_option(policy, name):
    """Return the policy with another name for its second option."""
    found = copy.deepcopy(policy)
    found["spec"]["options"][1]["name"] = name
    found["spec"]["strategy"]["threshold"][1]["option"] = name
    return found


def lives(plane, webhook):
    """Tell which processes run: none of ours is started again for a fault."""
    programs = (*webhook.replicas, *webhook.controllers)
    pids = {each.name: plane.processes.pid(each.name) for each in programs}
    return pids, metric(webhook, "kueue_fallback_observer_starts_total")


def wait_until_refused(plane):
    """Wait until all refusals were had; a real plane has none to give."""
    embedded = getattr(plane, "embedded", None)
    wait_for(lambda: embedded is None or embedded.faults.left == 0, "all refusals were had")
