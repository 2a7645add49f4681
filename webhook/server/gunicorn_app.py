"""gunicorn's application and arbiter around the worker: its settings, and what signals do here.

Also the WSGI call for a message that was read whole.
"""

from __future__ import annotations

import io
import runpy
import signal
import ssl
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from webhook.server.http1 import HttpMessage

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
WAITED = "kueue_fallback.waited_seconds"
"""Key in the environment: seconds since the message's last byte reached this machine."""

_CONSTANT = {
    "SCRIPT_NAME": "",
    "SERVER_NAME": "localhost",
    "SERVER_PORT": "443",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "https",
    "wsgi.multithread": False,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
    "wsgi.input_terminated": True,
}
_OURS = frozenset({"connection", "content-length", "date", "keep-alive", "transfer-encoding"})
"""Headers of an answer that the application does not set."""


def respond(
    application: Application,
    message: HttpMessage,
    *,
    peer: str,
    waited_seconds: float,
    close: bool,
) -> bytes:
    """Call the application and return its whole answer.

    *peer* is the client's address, and *close* says that this is the connection's last answer.
    """
    started: list[tuple[str, list[tuple[str, str]]]] = []
    body: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> Any:
        started[:] = [(status, headers)]
        return body.append

    environ = _environ(message)
    environ["REMOTE_ADDR"] = peer
    environ[WAITED] = waited_seconds
    answer = application(environ, start_response)
    try:
        body.extend(answer)
    finally:
        if hasattr(answer, "close"):
            answer.close()
    ((status, headers),) = started
    return _to_bytes(status, headers, b"".join(body), method=message.method, close=close)


def failure(status: str) -> bytes:
    """Return an answer that ends its connection and says no more than the status."""
    return _to_bytes(status, [], b"", method="", close=True)


def _environ(message: HttpMessage) -> dict[str, Any]:
    path, headers = message.path, message.headers
    environ = {
        **_CONSTANT,
        "REQUEST_METHOD": message.method,
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1") if "%" in path else path,
        "QUERY_STRING": message.query,
        "CONTENT_LENGTH": str(len(message.body)),
        "CONTENT_TYPE": headers.get("content-type", ""),
        "wsgi.input": io.BytesIO(message.body),
        "wsgi.errors": sys.stderr,
    }
    for name, value in headers.items():
        # A name with an underscore could not be told from the one with a hyphen.
        if "_" not in name and not name.startswith("content-"):
            environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ


def _to_bytes(
    status: str, headers: list[tuple[str, str]], body: bytes, *, method: str, close: bool
) -> bytes:
    said = "".join(f"{k}: {v}\r\n" for k, v in headers if k.lower() not in _OURS)
    connection = "Connection: close\r\n" if close else ""
    head = (
        f"HTTP/1.1 {status}\r\nDate: {_date()}\r\n{connection}{said}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)


_date_of = (0, "")


def _date() -> str:
    global _date_of  # noqa: PLW0603 - made once a second
    now = int(time.time())
    if now != _date_of[0]:
        _date_of = (now, formatdate(now, usegmt=True))
    return _date_of[1]


_CONF = Path(__file__).parent / "gunicorn.conf.py"
_AFTER_DRAIN_SECONDS = 5


class Server(BaseApplication):  # type: ignore[misc]
    """The gunicorn application: what the arbiter and the worker read and report.

    *load_application* is called in the worker, which owns the threads and children that it starts.
    It sets ``context``, which the worker calls for the TLS context of each new connection.
    """

    def __init__(
        self,
        *,
        listen: str,
        load_application: Callable[[], Application],
        keep_alive_seconds: int = 120,
        drain_seconds: float = 0.0,
        client_names: Collection[str] = (),
    ) -> None:
        self.context: Callable[[], ssl.SSLContext | None] = lambda: None
        """Returns None while there is no certificate."""
        self.client_names = client_names
        self.drain_seconds = drain_seconds
        self.draining = False
        """Set by the worker: this server is shutting down, and not ready for new clients."""
        self.in_flight: Callable[[], int] = int
        """Set by the worker: returns the count of complete messages not yet answered."""
        self.unanswered: Mapping[str, int] = {}
        """Set by the worker: count of what got no answer of the application, by reason."""
        self.put_off: Callable[[Callable[[], object]], object] = lambda work: work()
        """Set by the worker: takes what can wait until the answers that are due are sent."""
        self._load_application = load_application
        self._given = {
            "bind": listen,
            "keepalive": keep_alive_seconds,
            "graceful_timeout": round(drain_seconds) + _AFTER_DRAIN_SECONDS,
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in {**runpy.run_path(str(_CONF)), **self._given}.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Application:
        return self._load_application()

    def run(self) -> None:
        OneWorkerArbiter(self).run()


class OneWorkerArbiter(Arbiter):  # type: ignore[misc]
    """Restarts the worker when it dies, and passes on signals to end; reloads are off."""

    _asked_to_end = False

    def signal(self, sig: int, frame: object) -> None:
        if sig == signal.SIGTERM:
            # gunicorn ignores a second SIGTERM; sent as SIGQUIT, it ends the drain at once.
            sig = signal.SIGQUIT if self._asked_to_end else sig
            self._asked_to_end = True
        super().signal(sig, frame)

    def handle_hup(self) -> None:
        """Do nothing: a second worker beside the first would find its ports taken."""
        self.log.info("nothing to reload: settings are read at start, certificates by themselves")

    handle_usr2 = handle_ttin = handle_ttou = handle_hup
