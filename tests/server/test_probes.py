"""Probes and scrapes, as each process answers them."""

import pytest
from prometheus_client import CollectorRegistry, Gauge

from webhook.server.addresses import split_address
from webhook.server.probes import create_probes


def client(registry=None, **given):
    given = {"not_ready": str, **given}
    return create_probes(registry or CollectorRegistry(), **given).test_client()


def test_readiness_says_why_not_and_life_does_not_depend_on_it():
    whys = ["not synced yet", ""]
    asked = client(not_ready=lambda: whys.pop(0))

    answers = [asked.get(path) for path in ("/readyz", "/healthz", "/readyz")]

    assert [(answer.status_code, answer.text) for answer in answers] == [
        (503, "not synced yet\n"),
        (200, "ok\n"),
        (200, "ok\n"),
    ]


def test_readiness_tells_what_an_admin_should_know():
    answer = client(notice=lambda: "the observer was started again").get("/readyz")

    assert (answer.status_code, answer.text) == (200, "ok, but the observer was started again\n")


def test_a_scrape_reads_values_of_that_moment():
    registry = CollectorRegistry()
    gauge = Gauge("age", "Age.", registry=registry)

    answer = client(registry, before_scrape=lambda: gauge.set(7)).get("/metrics")

    assert answer.status_code == 200
    assert answer.content_type.startswith("text/plain; version=")
    assert "age 7.0" in answer.text.splitlines()


def test_any_other_path_is_not_found():
    answer = client().get("/mutate")

    assert (answer.status_code, answer.text) == (404, "not found\n")


@pytest.mark.parametrize("address", ["nowhere", "host:port", ""])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(ValueError, match="expected host:port"):
        split_address(address)
