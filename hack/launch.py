"""Run a program that dies with the process that started it, even when that one is killed.

usage: launch.py PARENT_PID PROGRAM [ARGUMENT...]
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the line above took effect.
    if os.getppid() == int(parent):
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
