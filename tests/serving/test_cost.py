"""Nothing that a Job may hold costs more than its size, in the thread that answers or in the log.

Another process answers, as an expression at work lets no clock of the same one run. What costs the
square of its size needs minutes for one such Job, and all of them together some seconds.
"""

import subprocess
import sys

from tests import nasty

SIZE = 100_000


def test_no_text_and_no_shape_of_a_job_costs_more_than_its_size():
    count = sum(1 for _ in nasty.jobs(100))
    program = f"from tests import nasty; print(nasty.answer_all({SIZE}))"

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) == count
