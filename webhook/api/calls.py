"""What all calls by HTTP have in common, to API servers and to a Prometheus.

None is tried again here and no redirect is followed: whoever calls knows when to come again, and
an answer that points elsewhere is a refusal.
"""

from __future__ import annotations

import re
import time
from math import inf
from typing import Any, Final

import urllib3

from webhook.api.kubernetes_api import TooLarge

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""Without data, until a call fails."""
SHORT_SECONDS: Final = 3.0
"""The same where somebody waits for a page or a table, and for a Lease: after a call
without an answer there is time for another before leadership must be given up."""
MOST_BYTES: Final = 8 << 20
"""Of an answer that others can make as large as they like, such as a page of a list: a tenant may
have hundreds of Jobs of 1.5 MB, and reading them takes several times their size."""
ONCE: Final[dict[str, Any]] = {"retries": False, "preload_content": False}
"""Arguments of urllib3: one attempt, no redirect, and ``read`` takes the body."""
_CHUNK: Final = 1 << 16
_POOL: Final = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")
"""How urllib3 names a server."""


def timeout(answer_seconds: float = ANSWER_SECONDS) -> urllib3.Timeout:
    return urllib3.Timeout(connect=min(CONNECT_SECONDS, answer_seconds), read=answer_seconds)


def read_answer(
    response: urllib3.BaseHTTPResponse, what: str, *, most: float = MOST_BYTES, until: float = inf
) -> bytes:
    """Return the body of the answer to *what*; *until* is a monotonic time.

    Raises:
        TooLarge: it has more than *most* bytes.
        TimeoutError: it has not come by then, but bit by bit, which no time-out of a socket ends.

    """
    content = bytearray()
    while chunk := response.read1(_CHUNK):
        content += chunk
        if len(content) > most:
            # The rest is still in flight, so the connection is not used again.
            response.close()
            raise TooLarge(what)
        if time.monotonic() >= until:
            response.close()
            raise TimeoutError
    return bytes(content)


def why_unreached(error: Exception, url: str) -> str:
    """Say what kubectl says of a server that nobody listens at; else name it and the error."""
    server = url.partition("://")[2] or url
    if isinstance(error.__cause__, ConnectionRefusedError):
        return (
            f"The connection to the server {server} was refused - did you specify the right "
            "host or port?"
        )
    return f"The server {server} cannot be reached: {_POOL.sub('', str(error))}"
