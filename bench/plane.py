"""A control plane with the webhook on it, for as long as something is measured."""

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from hack import load, tools
from hack.controlplane import ControlPlane, Options
from hack.install import Installation


@contextlib.contextmanager
def installed(options: Options | None = None) -> Iterator[Installation]:
    """Leave nothing of it, however it ends."""
    tools.ensure()
    load.program()
    signal.signal(signal.SIGTERM, _exit)
    folder = Path(tempfile.mkdtemp(prefix="kueue-fallback-bench-"))
    try:
        say("starting a control plane")
        with (
            ControlPlane(folder, options=options, report=say) as plane,
            Installation(plane) as installation,
        ):
            yield installation
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing is left running.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(text: str) -> None:
    """Show progress apart from the result."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(1)
