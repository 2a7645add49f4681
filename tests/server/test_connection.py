"""A client's connection, step by step, on a TLS socket that takes what a test lets it take."""

import selectors
import socket
import ssl
from types import SimpleNamespace

import pytest

from webhook.server.connections import Connection

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"


class Tls:
    """Reads and writes as it was told to; an error is raised instead."""

    def __init__(self, reads, writes):
        self.reads, self.writes, self.sent = list(reads), list(writes), b""

    def recv(self, _):
        found = self.reads.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def send(self, data):
        found = self.writes.pop(0)
        if isinstance(found, Exception):
            raise found
        self.sent += bytes(data[:found])
        return found

    def close(self):
        pass


@pytest.fixture
def connect():
    with socket.socket() as client:

        def connected(tls):
            context = SimpleNamespace(wrap_socket=lambda *_, **__: tls)
            return Connection(client, context)

        yield connected


def test_leave_to_send_waits_for_room_and_is_given_whole(connect):
    tls = Tls([HEAD, b"ok"], [ssl.SSLWantWriteError(), 10, ssl.SSLWantWriteError(), 15])
    conn = connect(tls)

    steps = [conn.receive() for _ in range(3)]

    assert steps == [selectors.EVENT_WRITE, selectors.EVENT_WRITE, None]
    assert tls.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert conn.message.body == b"ok"
