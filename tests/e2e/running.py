"""Processes of ours that run."""

import contextlib
import os
from pathlib import Path


def processes_of(plane, name):
    """List a program's process and all that it started: they are one session."""
    session, found = plane.processes.pid(name), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
    return found
