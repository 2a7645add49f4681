"""gunicorn's application and arbiter around the worker: its settings, and what signals do here."""

from __future__ import annotations

import runpy
import signal
import ssl
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from webhook.server.wsgi import Application

_CONF = Path(__file__).parent / "gunicorn.conf.py"
_AFTER_DRAIN_SECONDS = 5


class Server(BaseApplication):  # type: ignore[misc]
    """The gunicorn application: what the arbiter and the worker read and report.

    *load_application* is called in the worker, which owns the threads and children that it starts.
    *context* returns the TLS context for a new connection, or None while there is no certificate.
    """

    def __init__(
        self,
        *,
        listen: str,
        context: Callable[[], ssl.SSLContext | None],
        load_application: Callable[[], Application],
        keep_alive_seconds: int = 120,
        drain_seconds: float = 0.0,
        client_names: Collection[str] = (),
    ) -> None:
        self.context = context
        self.client_names = client_names
        self.drain_seconds = drain_seconds
        self.draining = False
        """Set by the worker: this server is shutting down, and not ready for new clients."""
        self.in_flight: Callable[[], int] = int
        """Set by the worker: returns the count of complete messages not yet answered."""
        self.unanswered: Mapping[str, int] = {}
        """Set by the worker: count of what got no answer of the application, by reason."""
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
