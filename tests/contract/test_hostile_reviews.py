"""Whatever comes to the running server: it goes on as it was, and answers others rightly."""

import contextlib
import json
import socket
import threading
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import strategies as st

from hack.waiting import WAIT_SECONDS, wait_for
from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from tests.contract.serving import get, observers, serve
from tests.fuzz.drawing import EXAMPLES, drawn
from tests.fuzz.objects import good, probes
from tests.fuzz.observing import decision_in
from tests.fuzz.wire import messages
from tests.reviews import review
from webhook.api import resources as kinds

AT_ONCE = 5
FLAT = 1.5
"""The memory of a process after all that, to what it was after a part of it."""
KINDS = {"kueue-manager-config": "ConfigMap", "kueue-controller-manager": "Deployment"}


class Watched(Cluster):
    """Its watches tell nothing, and close after a while."""

    def __init__(self):
        objects = [
            {**item, "kind": "MutatingWebhookConfiguration"} if kind == kinds.WEBHOOKS else item
            for kind, items in good().items()
            for item in items
        ]
        super().__init__(*objects)
        self.ends = threading.Event()

    def __call__(self, method, url, body):
        params = dict(parse_qsl(urlsplit(url).query))
        if "watch" in params:
            self.ends.wait(float(params["timeoutSeconds"]))
            return 200, [], ""
        return super().__call__(method, url, body)


@pytest.fixture
def server(certificate, tmp_path):
    cluster = Watched()
    with (
        serving(cluster, tmp_path) as kubeconfig,
        serve(certificate, tmp_path, kubeconfig) as found,
    ):
        wait_for(lambda: get(found.metrics, "/readyz")[0] == 200, "it is ready")
        yield found
        cluster.ends.set()


def decided(server):
    """What becomes of a good Job."""
    status, body = server.post(json.dumps(review(probes()["light-gpu"], dry_run=True)).encode())
    found = decision_in(json.loads(body)["response"])
    return status, found and (found["option"], found["reason"])


def send(server, message):
    """Send it as it is, and wait until it is answered or refused."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as dialled,
        server.tls.wrap_socket(dialled, server_hostname="localhost") as connection,
    ):
        connection.sendall(message)
        connection.recv(4096)


def processes(server):
    (worker,) = server.workers()
    return server.process.pid, worker, *observers(worker)


def memory(pid):
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1])


def test_hostile_messages_end_nothing_and_change_no_answer(server):
    before, running = decided(server), processes(server)
    found = drawn(st.lists(messages, min_size=AT_ONCE, max_size=AT_ONCE), max(4, EXAMPLES // 2))
    grown = {}

    for number, batch in enumerate(found):
        threads = [threading.Thread(target=send, args=(server, message)) for message in batch]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert decided(server) == before
        if number == len(found) // 2:
            grown = {pid: memory(pid) for pid in running}

    assert before[1][0] == "cpu"
    assert processes(server) == running
    assert {pid for pid in running if memory(pid) > FLAT * grown[pid]} == set()
    assert get(server.metrics, "/readyz")[0] == 200
