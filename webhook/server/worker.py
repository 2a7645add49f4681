"""A gunicorn worker of one thread that polls all sockets and blocks on none of them.

A message is answered where it was read, once it is complete: the handler waits for nothing
either, so that threads would add only the hand-overs between them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import resource
import selectors
import time
from typing import Any

from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker

from webhook.model import faults
from webhook.server.connections import Clients

END_SECONDS = 4.0
"""From the end of the drain to the end of the worker, at most."""
HURRY_SECONDS = 1.5
"""The same after SIGQUIT; gunicorn kills the worker after 2."""
_ACCEPTED_AT_ONCE = 32
_PAUSE_SECONDS = 0.5
_ENOUGH_FILES = 4096
_SPARE_FILES = 100
"""Kept free for the observer's pipes, probes and certificates."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BROKEN = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})


class PollingWorker(Worker):  # type: ignore[misc]
    """Serves ``app.wsgi()`` with the certificate of ``app.context()``; sets ``app.draining``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._listening = False
        self._listen_at = self._notified = 0.0
        self._stop_at = self._end_at = math.inf

    # The arbiter's signals; the byte that each writes to the worker's pipe wakes the poller.

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002
        """On SIGTERM, serve on for the drain, with each answer the last of its connection."""
        self.app.draining = True
        self._stop_at = min(self._stop_at, time.monotonic() + self.app.drain_seconds)

    def handle_quit(self, sig: int, frame: object) -> None:  # noqa: ARG002
        """On SIGQUIT or SIGINT, answer what has been received, then end."""
        self.app.draining = True
        self._stop_at = min(self._stop_at, time.monotonic())
        self._end_at = min(self._end_at, time.monotonic() + HURRY_SECONDS)

    def run(self) -> None:
        with selectors.DefaultSelector() as poller:
            self._poller = poller
            self._clients = Clients(
                poller,
                self.wsgi,
                limit=min(self.cfg.worker_connections, _files() - _SPARE_FILES),
                keep_alive_seconds=self.cfg.keepalive,
                on_error=self.log.error,
                names=self.app.client_names,
            )
            self.app.in_flight = self._clients.in_flight
            self.app.unanswered = self._clients.unanswered
            self.app.put_off = self._clients.put_off
            poller.register(self.PIPE[0], selectors.EVENT_READ, (_empty, self.PIPE[0]))
            while (now := time.monotonic()) < self._stop_at:
                self._turn(now, self._stop_at)
            self._stop(now)
            while len(self._clients) and (now := time.monotonic()) < self._end_at:
                self._turn(now, self._end_at)
            self._clients.close()

    def _turn(self, now: float, until: float) -> None:
        self._check_process(now)
        self._clients.draining = self.app.draining
        wait = min(1.0, until - now, self._clients.idle_seconds(now))
        for key, _ in self._poller.select(max(0.0, wait)):
            step, subject = key.data
            step(subject)
        self._clients.work()

    def _check_process(self, now: float) -> None:
        if now - self._notified >= 1.0:
            self._notified = now
            self.notify()
            if os.getppid() != self.ppid:
                self.log.warning("the arbiter is gone; ending")
                self.handle_quit(0, None)
        if not self._listening and self._listen_at <= now < self._stop_at:
            self._listening = True
            for listener in self.sockets:
                listener.setblocking(False)
                self._poller.register(listener, selectors.EVENT_READ, (self._accept, listener))

    def _stop(self, now: float) -> None:
        """Accept the connections that wait, stop listening, and let all connections finish."""
        self._end_at = min(self._end_at, now + END_SECONDS)
        for listener in self.sockets if self._listening else ():
            while self._accept(listener) and self._listening:
                pass
        self._pause()
        for listener in self.sockets:
            listener.close()
        self._clients.let_go()

    def _pause(self) -> None:
        if self._listening:
            self._listening = False
            for listener in self.sockets:
                self._poller.unregister(listener)

    def _accept(self, listener: Any) -> bool:
        """Accept some waiting connections; return whether there may be more."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _address = listener.accept()
            except OSError as error:
                if error.errno in _BROKEN:
                    raise
                if error.errno in _NO_ROOM and not self._clients.make_room():
                    # No connection of ours can be closed, so accepting again at once would only
                    # spin.
                    self._pause()
                    self._listen_at = time.monotonic() + _PAUSE_SECONDS
                return False
            self._clients.welcome(client, self.app.context())
        return True


def _empty(pipe: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(pipe, 4096)


def _files() -> int:
    """Return how many files may be open, after raising the soft limit as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(
        soft, _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    # However few files are allowed, some clients can be served.
    return max(wanted, 2 * _SPARE_FILES)


class ServerLog(Logger):  # type: ignore[misc]
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(_JsonLine())

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        if msg.startswith("Listening at"):
            # gunicorn does not know of the certificates, and so logs plain HTTP.
            args = tuple(str(arg).replace("http:", "https:") for arg in args)
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
