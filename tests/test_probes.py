"""Plain HTTP for probes, scrapes and the latest decisions."""

import contextlib
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge

from webhook import probes
from webhook.addresses import split_address


@contextlib.contextmanager
def serving(table):
    server = probes.serve("127.0.0.1:0", table)
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_readiness_says_why_not():
    whys = ["not synced yet", ""]
    table = probes.routes(CollectorRegistry(), not_ready=lambda: whys.pop(0))

    with serving(table) as url:
        answers = [get(f"{url}/readyz"), get(f"{url}/readyz"), get(f"{url}/healthz")]

    assert answers == [(503, "not synced yet\n"), (200, "ok\n"), (200, "ok\n")]


def test_a_scrape_reads_values_of_that_moment():
    registry = CollectorRegistry()
    gauge = Gauge("age", "Age.", registry=registry)
    table = probes.routes(registry, not_ready=str, before_scrape=lambda: gauge.set(7))

    with serving(table) as url:
        status, text = get(f"{url}/metrics")

    assert (status, "age 7.0" in text.splitlines()) == (200, True)


def test_any_other_path_is_not_found():
    with serving({}) as url:
        assert get(f"{url}/mutate") == (404, "not found\n")


@pytest.mark.parametrize("address", ["nowhere", "host:port", ""])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(ValueError, match="expected host:port"):
        split_address(address)
