"""Asked to end, the server serves on for its drain, lets every client go, and loses no message."""

import os
import signal
import threading
import time

import pytest

from tests.contract.conftest import exchange, receive_all, wait_until_it_answers
from tests.contract.go_client import GoClient

DRAIN = 3.0
# The promise is 5 s after the drain; the machine that runs the tests may be busy.
END = 10.0


def ended_in(server):
    """Wait for the end; return the seconds it took, and that it ended by itself."""
    started = time.monotonic()
    code = server.process.wait(60)
    return time.monotonic() - started, code


def test_while_draining_new_and_kept_connections_are_served_once_more(start):
    server = start(drain_seconds=DRAIN)
    kept = server.client()
    exchange(kept, b"warm")

    ask_to_end(server)
    kept.request("POST", "/", body=b"sleep 0")
    last = kept.getresponse()
    fresh = server.connect()
    fresh.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
    answer = receive_all(fresh)
    seconds, code = ended_in(server)

    assert (last.status, last.getheader("Connection")) == (200, "close")
    assert answer.endswith(b"\r\n\r\nx")
    assert b"\r\nConnection: close\r\n" in answer
    assert (code, seconds < DRAIN + END) == (0, True)


def test_idle_connections_hold_up_no_end(start):
    server = start(drain_seconds=0.5)
    client = GoClient(server)
    threads = [threading.Thread(target=client.post, args=(b"sleep 0.01",)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    unused = [server.connect() for _ in range(25)]
    idle = client.idle() + len(unused)

    server.process.send_signal(signal.SIGTERM)
    seconds, code = ended_in(server)
    client.close()

    assert idle >= 25
    assert (code, seconds < 0.5 + END) == (0, True)


def test_under_load_every_message_that_was_sent_is_answered(start):
    server = start(drain_seconds=DRAIN)
    answered, lost, refused = [], [], threading.Event()

    def caller(number):
        while not refused.is_set():
            body = f"{number}/{len(answered)}".encode()
            try:
                connection = server.connect()
            except OSError:
                refused.set()
                return
            with connection:
                head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)
                good = receive_one(connection).endswith(b"\r\n\r\n" + body)
                (answered if good else lost).append(body)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(60)
    _, code = ended_in(server)

    assert (lost, code) == ([], 0)
    assert len(answered) > 8


def receive_one(connection):
    """Read one answer of a body without empty lines."""
    received = b""
    try:
        while True:
            head, end, body = received.partition(b"\r\n\r\n")
            if end and len(body) >= int(head.rpartition(b"Content-Length: ")[2].split()[0]):
                return received
            if not (data := connection.recv(4096)):
                return received
            received += data
    except OSError:
        return received


def test_what_was_begun_before_the_end_is_finished(start):
    server = start()
    half, slow = server.connect(), server.connect()
    half.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
    slow.sendall(b"POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\nsleep 1")

    server.process.send_signal(signal.SIGTERM)
    half.sendall(b"-sent.")
    answers = receive_all(slow), receive_all(half)
    _, code = ended_in(server)

    assert [answer.rpartition(b"\r\n")[2] for answer in answers] == [b"sleep 1", b"half-sent."]
    assert code == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_hurries(start, second):
    server = start(drain_seconds=60.0)
    idle = server.connect()
    ask_to_end(server)

    server.process.send_signal(second)
    seconds, code = ended_in(server)

    assert receive_all(idle) == b""
    assert (code, seconds < END) == (0, True)


def ask_to_end(server):
    """Send SIGTERM; only an answer shows that the worker has heard of it."""
    server.process.send_signal(signal.SIGTERM)
    while b"Connection: close" not in one_answer(server):
        pass


def one_answer(server):
    connection = server.connect()
    connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
    return receive_one(connection)


def test_a_worker_that_dies_is_replaced(start):
    server = start()
    first = server.worker

    os.kill(first, signal.SIGKILL)
    wait_until_it_answers(server)

    assert server.worker != first


def test_a_reload_and_more_workers_are_refused(start):
    server = start()
    first = server.worker

    for sig in (signal.SIGHUP, signal.SIGTTIN, signal.SIGUSR2):
        server.process.send_signal(sig)
    while server.log.read_text().count("nothing to reload") < 3:
        server.post()

    assert server.workers() == [first]


def test_the_worker_ends_when_the_arbiter_is_gone(start):
    server = start(drain_seconds=60.0)
    connection = server.connect()

    server.process.kill()

    assert receive_all(connection) == b""
