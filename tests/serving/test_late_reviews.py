"""A review whose time was over while it waited is answered, but not decided."""

import json

import pytest

from tests.reviews import light_job, review
from tests.servers import Server, paper_snapshot
from webhook.server.worker import WAITED


def post(server, *, waited, query="timeout=2s"):
    sent = review(light_job())
    answer = server.client.post(
        f"/mutate?{query}", data=json.dumps(sent), environ_overrides={WAITED: waited}
    )
    return sent["request"]["uid"], answer.get_json()["response"]


def test_a_late_review_is_admitted_unpatched_and_counted_and_enters_no_placement():
    server = Server(paper_snapshot())

    uid, response = post(server, waited=2.0)

    assert response == {"uid": uid, "allowed": True}
    assert server.count("kueue_fallback_placements_total") == 0
    labels = {"operation": "CREATE", "code": "late"}
    assert server.count("kueue_fallback_reviews_total", **labels) == 1


@pytest.mark.parametrize(
    ("waited", "query"),
    [
        (0.0, "timeout=2s"),
        (1.9, "timeout=2s"),
        (9.9, "timeout=10s"),
        (60.0, ""),
        (60.0, "timeout=soon"),
        (60.0, "notimeout=2s"),
    ],
)
def test_a_review_with_time_left_or_none_named_is_decided(waited, query):
    server = Server(paper_snapshot())

    _, response = post(server, waited=waited, query=query)

    assert "patch" in response
