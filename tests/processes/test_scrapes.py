"""Both processes, as Prometheus would scrape them."""

import urllib.request

import pytest

from hack import metrics_page, paper
from hack.waiting import wait_for
from tests import scrapes
from tests.e2e.decisions import applied_policy
from webhook.metric_table import (
    A_FLAVOR,
    A_NAMESPACE,
    A_POLICY,
    A_TREE,
    AN_OPTION,
    ANY_OPTION,
    ANY_POLICY,
)

WITH_TRAFFIC_ALONE = {
    "kueue_fallback_rejections_total",
    "kueue_fallback_unreadable_objects",
    "kueue_fallback_controller_unreadable_objects",
    "kueue_fallback_controller_not_moved_jobs",
    "kueue_fallback_cluster_state_age_seconds",
    # Where there are Tariffs, and Jobs that they priced have ended.
    "kueue_fallback_cost_total",
    "kueue_fallback_cost_saved_total",
    "kueue_fallback_cost_added_total",
    "kueue_fallback_tariff_rate",
    "kueue_fallback_tariff_series_until_seconds",
    "kueue_fallback_tariff_series_clipped_points",
    "kueue_fallback_carbon_intensity",
    "kueue_fallback_congestion_price",
    "kueue_fallback_advised_saving",
    # Where Nodes have slices, and somebody wants to know whom they serve.
    "kueue_fallback_controller_unusable_device_parts",
    "kueue_fallback_controller_blocked_slices",
}
UNDECIDED = ""
"""In place of a policy: Jobs that none decided, whose costs are counted, too."""


@pytest.fixture
def scraped(plane, webhook, queues):
    """What either process shows while a policy is in force and has decided."""
    policy = paper.policy(queues)
    policy["spec"]["reconsider"] = {}
    with applied_policy(plane.client, policy, queues):
        controller = f"http://127.0.0.1:{webhook.controller_metrics}"
        counted = f'unreviewed_jobs_total{{policy="{queues.policy}"}}'
        wait_for(lambda: counted in scrape(controller), "the controller follows the policy")
        server = webhook.endpoints["metrics"]
        wait_for(
            lambda: all(
                knows_no_other(scrape(each), queues.policy) for each in (server, controller)
            ),
            "the policies of other tests are forgotten",
        )
        yield {"server": scrape(server), "controller": scrape(controller)}


def knows_no_other(text, policy):
    known = (policy, UNDECIDED)
    return all(labels.get("policy", policy) in known for _, _, labels in scrapes.scraped(text))


def shown_by_others(text):
    """Return values of labels that other tests have left: what Jobs cost stays counted.

    And what was scarce stays published for some time.
    """
    found = [labels for _, _, labels in scrapes.scraped(text)]
    names = {A_NAMESPACE: "namespace", A_TREE: "tree", A_FLAVOR: "flavor"}
    return {value: {labels.get(name, "") for labels in found} for value, name in names.items()}


def scrape(endpoint):
    with urllib.request.urlopen(f"{endpoint}/metrics") as answer:
        return answer.read().decode()


def test_what_the_processes_show_is_what_the_page_says(scraped, queues):
    bounded = {
        **scrapes.BOUNDED,
        A_POLICY: {queues.policy, UNDECIDED},
        ANY_POLICY: {queues.policy, UNDECIDED},
        **shown_by_others(scraped["controller"]),
        AN_OPTION: {"gpu", "cpu", "none"},
        ANY_OPTION: {"gpu", "cpu", "none"},
    }
    tables = {"server": metrics_page.server(), "controller": metrics_page.controller()}

    for process, table in tables.items():
        names = scrapes.check_series(scrapes.scraped(scraped[process]), table, bounded)
        assert {metric.name for metric in table} - names <= WITH_TRAFFIC_ALONE, process
