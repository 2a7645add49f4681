"""Clients that never finish what they begin delay nobody, and are closed in the end."""

import resource
import select
import threading
from pathlib import Path

import pytest

from tests.contract.conftest import exchange, receive_all

SILENT = 200
DRIPPING = 64
DRIP_SECONDS = 0.5
HALF = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"


def half_handshake(server):
    connection = server.dial()
    connection.sendall(b"\x16\x03\x01")
    return connection


def half_message(server):
    connection = server.connect()
    connection.sendall(HALF)
    return connection


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param(lambda server: server.connect(), SILENT, id="silent"),
        pytest.param(half_handshake, SILENT, id="half handshakes"),
        pytest.param(lambda server: server.dial(), SILENT, id="silent before TLS"),
        pytest.param(half_message, DRIPPING, id="half messages"),
    ],
)
def test_connections_that_never_finish_delay_nobody(server, kind, count):
    for _ in range(count):
        kind(server)

    assert server.post(b"still here") == (200, b"still here")


def test_bodies_that_drip_delay_nobody_and_are_dropped(server):
    dripping = [half_message(server) for _ in range(DRIPPING)]
    stopped, dropped = threading.Event(), []

    def drip():
        while not stopped.wait(DRIP_SECONDS):
            for connection in list(dripping):
                try:
                    connection.send(b"x")
                except OSError:
                    dripping.remove(connection)
                    dropped.append(connection)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        answers = [server.post(b"%d" % number) for number in range(20)]
        ends = [receive_all(connection) for connection in list(dripping)]
    finally:
        stopped.set()
        thread.join()

    assert answers == [(200, b"%d" % number) for number in range(20)]
    assert b"".join(ends) == b""


@pytest.mark.parametrize(("before", "answer"), [(b"", b""), (HALF + b"-sent!", b"half-sent!")])
def test_a_message_that_stays_half_sent_is_dropped_also_behind_a_whole_one(server, before, answer):
    connection = server.connect()
    connection.sendall(before + HALF)

    received = receive_all(connection)

    assert received.rpartition(b"\r\n\r\n")[2] == answer


def test_more_unfinished_messages_than_fit_are_refused_and_the_others_go_on(start):
    server = start(max_held=1 << 20)
    both = [server.connect(), server.connect()]
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 700000\r\n\r\n"
    for connection in both:
        connection.sendall(head + b"x" * 530_000)

    # Which of them the server hears of first is not ours to say.
    (refused,), _, _ = select.select(both, [], [])
    (kept,) = (connection for connection in both if connection is not refused)
    answer = receive_all(refused)
    kept.sendall(b"x" * 170_000)

    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert kept.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    # What was refused takes no room any more.
    assert server.post(b"x" * 900_000)[0] == 200


def test_beyond_the_limit_the_longest_silent_is_closed_and_one_in_use_is_kept(start):
    server = start(connections=20)
    used = server.client()
    exchange(used, b"first")
    silent = [server.dial() for _ in range(10)]
    exchange(used, b"second")

    more = [server.dial() for _ in range(15)]
    answer = server.post(b"still here")

    assert (answer, exchange(used, b"third")) == ((200, b"still here"), (200, b"third"))
    assert receive_all(silent[0]) == b""
    more[-1].setblocking(False)
    with pytest.raises(BlockingIOError):
        more[-1].recv(1)


def files(server):
    return len(list(Path(f"/proc/{server.worker}/fd").iterdir()))


def test_where_there_is_no_more_room_the_longest_silent_makes_some(start):
    server = start()
    few = files(server) + 20
    resource.prlimit(server.worker, resource.RLIMIT_NOFILE, (few, few))

    silent = [server.dial() for _ in range(60)]
    answer = server.post(b"still here")

    assert answer == (200, b"still here")
    assert receive_all(silent[0]) == b""
