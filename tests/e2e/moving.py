"""Moves on a real control plane: rules, queues that are held, and where Jobs are."""

from hack import paper
from tests.e2e.decisions import (
    OPTION,
    probe,
)
from tests.e2e.plane import job_of

FASTER = 20.0
MOVE_TO = "kueue-fallback.dev/move-to"

RULES = {"after": "1s", "minimumGain": {"time": "5s", "percent": 5}, "maxMoves": 2}


def hold(client, cluster_queue, policy):
    """Stop a ClusterQueue, or let it go on."""
    path = client.path(paper.KUEUE, "ClusterQueue", name=cluster_queue)
    body = {"spec": {"stopPolicy": policy}}
    client.send("PATCH", path, body, content_type="application/merge-patch+json")


def wish(client, job, option):
    """Ask for a move; return the Job and the warnings."""
    body = {"metadata": {"annotations": {MOVE_TO: option}}}
    answer = client.send(
        "PATCH", client.path_of(job), body, content_type="application/merge-patch+json"
    )
    return answer.json(), " ".join(answer.warnings)


def is_refused(client, queues, option):
    found = probe(client, queues)
    return found and next(each for each in found["options"] if each["name"] == option).get(
        "rejected"
    )


def moved_to(client, queues, name, option):
    job = job_of(client, queues.namespace, name)
    return job if job["metadata"]["labels"].get(OPTION) == option else None
