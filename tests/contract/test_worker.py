"""The worker under a client that behaves like the API server's, and under ones that do not."""

import contextlib
import signal
import threading
import time

import pytest

from tests.contract.conftest import exchange

SILENT = 200
DRIPPING = 64


def test_a_burst_over_kept_connections_is_answered_without_an_error(server):
    wrong = []

    def client(number):
        with contextlib.closing(server.client()) as connection:
            for turn in range(20):
                body = f"{number}/{turn}".encode()
                answer = exchange(connection, body)
                if answer != (200, body):
                    wrong.append(answer)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert wrong == []


@pytest.mark.parametrize("what", ["nothing", "half a handshake", "half a message"])
def test_connections_that_never_finish_delay_nobody(server, what):
    for _ in range(DRIPPING if what == "half a message" else SILENT):
        _unfinished(server, what)

    answer = server.post(b"still here")

    assert answer == (200, b"still here")


def _unfinished(server, what):
    if what == "half a handshake":
        connection = server.dial()
        connection.send(b"\x16\x03\x01")
        return connection
    connection = server.connect()
    if what == "half a message":
        connection.send(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
    return connection


def test_a_message_that_stays_half_sent_is_dropped(server):
    connection = _unfinished(server, "half a message")

    end = connection.recv(100)

    assert end == b""


def test_a_chunked_body_is_refused_with_411(server):
    connection = server.connect()
    connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")

    answer = connection.recv(100)

    assert answer.startswith(b"HTTP/1.1 411 Length Required\r\n")


def test_three_megabytes_pass_whole(server):
    body = b"x" * (3 << 20)

    assert server.post(body) == (200, body)


def test_messages_sent_ahead_are_answered_in_turn(server):
    connection = server.connect()
    one = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"

    connection.send(one + b"a" + one + b"b")
    received = b""
    while received.count(b"HTTP/1.1 200 OK") < 2 or not received.endswith(b"b"):
        received += connection.recv(1000)

    assert received.index(b"\r\n\r\na") < received.index(b"\r\n\r\nb")


def test_a_client_that_asks_for_leave_to_send_gets_it(server):
    connection = server.connect()
    connection.send(
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    leave = connection.recv(100)
    connection.send(b"ok")
    answer = connection.recv(1000)

    assert leave == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_stopping_with_idle_connections_ends_soon_and_loses_no_message(server):
    idle = [server.client() for _ in range(25)]
    for connection in idle:
        exchange(connection, b"warm")
    started = time.monotonic()

    server.process.send_signal(signal.SIGTERM)
    answer = exchange(idle[0], b"on its way")
    server.process.wait(30)

    assert answer == (200, b"on its way")
    # Generous: gunicorn's own thread worker takes its whole graceful time-out here, 10 s.
    assert time.monotonic() - started < 8
