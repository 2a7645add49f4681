"""What `kubectl describe` tells of a Job that was decided, moved and undone, on a real Kueue."""

import re

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, fill, finish_time, queue_of
from tests.e2e.moving import FASTER, RULES, hold, is_refused
from tests.e2e.plane import job_of

OURS = re.compile(r"^ +Normal +(\w+) +\S+(?: \(.*\))? +kueue-fallback +(.*)$", re.MULTILINE)


@pytest.fixture
def policy(plane, webhook, queues):
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = {**RULES, "after": "1h"}
    with applied_policy(plane.client, found, queues):
        yield found


def events(plane, queues, name):
    """Read the Events of ours that `kubectl describe` shows, in no given order."""
    shown = plane.kubectl("describe", "job", name, "-n", queues.namespace)
    assert shown.returncode == 0, shown.stderr
    return dict(OURS.findall(shown.stdout))


def told(plane, queues, name, *reasons):
    return wait_for(
        lambda: found if set(found := events(plane, queues, name)) == set(reasons) else None,
        f"Events {reasons} on Job {name}",
    )


def test_describe_shows_what_was_decided_moved_and_undone(plane, queues, policy):
    client = plane.client
    fill(plane, queues, gpu=0, cpu=6)
    hold(client, queues.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "gpu"), "the GPU queue is known to be stopped")
    for name in ("one", "other"):
        job = client.create(paper.light_job(name, queues, faster=FASTER))
        assert queue_of(job) == queues.cpu_queue
    decided = told(plane, queues, "one", "Decided")

    asked = plane.kubectl(
        "annotate", "job", "one", "-n", queues.namespace, "kueue-fallback.dev/move-to=none"
    )
    hold(client, queues.gpu_cluster_queue, "None")
    wait_for(lambda: not is_refused(client, queues, "gpu"), "the GPU queue is open")
    moved = plane.kubectl(
        "annotate", "job", "other", "-n", queues.namespace, "kueue-fallback.dev/move-to=gpu"
    )

    one = told(plane, queues, "one", "Decided", "Undone")
    other = told(plane, queues, "other", "Decided", "Moved")
    assert (asked.returncode, moved.returncode) == (0, 0)
    assert queue_of(job_of(client, queues.namespace, "other")) == queues.gpu_queue
    assert decided["Decided"].startswith(f"sent to {queues.cpu_queue} (cpu): ")
    assert "(changed: queue, nvidia.com/gpu, " in decided["Decided"]
    assert one["Undone"] == (
        f"undone: in {queues.gpu_queue} as submitted; policy {queues.policy} decides it no more"
    )
    assert other["Moved"] == f"moved to {queues.gpu_queue} (gpu): as asked"


def test_a_job_that_stays_has_no_event_of_ours(plane, queues, policy):
    client = plane.client
    stays = client.create(paper.light_job("stays", queues, faster=FASTER))
    fill(plane, queues, gpu=0, cpu=6)
    hold(client, queues.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "gpu"), "the GPU queue is known to be stopped")
    client.create(paper.light_job("goes", queues, faster=FASTER))

    told(plane, queues, "goes", "Decided")

    assert queue_of(stays) == queues.gpu_queue
    assert events(plane, queues, "stays") == {}
