"""The console in the observer: takes what the observer knows, builds views, and starts the server.

It neither decides nor watches more than ``followed`` does, and costs next to nothing until it is
first used.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from webhook.api.client import Client
from webhook.console.access import Everybody, Reviews, Seer
from webhook.console.collect import ConsoleInput, collect
from webhook.console.decisions import DecisionStore
from webhook.console.followed import Followed
from webhook.console.view import View
from webhook.console.web_server import THREADS, ConsoleServer
from webhook.server.probes import is_loopback, split_address
from webhook.server.tls import Certificates, LiveContext, SentContext, Source
from webhook.settings import Settings
from webhook.state.feed import Counted

FRESH_SECONDS = 0.25
"""For so long one view serves all users."""
ANSWER_SECONDS = 3.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 10.0


class Console:
    """Collects views, at most some a second, and only when they are requested."""

    def __init__(self, settings: Settings, log: Callable[[str], None]) -> None:
        self._settings, self._log = settings, log
        self._book = DecisionStore()
        self._followed = Followed(self._book, settings, log)
        self._is_open = is_loopback(split_address(settings.console_listen)[0])
        self._sent = SentContext(on_error=log)
        self._counted: tuple[Counted | None, Mapping[str, Counted | None]] = None, {}
        self._view: View | None = None
        self._viewed = 0.0
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._serve, name=THREADS, daemon=True).start()

    def offer(self, counted: Counted | None, workers: Mapping[str, Counted | None]) -> None:
        """Replace the state of all clusters; called for each update."""
        self._counted = counted, workers

    def take_certificates(self, certificates: Certificates) -> None:
        """Replace what the keeper of certificates has reported."""
        self._sent.take(certificates)

    def take_line(self, line: bytes) -> None:
        """Add a line of the server's decision log."""
        self._book.put_line(line)

    def view(self) -> View:
        """Return the view, collected again if it is older than ``FRESH_SECONDS``.

        Any thread may call.
        """
        self._followed.begin()
        with self._lock:
            now = time.monotonic()
            if self._view is None or now - self._viewed > FRESH_SECONDS:
                self._view, self._viewed = self._collected(now), now
            return self._view

    def _collected(self, now: float) -> View:
        counted, workers = self._counted
        known = ConsoleInput(
            now=now,
            unix=time.time(),
            max_age=self._settings.max_state_age,
            counted=counted,
            workers=workers,
            decisions=self._book.newest(),
            published=self._followed.published,
            judged=self._followed.judged,
            leads=self._followed.leads,
        )
        return collect(known)

    def _serve(self) -> None:
        """Serve until the process ends.

        Another observer may still have the address for a moment.
        """
        # Flask takes half a second of CPU to import, which the first sync needs more.
        from webhook.console.routes import LOOPBACK, create_app  # noqa: PLC0415

        host, port = split_address(self._settings.console_listen)
        app = create_app(
            self.view,
            _everybody if self._is_open else self._reviews().seer,
            hosts=LOOPBACK if self._is_open else (),
            on_error=lambda error: self._log(f"console: {type(error).__name__}: {error}"),
        )

        def serve() -> None:
            with ConsoleServer(host, port, app, self._log, self._context()) as server:
                server.serve_forever()

        def say(error: OSError) -> None:
            self._log(f"console: cannot serve {self._settings.console_listen}: {error}")

        serve_again(serve, say, clock=time.monotonic, sleep=time.sleep)

    def _context(self) -> Source | None:
        """Return the TLS source: the webhook's own certificate; None on loopback, which needs none.

        Raises:
            OSError: it cannot be read.

        """
        if self._is_open:
            return None
        if self._settings.certificates == "self-managed":
            return self._sent
        cert, key = self._settings.tls_cert, self._settings.tls_key
        return LiveContext(cert, key, on_error=self._log)

    def _reviews(self) -> Reviews:
        client = Client(self._settings.kubeconfig, answer_seconds=ANSWER_SECONDS)
        return Reviews(client.post, self._settings.console_audience)


def serve_again(
    serve: Callable[[], None],
    say: Callable[[OSError], None],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> NoReturn:
    """Call *serve* forever, waiting longer after each failure in a row.

    A failure that repeats is logged once; one after it was served for a while counts as a new one.
    """
    wait, told = _FIRST_WAIT_SECONDS, ""
    while True:
        began = clock()
        try:
            serve()
        except OSError as error:
            if clock() - began > _LONGEST_WAIT_SECONDS:
                wait, told = _FIRST_WAIT_SECONDS, ""
            if str(error) != told:
                told = str(error)
                say(error)
        sleep(wait * random.uniform(0.8, 1.0))  # noqa: S311
        wait = min(_LONGEST_WAIT_SECONDS, 2 * wait)


def _everybody(_: str) -> Seer:
    return Everybody()
