"""A dry run that asks whether it is seen gets its own words back, and nothing else happens."""

import pytest

from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.admission import review

SEEN = "kueue-fallback: probe abc-123 seen by "


def probing(nonce="abc-123"):
    return light_job("probe", annotations={review.PROBE: nonce})


def test_a_probe_gets_its_nonce_back_and_is_not_decided():
    server = Server(paper_snapshot())

    job, warnings = server.create(probing(), dry_run=True)

    assert job == probing()
    assert [text.startswith(SEEN) for text in warnings] == [True]
    assert (server.considered, server.handler.placements()) == ([], 0)


def test_a_probe_is_answered_before_the_state_is_known():
    _, warnings = Server().create(probing(), dry_run=True)

    assert [text.startswith(SEEN) for text in warnings] == [True]


@pytest.mark.parametrize("nonce", ["", "a b", "A", "a" * 65, 'a"', 7])
def test_what_is_no_nonce_is_an_annotation_like_any_other(nonce):
    server = Server(paper_snapshot())

    _, warnings = server.create(probing(nonce), dry_run=True)

    assert not any(text.startswith("kueue-fallback: probe ") for text in warnings)


def test_a_job_that_is_really_created_is_decided_whatever_it_carries():
    server = Server(paper_snapshot())

    job, _ = server.create(probing())

    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "cpu-lq"
