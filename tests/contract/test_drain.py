"""The server loses no message while it ends, or while its certificate is replaced."""

import os
import shutil
import signal
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest

from certs import issue
from hack.waiting import WAIT_SECONDS, wait_for
from tests.contract.conftest import exchange, receive_all, wait_until_it_answers
from tests.contract.go_client import GoClient

ENDLESS = 3600.0
"""A drain that only a second signal ends."""


def ended_with(server):
    """Wait for the end; return with which code it ended by itself."""
    return server.process.wait(WAIT_SECONDS)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_while_draining_all_are_served_once_more_and_a_second_signal_ends_it(start, second):
    server = start(drain_seconds=ENDLESS)
    kept, idle = server.client(), server.connect()
    exchange(kept, b"warm")

    ask_to_end(server)
    kept.request("POST", "/", body=b"sleep 0")
    last = kept.getresponse()
    fresh = one_answer(server)
    server.process.send_signal(second)
    code = ended_with(server)

    assert (last.status, last.getheader("Connection")) == (200, "close")
    assert fresh.endswith(b"\r\n\r\nx")
    assert b"\r\nConnection: close\r\n" in fresh
    assert (receive_all(idle), code) == (b"", 0)


def test_idle_connections_hold_up_no_end(start):
    server = start()
    client = GoClient(server)
    threads = [threading.Thread(target=client.post, args=(b"sleep 0.01",)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unused = [server.connect() for _ in range(25)]
    idle = client.idle() + len(unused)

    server.process.send_signal(signal.SIGTERM)
    code = ended_with(server)
    client.close()

    assert idle >= 25
    assert code == 0


def calling(server, stopped):
    """Post from eight threads until *stopped* or refused; return those threads and two lists.

    The bodies answered, and those that were sent and lost.
    """
    answered, lost = [], []

    def caller(number):
        while not stopped.is_set():
            body = f"{number}/{len(answered)}".encode()
            try:
                connection = server.connect()
            except OSError:
                stopped.set()
                return
            with connection:
                head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)
                good = receive_one(connection).endswith(b"\r\n\r\n" + body)
                (answered if good else lost).append(body)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    return threads, answered, lost


def test_under_load_every_message_that_was_sent_is_answered(start):
    server = start(drain_seconds=1.0)
    threads, answered, lost = calling(server, threading.Event())

    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    code = ended_with(server)

    assert (lost, code) == ([], 0)
    assert answered


def test_a_certificate_is_replaced_under_load_without_losing_a_message(
    start, certificate, tmp_path
):
    folder = shutil.copytree(certificate, tmp_path / "tls")
    now = datetime.now(UTC)
    server, stopped = start(files=folder), threading.Event()
    other = issue.new_authority("other", now=now, lifetime=timedelta(days=1))
    leaf = issue.new_leaf(other, ("localhost",), now=now, lifetime=timedelta(days=1))
    server.tls.load_verify_locations(cadata=other.certificate_pem.decode())
    threads, answered, lost = calling(server, stopped)

    (folder / "tls.key").write_bytes(leaf.key_pem)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    fresh = ssl.create_default_context(cadata=other.certificate_pem.decode())

    def serves_it():
        try:
            with fresh.wrap_socket(server.dial(), server_hostname="localhost"):
                return True
        except OSError:
            return False

    wait_for(serves_it, "the new certificate is served")
    was_refused = stopped.is_set()
    stopped.set()
    for thread in threads:
        thread.join()

    assert (lost, was_refused) == ([], False)
    assert answered


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
    slow.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nsleep 0.1")

    server.process.send_signal(signal.SIGTERM)
    half.sendall(b"-sent.")
    answers = receive_all(slow), receive_all(half)
    code = ended_with(server)

    assert [answer.rpartition(b"\r\n")[2] for answer in answers] == [b"sleep 0.1", b"half-sent."]
    assert code == 0


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
    wait_for(lambda: server.log.read_text().count("nothing to reload") == 3, "it refuses each")

    assert server.workers() == [first]


def test_the_worker_ends_when_the_arbiter_is_gone(start):
    server = start(drain_seconds=ENDLESS)
    connection = server.connect()

    server.process.kill()

    assert receive_all(connection) == b""
