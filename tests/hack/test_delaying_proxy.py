"""Calls that are held back on their way to the API server."""

import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hack.delaying_proxy import Call, DelayingProxy
from hack.ports import Ports
from hack.waiting import WAIT_SECONDS, wait_for


class Upstream(BaseHTTPRequestHandler):
    """Tells what it was asked; a path that ends in `watch` is answered in parts."""

    protocol_version = "HTTP/1.1"
    goes_on = threading.Event()

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        if self.path.endswith("watch"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nfirst\r\n")
            self.goes_on.wait(WAIT_SECONDS)
            self.wfile.write(b"4\r\nlast\r\n0\r\n\r\n")
            return
        told = f"{self.command} {self.path} ".encode() + body
        self.send_header("Content-Length", str(len(told)))
        self.send_header("Audit-Id", self.headers.get("Audit-Id", ""))
        self.end_headers()
        self.wfile.write(told)
        # Without a word in the headers, as when a server ends what has been idle for long.
        self.close_connection = self.path == "/ends"

    def do_GET(self):
        self.answer()

    def do_PATCH(self):
        self.answer()

    def log_message(self, *_):
        pass


@pytest.fixture
def upstream():
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def ports():
    found = Ports()
    yield found
    found.release()


@pytest.fixture
def proxy(upstream, ports):
    with DelayingProxy(
        ports.lease(),
        lambda: http.client.HTTPConnection("127.0.0.1", upstream),
    ) as found:
        yield found


def ask(proxy, method, path, body=None, headers=()):
    """Ask once; returns the status, a header and the body."""
    connection = http.client.HTTPConnection(
        proxy.address.removeprefix("http://"), timeout=WAIT_SECONDS
    )
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.headers["Audit-Id"], answer.read()
    finally:
        connection.close()


def is_patch(call):
    return call.method == "PATCH"


def test_a_call_reaches_the_server_with_its_headers_and_body(proxy):
    found = ask(proxy, "PATCH", "/apis/a?b=c", b"{}", {"Audit-Id": "7"})

    assert found == (200, "7", b"PATCH /apis/a?b=c {}")


def test_what_is_wanted_waits_until_it_is_released_and_all_else_passes(proxy):
    with ThreadPoolExecutor() as pool, proxy.holding(is_patch) as held:
        patched = pool.submit(ask, proxy, "PATCH", "/a", b"1")
        wait_for(lambda: held.calls, "it is held")
        passed = ask(proxy, "GET", "/a")
        calls, waited = held.calls, not patched.done()
        held.release()
        after = ask(proxy, "PATCH", "/b", b"2")
        first = patched.result()

    assert calls == (Call(method="PATCH", path="/a", body=b"1"),)
    assert waited
    assert passed[2] == b"GET /a "
    assert (first[2], after[2]) == (b"PATCH /a 1", b"PATCH /b 2")
    assert held.calls == ()


def test_the_parts_of_a_watch_come_as_they_are_sent(proxy):
    connection = http.client.HTTPConnection(
        proxy.address.removeprefix("http://"), timeout=WAIT_SECONDS
    )
    connection.request("GET", "/watch")
    answer = connection.getresponse()

    first = answer.read1(100)
    Upstream.goes_on.set()
    rest = answer.read()
    connection.close()

    assert (first, rest) == (b"first", b"last")
