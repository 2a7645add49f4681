"""What is read off a process."""

import subprocess
import sys
import time

from hack import meters


def test_a_process_is_as_old_as_it_has_been_running():
    started = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        time.sleep(0.2)
        age = meters.age_seconds(process.pid)
        passed = time.monotonic() - started
        process.kill()

    # The kernel counts in hundredths.
    assert 0.15 <= age <= passed + 0.02
