"""Processes that do nothing for a while, as on a machine that is starved or suspended."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from hack.waiting import wait_for


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stop processes, and let them go on in the end.

    The signal returns before a process that runs on another CPU has taken it: what happened in
    that moment would sometimes be seen by it, and sometimes not.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: all(map(_has_stopped, pids)), "the processes have stopped")
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _has_stopped(pid: int) -> bool:
    """Return whether each thread of a process is stopped (proc(5): state T)."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)
