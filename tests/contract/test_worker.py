"""The worker under a client that behaves like the API server's, message by message."""

import contextlib
import json
import socket
import threading

import pytest

from tests.contract.conftest import exchange, receive_all, wait_until_it_answers
from tests.contract.go_client import GoClient
from tests.stopped import stopped

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
ONE = HEAD + b"Content-Length: 1\r\n\r\n"


@pytest.mark.parametrize(("clients", "size", "turns"), [(3, 64, 5), (1, 256, 3)])
def test_bursts_from_api_servers_are_answered_without_an_error(server, clients, size, turns):
    wrong = []

    def caller(client, number, together):
        for turn in range(turns):
            together.wait()
            body = f"{number}/{turn}".encode()
            try:
                answer = client.post(body)
            except OSError as error:
                answer = error
            if answer != (200, body):
                wrong.append(answer)

    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(contextlib.closing(GoClient(server))) for _ in range(clients)]
        together = [threading.Barrier(size) for _ in found]
        calls = [(c, n, b) for c, b in zip(found, together, strict=True) for n in range(size)]
        threads = [threading.Thread(target=caller, args=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert wrong == []


def test_the_application_is_told_the_clients_address(server):
    with contextlib.closing(GoClient(server)) as client:
        assert client.post(b"peer") == (200, b'"127.0.0.1"')


REFUSED = {
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n0", b"411 Length Required"),
    "too much": (b"Content-Length: 3500000", b"413 Content Too Large"),
    "far too much": (b"Content-Length: " + b"9" * 60, b"413 Content Too Large"),
    "no number": (b"Content-Length: ten", b"400 Bad Request"),
    "a signed number": (b"Content-Length: +5", b"400 Bad Request"),
    "two lengths": (b"Content-Length: 1\r\nContent-Length: 2", b"400 Bad Request"),
    "a length that another reader overlooks": (b"Content-Length : 5", b"400 Bad Request"),
    "half a line end": (b"A: b\nContent-Length: 5", b"400 Bad Request"),
    "a folded line": (b"A: b\r\n folded", b"400 Bad Request"),
    "a control character": (b"A: \0", b"400 Bad Request"),
    "another expectation": (b"Expect: tea", b"417 Expectation Failed"),
    "a proxy's encoding": (b"Transfer-Encoding: gzip, chunked", b"411 Length Required"),
    "many lines": (b"\r\n".join([b"A: b"] * 101), b"431 Request Header Fields Too Large"),
    "a long line": (b"X: " + b"x" * 70_000, b"431 Request Header Fields Too Large"),
}
NO_MESSAGE = [b"\x16\x03\x01 what is this", b"PRI * HTTP/2.0"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        *(pytest.param(HEAD + head, status, id=name) for name, (head, status) in REFUSED.items()),
        *(pytest.param(first, b"400 Bad Request", id=str(first)) for first in NO_MESSAGE),
    ],
)
def test_what_is_no_message_gets_its_status_and_the_connection_is_closed(server, sent, status):
    connection = server.connect()

    connection.sendall(sent + b"\r\n\r\n")

    answer = receive_all(connection)
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_client_that_sends_too_much_can_read_why(server):
    connection = server.connect()
    connection.sendall(HEAD + b"Content-Length: 4000000\r\n\r\n")
    with contextlib.suppress(OSError):
        connection.sendall(b"x" * 4_000_000)

    assert receive_all(connection).startswith(b"HTTP/1.1 413 Content Too Large\r\n")


def test_plain_http_ends_the_connection(server):
    connection = server.dial()
    connection.sendall(ONE + b"a")

    # A TLS alert, at most; no answer in the clear.
    assert b"HTTP" not in receive_all(connection)


def test_three_megabytes_pass_whole_and_back(server):
    body = b"x" * (3 << 20)

    assert server.post(body) == (200, body)


def test_a_large_answer_waits_for_a_client_that_reads_late(server):
    connection = server.connect()
    connection.sendall(HEAD + b"Content-Length: 12\r\n\r\ngive 8000000")
    others = server.post(b"meanwhile")

    received = 0
    while received < 8_000_000:
        received += len(connection.recv(1 << 20))

    assert others == (200, b"meanwhile")


def test_messages_sent_ahead_are_answered_in_turn(server):
    connection = server.connect()

    connection.sendall((ONE + b"a") + (ONE + b"b") + (ONE + b"c"))
    received = b""
    while received.count(b"HTTP/1.1 200 OK") < 3 or not received.endswith(b"c"):
        received += connection.recv(1000)

    bodies = [part.partition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"a", b"b", b"c"]


def test_a_peer_that_sends_much_keeps_nobody_else_waiting_until_all_of_it_is_answered(
    server,
):
    busy = {f"busy-{number}": server.connect("127.0.0.2") for number in range(8)}
    connections = {**busy, "other": server.connect()}
    for connection in connections.values():
        # The server has done its handshake, too.
        connection.sendall(ONE + b"a")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    with stopped(server.worker):  # so that it finds all of them at once
        for name, connection in connections.items():
            body = f"among {name}".encode()
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    for connection in connections.values():
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    _, answered = server.post(b"waited")
    assert json.loads(answered).index("other") <= 1


def test_a_message_that_comes_byte_by_byte_is_answered(server):
    connection = server.connect()

    for byte in ONE + b"a":
        connection.send(bytes([byte]))

    assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("version", "more"), [(b"HTTP/1.0", b""), (b"HTTP/1.1", b"Connection: close\r\n")]
)
def test_a_client_that_wants_one_answer_gets_it_and_the_end(server, version, more):
    connection = server.connect()

    connection.sendall(b"GET / " + version + b"\r\n" + more + b"\r\n")

    answer = receive_all(connection)
    assert answer.startswith(version + b" 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_a_connection_is_kept_for_the_next_message(server):
    connection = server.client()

    answers = [exchange(connection, b"%d" % number) for number in range(50)]

    assert answers == [(200, b"%d" % number) for number in range(50)]


def test_a_client_that_hangs_up_harms_nobody(server):
    for sent in (b"", HEAD, ONE, ONE + b"a"):
        connection = server.connect()
        connection.sendall(sent)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    assert server.post(b"still here") == (200, b"still here")


def test_an_error_of_the_application_is_a_500_and_logged_without_its_text(server):
    answer = server.post(b"fail hunter2")

    assert answer == (500, b"")
    lines = [line for line in server.log.read_text().splitlines() if "no answer" in line]
    assert len(lines) == 1
    assert "ValueError at " in lines[0]
    assert "hunter2" not in server.log.read_text()


def test_what_comes_after_an_answer_is_done_and_ends_no_connection_where_it_fails(server):
    with contextlib.closing(GoClient(server)) as client:
        answers = [client.post(body) for body in (b"log later", b"break later")]
        done = json.loads(client.post(b"done")[1])

    assert answers == [(200, b"log later"), (200, b"break later")]
    assert done == ["log later", "break later"]
    assert "after an answer: ValueError at " in server.log.read_text()
    assert "hunter2" not in server.log.read_text()


def test_a_worker_whose_message_is_never_answered_is_replaced(start):
    server = start(hang_seconds=2)
    first = server.worker

    connection = server.connect()
    connection.sendall(HEAD + b"Content-Length: 10\r\n\r\nsleep 3600")
    receive_all(connection)
    wait_until_it_answers(server)

    assert server.worker != first
