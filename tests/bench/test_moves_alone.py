"""The reviews with which the bench moves Jobs, against the very code that answers them."""

import json
from dataclasses import replace

from bench import alone
from bench.moves_alone import reviews_of_moves
from bench.report import Scale
from tests.reviews import admitted
from tests.servers import Server
from webhook.state.snapshot_file import snapshot_of


def test_a_job_is_moved_back_and_forth_again_and_again():
    items = ((item, "played") for item in alone.items(Scale(workloads=40, queues=2)))
    server = Server(replace(snapshot_of(items, 100.0), generation=1))

    def ask(review):
        return server.post(json.dumps(review)).get_json()

    there, back = reviews_of_moves(ask)

    for sent, queue in ((there, "gpu-lq"), (back, "cpu-lq")) * 2:
        answer = server.post(json.dumps(sent))
        moved = admitted(answer.data, sent["request"]["object"])
        assert queue_of(sent["request"]["oldObject"]) != queue == queue_of(moved)


def queue_of(job):
    return job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
