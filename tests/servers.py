"""A handler on a snapshot that a test gives, behind the WSGI application, without a socket.

Also applications with one.
"""

import contextlib
import io
import json
import threading
import weakref

from werkzeug.test import Client

from tests import builders
from tests.reviews import admitted, review
from webhook.flow.create import Rules
from webhook.serving.app import create_app, teller
from webhook.serving.decision_log import DecisionLog
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics
from webhook.state.pipe import Update, changes
from webhook.state.snapshot import Snapshot


@contextlib.contextmanager
def running(server):
    """Serve in a thread, as controller and console do, on the port that the block gets."""
    worker = server.worker_of_this_process()
    (listener,) = worker.sockets
    port = listener.getsockname()[1]
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield port
    finally:
        worker.handle_exit(0, None)
        thread.join()


GPU_CELL = {"nvidia.com/gpu": "4", "cpu": "1000", "memory": "4000Gi"}
CPU_CELL = {"cpu": "24", "memory": "60Gi"}


def paper_snapshot(*, pending=10, cpu_reserving=0, mode="Enforce", kinds=("Job",), **rest):
    """The paper's queues with a full GPU queue, and the paper's rule as a policy for *kinds*."""
    used = {"nvidia.com/gpu": "4", "cpu": "16", "memory": "24Gi"}
    cpu_used = {"cpu": str(4 * cpu_reserving), "memory": f"{6 * cpu_reserving}Gi"}
    policy = builders.policy(
        match={"kinds": kinds, "jobSelector": {"matchLabels": {"workload-type": "light-gpu"}}},
        threshold=builders.PAPER_THRESHOLD,
        mode=mode,
    )
    return builders.snapshot(
        builders.cluster_queue("gpu-cq", {"t4": GPU_CELL}),
        builders.cluster_queue("cpu-cq", {"default": CPU_CELL}),
        held={
            "gpu-cq": builders.held({"t4": used}, pending=pending, reserving=4),
            "cpu-cq": builders.held({"default": cpu_used}, reserving=cpu_reserving),
        },
        policies=(policy,),
        **{"generation": 1, "as_of": 100.0, **rest},
    )


class Server:
    """What the API server sees, and what an admin sees: answers, metrics and the log."""

    def __init__(self, snapshot=None, now=100.0, reasons_url="", **rules):
        self.now = now
        self.metrics = Metrics()
        self.considered = []
        # Nothing here refers to itself, so that a server that is no longer used ends its log at
        # once: hundreds of writers, each awake twenty times a second, would slow all tests.
        own = weakref.proxy(self)
        self.handler = Handler(
            Rules(own_namespace="kueue-fallback", **rules),
            self.metrics,
            tell=own.note,
            clock=lambda: own.now,
        )
        self.handler.reasons_url = reasons_url
        if snapshot is not None:
            self.show(snapshot)
        self.log = io.StringIO()
        self.lines = DecisionLog(self.log, self.metrics.log_dropped.inc)
        weakref.finalize(self, self.lines.close)
        self.client = Client(create_app(self.handler, self.metrics, self.lines))

    def show(self, snapshot, seen=()):
        """Publish a snapshot, as the observer does."""
        self.handler.update(
            Update(
                changed=changes(Snapshot(), snapshot),
                seen=tuple(seen),
                as_of=snapshot.as_of,
                synced=True,
            )
        )

    def post(self, body, peer="127.0.0.1"):
        base = {"REMOTE_ADDR": peer}
        return self.client.post("/mutate?timeout=2s", data=body, environ_base=base)

    def create(self, job, **request):
        """Create a Job; returns it as admitted, with the warnings."""
        return self._admit(job, review(job, **request))

    def update(self, old, new, **request):
        return self._admit(new, review(new, operation="UPDATE", old=old, **request))

    def count(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)

    def logged(self):
        self.lines.close()
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def note(self, considered, seconds):
        """Take down what the handler has considered, as the application does."""
        self.considered.append(considered)
        teller(self.metrics, self.lines)(considered, seconds)

    def _admit(self, job, sent):
        answer = self.post(json.dumps(sent))
        assert answer.status_code == 200
        response = answer.get_json()["response"]
        assert response["uid"] == sent["request"]["uid"]
        return admitted(answer.data, job), response.get("warnings", [])
