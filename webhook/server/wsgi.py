"""Passes a complete message to the WSGI application and its answer back as bytes.

Much less than gunicorn's own way, which costs more than a decision: no streams, no chunks. It
knows no sockets.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote_to_bytes

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
    application: Application, message: HttpMessage, *, waited_seconds: float, close: bool
) -> bytes:
    """Call the application and return its whole answer.

    *close* says that this is the connection's last answer.
    """
    started: list[tuple[str, list[tuple[str, str]]]] = []
    body: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> Any:
        started[:] = [(status, headers)]
        return body.append

    environ = _environ(message)
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
