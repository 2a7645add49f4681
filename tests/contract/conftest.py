"""A server process under the worker, and raw connections to it."""

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import issue
from hack.ports import Ports
from hack.waiting import WAIT_SECONDS, wait_for
from webhook.server.worker import MAX_HELD

_PORTS = Ports()


class Running:
    """A server process with its port and the authority that its clients trust."""

    def __init__(self, process, port, authority, log=None):
        self.process, self.port, self.log = process, port, log
        self.authority = authority
        self.tls = ssl.create_default_context(cafile=str(authority))
        self.opened = contextlib.ExitStack()

    def workers(self):
        """The process ids of the arbiter's children."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in children.read_text().split()]

    @property
    def worker(self):
        return self.workers()[0]

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.worker}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def dial(self, source="127.0.0.1"):
        """Connect from an address of loopback."""
        connection = socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS, (source, 0))
        self.opened.callback(connection.close)
        return connection

    def connect(self, source="127.0.0.1"):
        """Connect with TLS from an address of loopback.

        The socket is wrapped before it connects: CPython leaks one that it wraps afterwards, where
        a server that ends has reset it by then.
        """
        connection = self.tls.wrap_socket(socket.socket(), server_hostname="localhost")
        self.opened.callback(connection.close)
        connection.settimeout(WAIT_SECONDS)
        connection.bind((source, 0))
        connection.connect(("127.0.0.1", self.port))
        return connection

    def client(self):
        client = _Client("localhost", self.port, timeout=WAIT_SECONDS)
        client.dial = self.connect
        self.opened.callback(client.close)
        return client

    def post(self, body=b"hello"):
        with contextlib.closing(self.client()) as client:
            return exchange(client, body)


class _Client(http.client.HTTPSConnection):
    def connect(self):
        self.sock = self.dial()


def exchange(client, body):
    client.request("POST", "/mutate?timeout=30s", body=body)
    response = client.getresponse()
    return response.status, response.read()


def receive_all(connection):
    """Read until the server hangs up."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(4096):
            received += data
    return received


def free_port():
    """Return a port that nobody else gets while these tests run."""
    return _PORTS.lease()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    now = datetime.now(UTC)
    authority = issue.new_authority("test", now=now, lifetime=timedelta(days=1))
    leaf = issue.new_leaf(
        authority, ("localhost", "127.0.0.1"), now=now, lifetime=timedelta(days=1)
    )
    (folder / "ca.crt").write_bytes(authority.certificate_pem)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    return folder


@contextlib.contextmanager
def started(
    certificate,
    log,
    *,
    drain_seconds=0.0,
    max_held=MAX_HELD,
    connections=2000,
    hang_seconds=30,
    client_ca=(),
    credentials=None,
    files=None,
):
    port = free_port()
    program = [sys.executable, "-m", "tests.contract.worker_server", str(port)]
    folder = files or certificate
    limits = [str(drain_seconds), str(max_held), str(connections), str(hang_seconds)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*program, folder / "tls.crt", folder / "tls.key", *limits, *client_ca], stderr=stderr
        )
    running = Running(process, port, certificate / "ca.crt", log)
    if credentials:
        running.tls.load_cert_chain(*credentials)
    with answering(running):
        yield running


@pytest.fixture(scope="module")
def shared(certificate, tmp_path_factory):
    """One server for the tests that leave it as they found it."""
    with started(certificate, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


@pytest.fixture
def server(shared):
    with contextlib.ExitStack() as shared.opened:
        yield shared


@pytest.fixture
def start(certificate, tmp_path):
    """Start servers of one's own."""
    with contextlib.ExitStack() as stack:
        yield lambda **given: stack.enter_context(
            started(certificate, tmp_path / "server.log", **given)
        )


@contextlib.contextmanager
def answering(running):
    """Wait until a server answers, and end it and its connections with the block."""
    process = running.process
    try:
        wait_until_it_answers(running)
        with running.opened:
            yield
    finally:
        # Killed, the arbiter would leave its worker behind; a second signal skips the drain.
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_SECONDS)
        process.kill()
        process.wait()


def wait_until_it_answers(running):
    def answers():
        assert running.process.poll() is None, running.log.read_text()
        try:
            return running.post()
        except OSError:
            return None

    wait_for(answers, "the server answers")
