"""Start, stop and find again the programs of one control plane.

Nothing outlives its control plane: each program dies with its starter (see launch.py), and each
carries a mark in its environment, by which `end_leftovers` finds it and all that it started, and
never anything else.
"""

import contextlib
import dataclasses
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

LAUNCHER: Final = Path(__file__).resolve().with_name("launch.py")
MARK: Final = "KUEUE_FALLBACK_PLANE"
# The API server would wait a minute for its watchers to leave.
GRACE_SECONDS: Final = 5.0

# The kernel ends a child when the *thread* that started it ends, so one thread starts them all
# and lives as long as the process.
_STARTER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run under a name."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folder: Path | None = None
    """Where it runs; None: here."""


class Processes:
    """The running programs of one state folder, by name."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._programs: dict[str, Program] = {}
        (state / "logs").mkdir(parents=True, exist_ok=True)

    def log(self, name: str) -> Path:
        return self._state / "logs" / f"{name}.log"

    def names(self) -> tuple[str, ...]:
        return tuple(self._programs)

    def run(self, program: Program) -> None:
        """Start a program and remember how, so that `start` can start it again."""
        self._programs[program.name] = program
        self.start(program.name)

    def start(self, name: str) -> None:
        if self.is_running(name):
            raise ValueError(f"{name} is running already")
        self._running[name] = _STARTER.submit(self._spawn, self._programs[name]).result()

    def is_running(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def stop(self, name: str) -> None:
        """Ask a program to end; kill it, and all that it started, when it does not."""
        self._end(name, signal.SIGTERM)

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def died(self) -> tuple[str, ...]:
        """Name the programs that ended without having been stopped."""
        return tuple(name for name, process in self._running.items() if process.poll() is not None)

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        launch = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()))
        with self.log(program.name).open("ab") as log:
            return subprocess.Popen(
                (*launch, *program.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **program.environment, MARK: str(self._state)},
                start_new_session=True,
                cwd=program.folder,
            )

    def _end(self, name: str, first: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.send_signal(first)
        ended = os.pidfd_open(process.pid)
        try:
            select.select([ended], [], [], GRACE_SECONDS)
            # Not yet waited for, the process still owns its group's number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        finally:
            os.close(ended)


def end_leftovers(state: Path) -> int:
    """End every process that carries the mark of this state folder; return how many there were."""
    found = tuple(_marked(state))
    _signal_all(found, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := tuple(_marked(state))) and time.monotonic() < deadline:
        time.sleep(0.1)
    _signal_all(left, signal.SIGKILL)
    while tuple(_marked(state)):
        time.sleep(0.05)
    return len(found)


def _signal_all(pids: Sequence[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)


def _marked(state: Path) -> Iterator[int]:
    """Find processes by their environment; zombies have none, and other users' stay unread."""
    mark = f"{MARK}={state}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = mark in (folder / "environ").read_bytes().split(b"\0")
            if marked and folder.name != str(os.getpid()):
                yield int(folder.name)
