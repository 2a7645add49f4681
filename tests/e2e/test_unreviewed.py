"""The controller notices Jobs that came past the webhook, and no others.

It also keeps those of namespaces in which no policy can match from being sent.
"""

import re
import time
import urllib.request

import pytest

from hack import paper
from hack.install import NAMESPACE
from hack.meters import Counter
from hack.waiting import WAIT_SECONDS, wait_for
from tests.e2e.decisions import DECISION, POLICY_API, decision_of, probe
from webhook.controller.unreviewed import MARGIN_SECONDS
from webhook.model import omitted_namespaces
from webhook.state.readers import OUR_WEBHOOK

NAMES = paper.names_with("unreviewed", namespace="enforced")
OBSERVED = paper.names_with("observed", namespace="observed")
UNMATCHED, UNLABELLED, EMPTY = (
    paper.names_with(name, namespace=name) for name in ("unmatched", "unlabelled", "empty")
)
"""Of which no policy is for: until one comes, until the namespace gets a label, and always."""
COUNTED = re.compile(r'kueue_fallback_unreviewed_jobs_total\{policy="([^"]+)"\} (\S+)')
WEBHOOKS = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "kueue-fallback")


@pytest.fixture(scope="module")
def plane(own_plane, own_webhook):
    """A plane with a policy that enforces and one that observes, both in force for a while."""
    for names in (NAMES, OBSERVED, UNMATCHED, UNLABELLED, EMPTY):
        own_plane.client.apply(namespace(names))
        own_plane.client.apply_all(paper.queues(names))
    for names, mode in ((NAMES, "Enforce"), (OBSERVED, "Observe")):
        own_plane.client.apply(paper.policy(names, mode=mode))
    wait_for(lambda: counted(own_webhook) == {NAMES.policy: 0}, "the controller counts from zero")
    wait_for(lambda: probe(own_plane.client, NAMES), "the webhook decides by the policy")
    pass_margin()
    yield own_plane
    for names in (NAMES, OBSERVED):
        own_plane.client.delete(POLICY_API, "FallbackPolicy", names.policy)


def namespace(names, **labels):
    metadata = {"name": names.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def counted(webhook):
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return {name: float(value) for name, value in COUNTED.findall(answer.read().decode())}


def pass_margin():
    changed = time.time()
    wait_for(lambda: time.time() > changed + MARGIN_SECONDS + 1, "the margin has passed")


def named(plane):
    """List the Jobs that the controller's log names."""
    log = plane.processes.log("controller").read_text()
    return re.findall(r"Job enforced/(\S+): created without a review", log)


def test_jobs_that_came_while_the_webhook_was_down_are_counted_and_named(plane, own_webhook):
    reviewed = plane.client.create(paper.light_job("reviewed", NAMES))
    opted_out = paper.light_job("opted-out", NAMES)
    opted_out["metadata"]["annotations"] = {"kueue-fallback.dev/policy": "none"}

    own_webhook.kill()
    for job in (
        paper.light_job("first", NAMES),
        opted_out,
        paper.heavy_job("unmatched", NAMES),
        paper.light_job("observed", OBSERVED),
        paper.light_job("last", NAMES),
    ):
        plane.client.create(job)
    start = time.monotonic()
    wait_for(lambda: counted(own_webhook) == {NAMES.policy: 2}, "two Jobs are counted")
    print(f"counted after {time.monotonic() - start:.1f} s")
    own_webhook.start()

    assert decision_of(reviewed)["policy"] == NAMES.policy
    assert named(plane) == ["first", "last"]


def test_jobs_of_a_cluster_without_the_configuration_are_counted(plane, own_webhook):
    before = counted(own_webhook)[NAMES.policy]
    plane.client.delete(*WEBHOOKS)
    pass_margin()

    plane.client.create(paper.light_job("unasked", NAMES))

    try:
        wait_for(lambda: counted(own_webhook) == {NAMES.policy: before + 1}, "it is counted")
    finally:
        items = [item for item in own_webhook.objects() if item["kind"] == WEBHOOKS[1]]
        plane.client.apply_all(items)
    assert named(plane)[-1] == "unasked"


def test_jobs_under_the_off_switch_and_decided_ones_are_not_counted(plane, own_webhook):
    before = counted(own_webhook)
    metadata = {"name": "kueue-fallback-off", "namespace": NAMESPACE}
    plane.client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    pass_margin()
    plane.client.create(paper.light_job("off", NAMES))
    plane.client.delete("v1", "ConfigMap", "kueue-fallback-off", namespace=NAMESPACE)
    pass_margin()
    plane.client.create_all([paper.light_job(f"decided-{n}", NAMES) for n in range(10)])

    own_webhook.kill()
    plane.client.create(paper.light_job("after", NAMES))
    wait_for(lambda: named(plane)[-1] == "after", "a later Job is counted")
    own_webhook.start()

    assert counted(own_webhook) == {NAMES.policy: before[NAMES.policy] + 1}


def condition_of(plane):
    """Return our condition in the webhook configuration; empty: it has none."""
    webhooks = plane.client.get(*WEBHOOKS)["webhooks"]
    (ours,) = (each for each in webhooks if each["name"] == OUR_WEBHOOK)
    named = {each["name"]: each["expression"] for each in ours["matchConditions"]}
    return named.get(omitted_namespaces.CONDITION, "")


def wait_until_omitted(plane, names):
    wait_for(
        lambda: names.namespace in omitted_namespaces.read(condition_of(plane)), "it is left out"
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
    plane, own_webhook, names, begin
):
    if begin is by_a_label:
        policy = paper.policy(names)
        policy["spec"]["match"]["namespaceSelector"] = {"matchLabels": {"gpus": "few"}}
        plane.client.apply(policy)
    wait_until_omitted(plane, names)
    wait_for(lambda: passes_unasked(plane, own_webhook, names), "no review is sent")
    counter = reviews(own_webhook)
    plane.client.create_all([paper.light_job(f"before-{n}", names) for n in range(5)])
    calls = counter.grown()

    begin(plane, names)
    start = time.monotonic()
    missed = 0
    while decision_of(plane.client.create(paper.light_job(f"after-{missed}", names))) is None:
        missed += 1
        assert time.monotonic() < start + WAIT_SECONDS, "no Job is decided"
    print(f"called after {time.monotonic() - start:.2f} s, {missed} Jobs in between")

    assert calls == 0
    wait_for(lambda: counted(own_webhook).get(names.policy, -1) >= missed, f"{missed} are counted")
    # Those of the milliseconds in which the two watches bring the news may count, too.
    assert counted(own_webhook)[names.policy] <= missed + 5
    plane.client.delete(POLICY_API, "FallbackPolicy", names.policy)


def test_what_carries_anything_of_ours_is_sent_all_the_same(plane, own_webhook):
    wait_until_omitted(plane, EMPTY)
    wait_for(lambda: passes_unasked(plane, own_webhook, EMPTY), "no review is sent")
    forged = paper.light_job("forged", EMPTY)
    forged["metadata"]["annotations"] = {DECISION: "{}"}

    assert DECISION not in plane.client.create(forged)["metadata"].get("annotations", {})


def test_without_a_controller_everything_is_sent_again(plane, own_webhook):
    wait_until_omitted(plane, EMPTY)
    wait_for(lambda: passes_unasked(plane, own_webhook, EMPTY), "no review is sent")
    controller = own_webhook.controllers[0].name
    plane.kill(controller)
    end = time.time() + 3
    condition = {
        "name": omitted_namespaces.CONDITION,
        "expression": omitted_namespaces.written([EMPTY.namespace], until=end),
    }
    api, kind, name = WEBHOOKS
    webhook = {"name": OUR_WEBHOOK, "matchConditions": [condition]}
    metadata = {"name": name}
    plane.client.apply(
        {"apiVersion": api, "kind": kind, "metadata": metadata, "webhooks": [webhook]},
        field_manager="kueue-fallback-controller",
    )

    wait_for(lambda: not passes_unasked(plane, own_webhook, EMPTY), "reviews are sent again")

    assert time.time() >= end - 1
    plane.start(controller)
    own_webhook.wait_until_ready()


def test_the_series_goes_with_its_policy(plane, own_webhook):
    plane.client.delete(POLICY_API, "FallbackPolicy", NAMES.policy)

    wait_for(lambda: counted(own_webhook) == {}, "no series is left")
    plane.client.apply(paper.policy(NAMES))
