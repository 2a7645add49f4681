"""Plain HTTP for probes, scrapes and the latest decisions."""

import contextlib
import socket
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Gauge

from hack.waiting import WAIT_SECONDS, wait_for
from webhook.server import probes
from webhook.server.addresses import split_address


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
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
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


def dial(url):
    host, port = split_address(url.removeprefix("http://"))
    return socket.create_connection((host, port), timeout=WAIT_SECONDS)


def _answer(url):
    try:
        return get(url)
    except OSError:
        return None


def test_idle_connections_take_a_few_threads_and_keep_nobody_from_being_answered():
    before = threading.active_count()
    table = {"/healthz": lambda: probes.Answer(body=b"ok\n")}

    with serving(table) as url, contextlib.ExitStack() as held:
        for _ in range(200):
            idle = held.enter_context(dial(url))
            idle.sendall(b"GET /met")
        # While all places are held, one that comes may be hung up on, and is sent again.
        answer = wait_for(lambda: _answer(f"{url}/healthz"), "it is answered")
        threads = threading.active_count() - before

    assert answer == (200, "ok\n")
    assert threads <= 2 * probes.AT_ONCE + 1


def test_who_does_not_ask_is_hung_up_on():
    with serving({}) as url, dial(url) as idle:
        idle.sendall(b"GET /met")

        assert idle.recv(100) == b""


def test_who_asks_byte_by_byte_is_hung_up_on_in_the_end(monkeypatch):
    monkeypatch.setattr(probes, "LONGEST_SECONDS", 0.0)

    with serving({}) as url, dial(url) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")

        assert slow.recv(100) == b""


@pytest.mark.parametrize("address", ["nowhere", "host:port", ""])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(ValueError, match="expected host:port"):
        split_address(address)
