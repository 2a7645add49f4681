"""`make up` leaves nothing behind, whenever it is ended; no control plane is started here."""

import re
import signal
import subprocess
import sys
import uuid

import pytest

from hack import up
from hack.cluster import ROOT, Cluster

ENDED_WHILE_LOCKING = """
import os, signal, sys
from hack import up
from hack.cluster import Cluster

# A shell without job control starts what runs in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def is_current(self, descriptor):
    os.kill(os.getpid(), {ending})
    return True

Cluster._is_current = is_current
sys.argv = ["up", "--bare", "--name", "{name}"]
up.main()
"""


ENDED_IN_A_FINALIZER = """
import contextlib, os, signal, sys
from hack import up

signal.signal(signal.SIGINT, signal.default_int_handler)

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), {ending})
        for _ in range(10_000):
            pass

up.tools.ensure = lambda: None
up._start_keeper = lambda *_, **__: contextlib.nullcontext()
up._follow = lambda *_: Finalized() and None
up._tell_to_keep = lambda _: os._exit(0)
sys.argv = ["up", "--bare", "--name", "{name}"]
up.main()
"""


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        pytest.param(ENDED_WHILE_LOCKING, signal.SIGINT, id="interrupted while locking"),
        pytest.param(ENDED_WHILE_LOCKING, signal.SIGHUP, id="hung up on while locking"),
        pytest.param(ENDED_IN_A_FINALIZER, signal.SIGTERM, id="ended in a finalizer"),
    ],
)
def test_an_end_leaves_no_folder_whenever_it_comes(script, ending):
    cluster = Cluster(name=f"test-{uuid.uuid4().hex[:8]}")
    script = script.format(ending=int(ending), name=cluster.name)

    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )

    left = cluster.folder.exists()
    cluster.remove()
    assert ended.returncode == 1, ended.stderr
    assert not left


def test_what_is_to_be_typed_next_names_examples_that_are_there():
    said = up.next_steps(Cluster(), bare=False)

    examples = re.findall(r"-f (examples/\S+\.yaml)", said)
    assert examples
    assert [path for path in examples if not (ROOT / path).is_file()] == []
