"""The server's end of the pipe: starts the observer, reads its updates, and restarts it.

It does not know what is in an update or in a log line.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from webhook.settings import Settings
from webhook.state.pipe import Update, read_update

_Child: TypeAlias = subprocess.Popen[bytes]
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Longest time without a frame; there are two a second. Starting and sending the first lists takes
seconds, on a machine without spare CPU many more. The state is too old long before."""
_STEP_SECONDS = 5.0
_RECENT_SECONDS = 60.0
_STARTS_KEPT = 100
_HEALTHY_SECONDS = 30.0
"""After a child that lived so long, the wait before a restart is the shortest again."""


def command(settings: Settings) -> tuple[str, ...]:
    """Return the command line of the observer.

    ``-P`` keeps the current folder out of its imports.
    """
    return (sys.executable, "-P", "-m", "webhook.observer", settings.model_dump_json())


class PipeWriter:
    """Writes whole lines to a pipe without blocking; what the pipe has no room for is dropped."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        """Rest of a line that was written in part."""

    def put(self, text: bytes) -> None:
        """Write one line or several, if there is room."""
        if self._write_rest():
            self._rest = text + b"\n"
            if not self._write_rest() and len(self._rest) > len(text):
                self._rest = b""

    def _write_rest(self) -> bool:
        """Write what is left; return whether all of it was written."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._rest:
                self._rest = self._rest[os.write(self._descriptor, self._rest) :]
        return not self._rest


class ObserverLink:
    """Keeps one observer running; *on_update* and *on_log* are called from its own threads.

    The child ends when its standard input closes, so it never outlives this process. One that sends
    nothing, because it hangs or loops, is killed and started again.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_update: Callable[[Update], None],
        on_log: Callable[[str], None],
        on_start: Callable[[], object] = lambda: None,
        *,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Start the *command*, with a pipe at each end, and again whenever it ends."""
        self._command = tuple(command)
        self._on_update = on_update
        self._on_log = on_log
        self._on_start = on_start
        self._silent_seconds = silent_seconds
        self._heard: float | None = None
        """Monotonic time of the child's last frame; None: its update is being applied."""
        self._starts: deque[float] = deque(maxlen=_STARTS_KEPT)
        self._stopped = threading.Event()
        self._child: _Child | None = None
        self._lines: PipeWriter | None = None
        self._open = threading.Lock()
        """Held while lines are written: the pipe must not be closed then."""
        self._thread = threading.Thread(target=self._run, name="observer-link", daemon=True)

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

    def silent_for(self) -> float:
        """Return for how many seconds the child has sent nothing; 0 while an update is applied."""
        heard = self._heard
        return 0.0 if heard is None else time.monotonic() - heard

    def start(self) -> None:
        self._thread.start()

    def tell(self, text: bytes) -> None:
        """Write lines to the child, if there is one and its pipe has room."""
        with self._open:
            if self._lines is not None:
                self._lines.put(text)

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """End the child and wait for it."""
        self._stopped.set()
        if self._child is not None:
            self._child.terminate()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        wait = _FIRST_WAIT_SECONDS
        while not self._stopped.is_set():
            started = time.monotonic()
            why = self._follow_one_or_say()
            if self._stopped.is_set():
                return
            if time.monotonic() - started > _HEALTHY_SECONDS:
                wait = _FIRST_WAIT_SECONDS
            self._on_log(f"{why}; starting it again in {wait:.1f} s")
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
        pipe = subprocess.PIPE
        with subprocess.Popen(  # noqa: S603 - our own program
            self._command, stdin=pipe, stdout=pipe, stderr=pipe
        ) as child:
            self._child = child
            self._starts.append(time.monotonic())
            self._heard = time.monotonic()
            with self._open:
                self._lines = PipeWriter(child.stdin.fileno()) if child.stdin else None
            self._on_start()
            log = threading.Thread(target=self._pass_on, args=(child,), daemon=True)
            log.start()
            ended = threading.Event()
            threading.Thread(target=self._guard, args=(child, ended), daemon=True).start()
            if self._stopped.is_set():
                child.terminate()
            while child.stdout and (update := read_update(child.stdout)) is not None:
                self._heard = None
                self._on_update(update)
                self._heard = time.monotonic()
            ended.set()
            with self._open:
                self._lines = None
            child.terminate()
            log.join()
            return child.wait()

    def _guard(self, child: _Child, ended: threading.Event) -> None:
        """Kill the child if it sends nothing for too long."""
        left = self._silent_seconds
        while not ended.wait(min(left, _STEP_SECONDS)):
            left = self._silent_seconds - self.silent_for()
            if left <= 0:
                self._on_log(f"the observer has been silent for {self._silent_seconds:.0f} s")
                child.kill()
                return

    def _pass_on(self, child: _Child) -> None:
        for line in child.stderr or ():
            self._on_log(line.decode(errors="replace").rstrip())
