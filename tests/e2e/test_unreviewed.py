"""Jobs of namespaces in which no policy can match are not sent, and counted until they are."""

import itertools
import time

import pytest

from hack import paper
from hack.meters import Counter
from hack.waiting import wait_for
from tests import unasked
from tests.e2e.decisions import DECISION, POLICY_API, decision_of
from tests.unasked import NAMES, OBSERVED, WEBHOOKS, counted, namespace
from webhook.model import omitted_namespaces
from webhook.state.readers import OUR_WEBHOOK

UNMATCHED, UNLABELLED, EMPTY = (
    paper.names_with(name, namespace=name) for name in ("unmatched", "unlabelled", "empty")
)
"""Of which no policy is for: until one comes, until the namespace gets a label, and always."""


@pytest.fixture(scope="module", autouse=True)
def policies(plane, webhook):
    for names in (UNMATCHED, UNLABELLED, EMPTY):
        plane.client.apply(namespace(names))
        plane.client.apply_all(paper.queues(names))
    unasked.put_in_force(plane, webhook)
    yield
    for names in (NAMES, OBSERVED):
        plane.client.delete(POLICY_API, "FallbackPolicy", names.policy)


def condition_of(plane):
    """Return our condition in the webhook configuration; empty: it has none."""
    webhooks = plane.client.get(*WEBHOOKS)["webhooks"]
    (ours,) = (each for each in webhooks if each["name"] == OUR_WEBHOOK)
    named = {each["name"]: each["expression"] for each in ours["matchConditions"]}
    return named.get(omitted_namespaces.CONDITION, "")


def wait_until_omitted(plane, names):
    wait_for(
        lambda: names.namespace in omitted_namespaces.read_omitted(condition_of(plane)),
        "it is left out",
    )


def reviews(webhook):
    """Count reviews of creations: Kueue changes decided Jobs of the tests before."""
    created = r'kueue_fallback_reviews_total\{[^}]*operation="CREATE"[^}]*\}'
    return Counter(webhook.replicas[0].metrics, created)


def passes_unasked(plane, webhook, names):
    """Create a Job as a dry run; return whether no review was sent of it."""
    counter = reviews(webhook)
    plane.client.create(paper.light_job("asked", names), dry_run=True)
    return counter.grown() == 0


def by_a_policy(plane, names):
    plane.client.apply(paper.policy(names))


def by_a_label(plane, names):
    plane.client.apply(namespace(names, gpus="few"))


@pytest.mark.parametrize(
    ("names", "begin"),
    [(UNMATCHED, by_a_policy), (UNLABELLED, by_a_label)],
    ids=["policy", "label"],
)
def test_a_namespace_without_a_policy_is_not_called_and_jobs_until_it_is_are_counted(
    plane, webhook, names, begin
):
    if begin is by_a_label:
        policy = paper.policy(names)
        policy["spec"]["match"]["namespaceSelector"] = {"matchLabels": {"gpus": "few"}}
        plane.client.apply(policy)
    wait_until_omitted(plane, names)
    wait_for(lambda: passes_unasked(plane, webhook, names), "no review is sent")
    counter = reviews(webhook)
    plane.client.create_all([paper.light_job(f"before-{n}", names) for n in range(5)])
    calls = counter.grown()

    begin(plane, names)
    missed = itertools.count()
    wait_for(
        lambda: decision_of(plane.client.create(paper.light_job(f"after-{next(missed)}", names))),
        "Jobs are decided",
    )
    number = next(missed) - 1

    assert calls == 0
    wait_for(lambda: counted(webhook).get(names.policy, -1) >= number, f"{number} are counted")
    # Those of the milliseconds in which the two watches bring the news may count, too.
    assert counted(webhook)[names.policy] <= number + 5
    plane.client.delete(POLICY_API, "FallbackPolicy", names.policy)


def test_what_carries_anything_of_ours_is_sent_all_the_same(plane, webhook):
    wait_until_omitted(plane, EMPTY)
    wait_for(lambda: passes_unasked(plane, webhook, EMPTY), "no review is sent")
    forged = paper.light_job("forged", EMPTY)
    forged["metadata"]["annotations"] = {DECISION: "{}"}

    assert DECISION not in plane.client.create(forged)["metadata"].get("annotations", {})


def test_without_a_controller_everything_is_sent_again(plane, webhook):
    wait_until_omitted(plane, EMPTY)
    wait_for(lambda: passes_unasked(plane, webhook, EMPTY), "no review is sent")
    controller = webhook.controllers[0].name
    plane.kill(controller)
    end = time.time() + 3
    condition = {
        "name": omitted_namespaces.CONDITION,
        "expression": omitted_namespaces.expression_without([EMPTY.namespace], until=end),
    }
    api, kind, name = WEBHOOKS
    ours = {"name": OUR_WEBHOOK, "matchConditions": [condition]}
    metadata = {"name": name}
    plane.client.apply(
        {"apiVersion": api, "kind": kind, "metadata": metadata, "webhooks": [ours]},
        field_manager="kueue-fallback-controller",
    )

    wait_for(lambda: not passes_unasked(plane, webhook, EMPTY), "reviews are sent again")

    plane.start(controller)
    webhook.wait_until_ready()
