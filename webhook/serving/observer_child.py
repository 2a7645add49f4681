"""Starts the observer's process: the first one as a fork, later ones as a program of their own.

A fork shares with its server all that is imported, and imports nothing again. But a process can
fork safely only while it has one thread, and no secret and no client yet.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn, Self

from webhook.server import lifecycle
from webhook.settings import Settings


def command(settings: Settings) -> tuple[str, ...]:
    """Return the command line of the observer.

    ``-P`` keeps the current folder out of its imports.
    """
    return (sys.executable, "-P", "-m", "webhook.observer", settings.model_dump_json())


def start(command_line: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start it with a pipe at each end; it ends when its standard input closes."""
    return subprocess.Popen(  # noqa: S603 - our own program
        command_line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class ForkedChild:
    """A fork of this process, used as a ``subprocess.Popen`` with a pipe at each end."""

    def __init__(self, run: Callable[[], NoReturn]) -> None:
        """Fork; the child calls *run*, with none of this process's files and signal handlers."""
        (child_in, stdin), (stdout, child_out), (stderr, child_err) = (os.pipe() for _ in range(3))
        child_ends = (child_in, child_out, child_err)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(run, child_ends)
        for end in child_ends:
            os.close(end)
        self.stdin: IO[bytes] = os.fdopen(stdin, "wb", buffering=0)
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        self.stderr: IO[bytes] = os.fdopen(stderr, "rb")
        self._code: int | None = None
        self._lock = threading.Lock()
        """Held while it is reaped or sent a signal: once it is reaped, its id may be another's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self.wait()

    def poll(self) -> int | None:
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if pid else None
            return self._code

    def wait(self) -> int:
        # Without the lock, and without reaping: another thread may do that meanwhile.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        code = self.poll()
        return lifecycle.FAILED if code is None else code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self._code is None:
                os.kill(self.pid, number)


def _become(run: Callable[[], NoReturn], standard: Sequence[int]) -> NoReturn:
    """Be another process from here on, and end with it: the caller is never returned to."""
    try:
        signal.set_wakeup_fd(-1)
        for caught in signal.valid_signals():
            if callable(signal.getsignal(caught)):
                signal.signal(caught, signal.SIG_DFL)
        for number, end in enumerate(standard):
            os.dup2(end, number)
        # The port, the pipes of signals, and the other ends of its own pipes.
        os.closerange(3, max(int(file.name) for file in Path("/dev/fd").iterdir()) + 1)
        run()
    finally:
        _end()


def _end() -> NoReturn:
    """End the process, after the error that is on its way was written."""
    try:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(lifecycle.FAILED)
