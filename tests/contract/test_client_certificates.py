"""Who may ask: those whom the admin's authority has signed, under the names that may."""

import http.client
import json
import shutil
import ssl

import pytest

from hack.pki import Pki
from hack.waiting import wait_for
from tests.contract.conftest import receive_all, started

NAME = "kube-apiserver"


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """An authority of clients, with the API server's certificate and two that are not its."""
    found = Pki(tmp_path_factory.mktemp("clients"))
    found.issue_client("api", user=NAME, group="")
    found.issue_client("kubelet", user="system:node:a", group="system:nodes")
    found.issue_server("service", NAME)
    return found


@pytest.fixture(scope="module")
def shared(certificate, pki, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "server.log"
    given = {"client_ca": (pki.certificate("ca"), NAME), "credentials": _pair(pki, "api")}
    with started(certificate, log, **given) as running:
        yield running


def _pair(pki, name):
    return pki.certificate(name), pki.key(name)


def ask(server, *credentials):
    """Post as somebody with these credentials, who trusts the server."""
    server.tls = ssl.create_default_context(cafile=server.authority)
    if credentials:
        server.tls.load_cert_chain(*credentials)
    return server.post()


def unanswered(server, pki, reason):
    server.tls = ssl.create_default_context(cafile=server.authority)
    server.tls.load_cert_chain(*_pair(pki, "api"))
    return json.loads(server.post(b"unanswered")[1]).get(reason, 0)


def test_the_api_server_is_answered(server, pki):
    assert ask(server, *_pair(pki, "api")) == (200, b"hello")


def test_without_a_certificate_the_handshake_fails(server, pki):
    before = unanswered(server, pki, "handshake")

    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
        ask(server)

    assert unanswered(server, pki, "handshake") == before + 1


def test_a_certificate_of_another_authority_is_refused(server, tmp_path):
    others = Pki(tmp_path / "others")
    others.issue_client("api", user=NAME, group="")

    with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca|decrypt.error"):
        ask(server, *_pair(others, "api"))


def test_a_certificate_of_a_server_is_refused(server, pki):
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.certificate"):
        ask(server, *_pair(pki, "service"))


def test_another_client_of_the_authority_is_answered_403_and_counted(server, pki):
    before = unanswered(server, pki, "403")

    assert ask(server, *_pair(pki, "kubelet")) == (403, b"")
    assert unanswered(server, pki, "403") == before + 1


def test_without_names_each_client_of_the_authority_is_answered(start, pki):
    server = start(client_ca=(pki.certificate("ca"),), credentials=_pair(pki, "api"))

    assert ask(server, *_pair(pki, "kubelet")) == (200, b"hello")


def test_no_byte_of_a_message_is_waited_for_from_who_may_not_ask(server, pki):
    server.tls = ssl.create_default_context(cafile=server.authority)
    server.tls.load_cert_chain(*_pair(pki, "kubelet"))
    connection = server.connect()

    response = http.client.HTTPResponse(connection)
    response.begin()

    assert response.status == 403
    assert connection.recv(1) == b""


def test_another_authority_in_the_file_is_taken_up(start, pki, tmp_path):
    others, file = Pki(tmp_path / "others"), tmp_path / "ca.crt"
    others.issue_client("api", user=NAME, group="")
    shutil.copy(pki.certificate("ca"), file)
    server = start(client_ca=(file, NAME), credentials=_pair(pki, "api"))

    shutil.copy(others.certificate("ca"), file)

    def answered():
        try:
            return ask(server, *_pair(others, "api")) == (200, b"hello")
        except OSError:
            return False

    wait_for(answered, "the other authority is trusted")
    with pytest.raises(ssl.SSLError):
        ask(server, *_pair(pki, "api"))


def test_handshakes_that_fail_leave_room_for_the_api_server(start):
    server = start(connections=4)
    for _ in range(4):
        stranger = server.dial()
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        receive_all(stranger)

    assert server.post() == (200, b"hello")
