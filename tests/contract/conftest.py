"""A server process under the worker, and raw connections to it."""

import contextlib
import http.client
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from certs import issue


class Running:
    """A server process with its port and the authority that its clients trust."""

    def __init__(self, process, port, authority):
        self.process, self.port = process, port
        self.tls = ssl.create_default_context(cafile=str(authority))
        self.opened = contextlib.ExitStack()

    def dial(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.opened.callback(connection.close)
        return connection

    def connect(self):
        connection = self.tls.wrap_socket(self.dial(), server_hostname="localhost")
        self.opened.callback(connection.close)
        return connection

    def client(self, timeout=30):
        client = http.client.HTTPSConnection(
            "localhost", self.port, context=self.tls, timeout=timeout
        )
        self.opened.callback(client.close)
        return client

    def post(self, body=b"hello"):
        with contextlib.closing(self.client()) as client:
            return exchange(client, body)


def exchange(client, body):
    client.request("POST", "/mutate?timeout=2s", body=body)
    response = client.getresponse()
    return response.status, response.read()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


@pytest.fixture
def server(certificate):
    port = free_port()
    command = [sys.executable, "-m", "tests.contract.worker_server", str(port)]
    process = subprocess.Popen([*command, certificate / "tls.crt", certificate / "tls.key"])
    running = Running(process, port, certificate / "ca.crt")
    wait_until_it_answers(running)
    with running.opened:
        yield running
    process.kill()
    process.wait(10)


def wait_until_it_answers(running):
    deadline = time.monotonic() + 30
    while True:
        try:
            running.post()
        except OSError:
            if time.monotonic() > deadline or running.process.poll() is not None:
                raise
        else:
            return
