"""The controller notices Jobs that came past the webhook, and no others."""

import json
import re

import pytest
from click.testing import CliRunner

from hack import paper
from hack.install import NAMESPACE
from hack.waiting import wait_for
from tests import unasked
from tests.e2e.decisions import POLICY_API, decision_of
from tests.unasked import NAMES, OBSERVED, WEBHOOKS, counted, pass_margin
from webhook.commands import status


@pytest.fixture(scope="module", autouse=True)
def policies(own_plane, own_webhook):
    unasked.put_in_force(own_plane, own_webhook)


def named(plane):
    """List the Jobs that the controller's log names."""
    log = plane.processes.log("controller").read_text()
    return re.findall(r"Job enforced/(\S+): created without a review", log)


def test_jobs_that_came_while_the_webhook_was_down_are_counted_and_named(own_plane, own_webhook):
    reviewed = own_plane.client.create(paper.light_job("reviewed", NAMES))
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
        own_plane.client.create(job)
    wait_for(lambda: counted(own_webhook) == {NAMES.policy: 2}, "two Jobs are counted")
    own_webhook.start()

    assert decision_of(reviewed)["policy"] == NAMES.policy
    assert named(own_plane) == ["first", "last"]


def status_of(plane):
    words = ["--kubeconfig", str(plane.kubeconfig), "-n", NAMES.namespace, "-o", "json"]
    result = CliRunner().invoke(status.command, words)
    return result.exit_code, json.loads(result.stdout)


def test_status_says_that_nothing_is_decided_and_how_many_were_not(own_plane, own_webhook):
    missed = f"policy {NAMES.policy}: 2 Jobs created without a review"

    def is_told():
        return any(why.startswith(missed) for why in status_of(own_plane)[1]["attention"])

    wait_for(is_told, "the policy says how many")
    _, answering = status_of(own_plane)
    own_webhook.kill()
    code, silent = status_of(own_plane)
    own_webhook.start()

    assert (answering["webhook"]["answers"], silent["webhook"]["answers"]) == (True, False)
    assert code == 1
    assert any("the API server gets no answer" in why for why in silent["attention"])


def test_jobs_of_a_cluster_without_the_configuration_are_counted(own_plane, own_webhook):
    before = counted(own_webhook)[NAMES.policy]
    own_plane.client.delete(*WEBHOOKS)
    pass_margin()

    own_plane.client.create(paper.light_job("unasked", NAMES))

    try:
        wait_for(lambda: counted(own_webhook) == {NAMES.policy: before + 1}, "it is counted")
    finally:
        items = [item for item in own_webhook.objects() if item["kind"] == WEBHOOKS[1]]
        own_plane.client.apply_all(items)
    assert named(own_plane)[-1] == "unasked"


def test_jobs_under_the_off_switch_and_decided_ones_are_not_counted(own_plane, own_webhook):
    before = counted(own_webhook)
    metadata = {"name": "kueue-fallback-off", "namespace": NAMESPACE}
    own_plane.client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    pass_margin()
    own_plane.client.create(paper.light_job("off", NAMES))
    own_plane.client.delete("v1", "ConfigMap", "kueue-fallback-off", namespace=NAMESPACE)
    pass_margin()
    own_plane.client.create_all([paper.light_job(f"decided-{n}", NAMES) for n in range(10)])

    own_webhook.kill()
    own_plane.client.create(paper.light_job("after", NAMES))
    wait_for(lambda: named(own_plane)[-1] == "after", "a later Job is counted")
    own_webhook.start()

    assert counted(own_webhook) == {NAMES.policy: before[NAMES.policy] + 1}


def test_the_series_goes_with_its_policy(own_plane, own_webhook):
    own_plane.client.delete(POLICY_API, "FallbackPolicy", NAMES.policy)

    wait_for(lambda: counted(own_webhook) == {}, "no series is left")
    own_plane.client.apply(paper.policy(NAMES))
