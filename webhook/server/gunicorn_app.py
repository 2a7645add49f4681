"""gunicorn's application, arbiter and log around the worker: settings, and what signals do here."""

from __future__ import annotations

import json
import logging
import os
import resource
import runpy
import signal
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from webhook.model import faults
from webhook.server.addresses import split_address
from webhook.server.worker import BufferedWorker

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_CONF = Path(__file__).parent / "gunicorn.conf.py"
_AFTER_DRAIN_SECONDS = 5
_ENOUGH_FILES = 4096


class Server(BaseApplication):  # type: ignore[misc]
    """The gunicorn application: what the arbiter and the worker read and report.

    *load_application* is called in the worker, which owns the threads and children that it starts.
    It sets ``context``, which is called for the TLS context of each new connection to the first
    *with_tls* of the addresses.
    """

    def __init__(
        self,
        *,
        listen: Collection[str],
        load_application: Callable[[], Application],
        with_tls: int = 1,
        client_names: Collection[str] = (),
        drain_seconds: float = 0.0,
        **settings: Any,
    ) -> None:
        """Serve clients whose certificate has one of the *client_names*; without names, any.

        *settings* are gunicorn's.
        """
        self.context: Callable[[], ssl.SSLContext | None] = lambda: None
        """Returns None while there is no certificate."""
        self.on_error: Callable[[str], object] = logging.getLogger("gunicorn.error").error
        self.with_tls, self.client_names = with_tls, client_names
        self.drain_seconds = drain_seconds
        self.draining = False
        """Set by the worker: this server is shutting down, and not ready for new clients."""
        self.in_flight: Callable[[], int] = int
        """Set by the worker: returns the count of whole messages whose turn is to come."""
        self.unanswered: Mapping[str, int] = {}
        """Set by the worker: count of what got no answer of the application, by reason."""
        self._load_application = load_application
        self._given = {
            "bind": list(listen),
            "graceful_timeout": round(drain_seconds) + _AFTER_DRAIN_SECONDS,
            "ssl_context": lambda _config, _default: self.context(),
            **settings,
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in {**runpy.run_path(str(_CONF)), **self._given}.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Application:
        return self._load_application()

    def run(self) -> None:
        """Serve until a signal ends the process, in a child that is restarted if it dies."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = max(soft, _ENOUGH_FILES)
        resource.setrlimit(
            resource.RLIMIT_NOFILE,
            (files if hard == resource.RLIM_INFINITY else min(hard, files), hard),
        )
        OneWorkerArbiter(self).run()

    def worker_of_this_process(self) -> BufferedWorker:
        """Return a worker that serves in the thread that calls ``run``, without an arbiter.

        Raises:
            OSError, ValueError: an address cannot be bound, or is not ``host:port``.

        """
        listeners = [_listener(*split_address(address)) for address in self._given["bind"]]
        log = logging.getLogger("gunicorn.error")
        worker = BufferedWorker(0, os.getppid(), listeners, self, 0, self.cfg, log)
        worker.prepare()
        return worker


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


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
        """Do nothing: a second worker beside the first would have a ledger of its own."""
        self.log.info("nothing to reload: settings are read at start, certificates by themselves")

    handle_usr2 = handle_ttin = handle_ttou = handle_hup


class ServerLog(Logger):  # type: ignore[misc]
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(_JsonLine())

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        if msg.startswith("Listening at"):
            # gunicorn is not told of the certificates, which only the first address has.
            args = tuple(str(arg).replace("http:", "https:", 1) for arg in args)
        super().info(msg, *args, **kwargs)


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": "server",
            "msg": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1]:
            line["error"] = faults.describe(record.exc_info[1])
        return json.dumps(line, separators=(",", ":"))
