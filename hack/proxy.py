"""One address for several webhook servers: each review goes to the next one that answers.

A Service would balance connections, and the API server keeps one: to see replicas disagree, every
review must go elsewhere. So this ends TLS and speaks to the replicas anew.

usage: python -m hack.proxy PORT CERTIFICATE KEY AUTHORITY REPLICA_PORT...
"""

import contextlib
import http.client
import itertools
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

TIMEOUT_SECONDS: Final = 10


class Replicas:
    """The replicas in turn; one that cannot be reached is passed over."""

    def __init__(self, ports: tuple[int, ...], *, tls: ssl.SSLContext) -> None:
        self._ports = ports
        self._tls = tls
        self._turns = itertools.count()
        self._kept = threading.local()

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        first = next(self._turns)
        for offset in range(len(self._ports)):
            port = self._ports[(first + offset) % len(self._ports)]
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._post_to(port, path, body)
        return http.client.BAD_GATEWAY, b"no replica answers"

    def _post_to(self, port: int, path: str, body: bytes) -> tuple[int, bytes]:
        kept = self._connections()
        connection = kept.pop(port, None) or http.client.HTTPSConnection(
            "localhost", port, context=self._tls, timeout=TIMEOUT_SECONDS
        )
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            connection.close()
            raise
        kept[port] = connection
        return answer

    def _connections(self) -> dict[int, http.client.HTTPSConnection]:
        """Return this thread's open connections, by port."""
        if not hasattr(self._kept, "by_port"):
            self._kept.by_port = {}
        by_port: dict[int, http.client.HTTPSConnection] = self._kept.by_port
        return by_port


def _handler(replicas: Replicas) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = replicas.post(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing; the replicas log what they decide."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, *, tls: ssl.SSLContext, replicas: Replicas) -> None:
        super().__init__(("127.0.0.1", port), _handler(replicas))
        # The handshake belongs into the connection's own thread, not into the accept loop.
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


def main() -> None:
    port, certificate, key, authority, *ports = sys.argv[1:]
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    calling = ssl.create_default_context(cafile=authority)
    replicas = Replicas(tuple(map(int, ports)), tls=calling)
    _Server(int(port), tls=serving, replicas=replicas).serve_forever()


if __name__ == "__main__":
    main()
