"""What server, observer and controller do alike as processes: they end, and spare the collector."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
"""https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html"""
FAILED = 70
"""The exit code after a bug, as EX_SOFTWARE of sysexits.h."""


def end_with(failure: threading.ExceptHookArgs) -> None:
    """End the process, to be restarted, rather than go on without one of its threads."""
    try:
        threading.__excepthook__(failure)
    finally:
        os._exit(FAILED)


def collect_seldom() -> None:
    """Look for garbage less often: what is read by the thousand leaves none that needs it."""
    gc.set_threshold(50_000, 20, 100)


def exempt_from_collection() -> None:
    """Exempt what is there from garbage collection: its pauses are the longest that there are."""
    gc.freeze()
    collect_seldom()


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, or its process.

    On Linux only; elsewhere a child must end when its standard input does.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
