"""What server, observer and controller do alike as processes: they end, and spare the collector."""

from __future__ import annotations

import gc
import os
import threading

FAILED = 70
"""The exit code after a bug, as EX_SOFTWARE of sysexits.h."""


def end_with(failure: threading.ExceptHookArgs) -> None:
    """End the process, to be restarted, rather than go on without one of its threads."""
    try:
        threading.__excepthook__(failure)
    finally:
        os._exit(FAILED)


def exempt_from_collection() -> None:
    """Exempt what is there from garbage collection: its pauses are the longest that there are."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
