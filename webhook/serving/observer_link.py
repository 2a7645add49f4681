"""The server's end of the pipe: starts the observer, takes what it says, and restarts it.

Both ends say picklable objects: the observer its updates and the lines of its log, the server the
lines of its decisions. What is in an update or in a line is not known here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from webhook.settings import Settings
from webhook.state.pipe import Update

_Child: TypeAlias = subprocess.Popen[bytes]
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Longest time without a message; there are two a second. Starting and sending the first lists
takes seconds, on a machine without spare CPU many more. The state is too old long before."""
_RECENT_SECONDS = 60.0
_STARTS_KEPT = 100
_HEALTHY_SECONDS = 30.0
"""After a child that lived so long, the wait before a restart is the shortest again."""
_ENDING_SECONDS = 1.0
"""How long a child whose pipe is closed may take to end."""
_MOST_WAITING = 100
"""Messages to the child; what it does not take in time is dropped, as nobody waits for it."""


def command(settings: Settings) -> tuple[str, ...]:
    """Return the command line of the observer, to which the pipe's descriptor is added.

    ``-P`` keeps the current folder out of its imports.
    """
    return (sys.executable, "-P", "-m", "webhook.observer", settings.model_dump_json())


class ObserverLink:
    """Keeps one observer running; *on_update* and *on_log* are called from its own thread.

    The child ends when its end of the pipe closes, so it never outlives this process. One that
    sends nothing, because it hangs or loops, is killed and started again.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_update: Callable[[Update], None],
        on_log: Callable[[Mapping[str, Any]], None],
        on_start: Callable[[], object] = lambda: None,
        *,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Start the *command*, with the other end of a pipe, and again whenever it ends."""
        self._command = tuple(command)
        self._on_update = on_update
        self._on_log = on_log
        self._on_start = on_start
        self._silent_seconds = silent_seconds
        self._starts: deque[float] = deque(maxlen=_STARTS_KEPT)
        self._stopped = threading.Event()
        self._child: _Child | None = None
        self._waiting: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
        self._pipe: Connection | None = None
        self._sending = threading.Lock()
        """Held while a message is sent: the pipe must not be closed then."""
        self._threads = tuple(
            threading.Thread(target=run, name=f"observer {run.__name__}", daemon=True)
            for run in (self._follow, self._send)
        )

    @property
    def pid(self) -> int | None:
        """Process id of the child; None: none is running."""
        return self._child.pid if self._child and self._child.poll() is None else None

    def notice(self) -> str:
        """Return that the child was started again within the last minute; empty: it was not."""
        since = time.monotonic() - _RECENT_SECONDS
        # The very first start is not a restart.
        count = sum(at > since for at in tuple(self._starts)[1:])
        times = "once" if count == 1 else f"{count} times"
        return f"the observer was started again {times} within a minute" if count else ""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def tell(self, lines: Sequence[str]) -> None:
        """Send lines to the child, if it takes what was sent before."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(lines)

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """End the child and wait for it."""
        self._stopped.set()
        if self._child is not None:
            self._child.kill()
        self._threads[0].join(timeout_seconds)

    def _send(self) -> None:
        while True:
            lines = self._waiting.get()
            with self._sending, contextlib.suppress(OSError):
                if self._pipe is not None:
                    self._pipe.send(lines)

    def _follow(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while not self._stopped.is_set():
            started = time.monotonic()
            why = self._follow_one_or_say()
            if self._stopped.is_set():
                return
            if time.monotonic() - started > _HEALTHY_SECONDS:
                wait = _FIRST_WAIT_SECONDS
            self._log(f"{why}; starting it again in {wait:.1f} s")
            self._stopped.wait(wait)
            wait = min(_LONGEST_WAIT_SECONDS, 2 * wait)

    def _follow_one_or_say(self) -> str:
        """Run one child to its end; return a sentence about how it ended."""
        try:
            return f"the observer ended with {self._follow_one()}"
        except OSError as error:
            # No process, memory or file available at the moment: that passes.
            return f"the observer cannot be run: {error}"

    def _follow_one(self) -> int:
        ours, theirs = Pipe()
        with ours, theirs:
            _fail_after(ours, self._silent_seconds)
            given = theirs.fileno()
            with subprocess.Popen(  # noqa: S603 - our own program
                (*self._command, str(given)), stdin=subprocess.DEVNULL, pass_fds=(given,)
            ) as child:
                theirs.close()
                self._child, self._pipe = child, ours
                self._starts.append(time.monotonic())
                self._on_start()
                if self._stopped.is_set():
                    child.kill()
                self._take_all(ours, child)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_ENDING_SECONDS)
                child.kill()
            with self._sending:
                self._pipe = None
            return child.returncode

    def _take_all(self, ours: Connection, child: _Child) -> None:
        """Take what the child says until it ends; kill it if it says nothing for too long."""
        try:
            while True:
                message = ours.recv()
                if isinstance(message, Update):
                    self._on_update(message)
                else:
                    self._on_log(message)
        except BlockingIOError:
            self._log(f"the observer has been silent for {self._silent_seconds:.0f} s")
            child.kill()
        except (EOFError, OSError, pickle.UnpicklingError):
            # It has ended, maybe in the middle of a message.
            pass

    def _log(self, text: str) -> None:
        self._on_log({"level": "error", "process": "observer", "msg": text})


def _fail_after(pipe: Connection, seconds: float) -> None:
    """Let reading from the *pipe* raise BlockingIOError after so long without a byte."""
    whole, part = divmod(seconds, 1)
    limit = struct.pack("ll", int(whole), int(part * 1_000_000))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
