"""Starts the observer's process.

It imports nothing else of the server, so that the observer can be started before the server itself
is imported: both take about as long, and need two processors rather than twice the time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

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
