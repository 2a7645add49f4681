"""What a controller has seen of Jobs that are over."""

import json

from tests.builders import cluster_queue, policy, snapshot
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.hindsight.entries import FinishedRun
from webhook.hindsight.journal import SUCCEEDED, JournalEntry

NAMESPACE = "ours"
ENDED = 1_800_000_000
TEMPLATE = {
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
}
PODS = json.dumps([{"name": "main", "count": 1, "template": TEMPLATE}])
WORLD = snapshot(
    cluster_queue("gpu-cq"),
    local_queues={"gpu-lq": "gpu-cq", "other-lq": "other-cq"},
    policies=(policy(),),
)


def past(key="w-1", *, finished=ENDED, queue="gpu-lq", job_uid="j-1", **rest):
    given = {
        "key": key,
        "namespace": "team",
        "uid": job_uid,
        "name": "train",
        "created": finished - 100,
        "admitted": finished - 60,
        "finished": finished,
        "outcome": SUCCEEDED,
        "queue": queue,
        "cluster_queue": "gpu-cq",
        "flavors": "t4",
        "kind": "Job",
        "submitted": PODS,
        "ran": PODS,
        "job_class": "a-class",
        "coarse": "~a",
    }
    return JournalEntry(**{**given, **rest})


def over(*pasts):
    entries = tuple(
        ReadObject((each.namespace, each.key), FinishedRun(None, each)) for each in pasts
    )
    return WatchUpdate(kind="runs", at=0.0, entries=entries)
