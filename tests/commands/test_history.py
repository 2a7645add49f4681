"""What `report` reads of a cluster, with the rights of whoever asks."""

import pytest

from tests.hindsight.slots import entry
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from tests.state.objects import NAMESPACE, cluster_queue, local_queue, reserving
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.commands import history
from webhook.hindsight.journal import SLOT_SECONDS, Slot, config_map

JOBS = "/apis/batch/v1/jobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"


class Cluster:
    """Lists by path; with *rights*, only those lists are allowed."""

    def __init__(self, lists, rights=None):
        self.lists = lists
        self.rights = rights

    def kueue_version(self):
        return "v1beta2"

    def get(self, path, params=None):
        if self.rights is not None and path not in self.rights:
            raise Forbidden(path, f"{path} is forbidden")
        key = path, (params or {}).get("labelSelector", "")
        if key not in self.lists and path not in self.lists:
            raise NotServed(path)
        return {"items": self.lists.get(key) or self.lists[path]}


def decided_job():
    job, _ = Server(paper_snapshot()).create(light_job("train", uid="j-1"))
    return job


def workload():
    found = reserving("job-train-1", queue="cpu-lq", job="train")
    found["metadata"]["uid"] = "w-1"
    found["metadata"]["ownerReferences"][0]["uid"] = "j-1"
    return found


def read(cluster, since=0.0):
    return history.from_cluster(cluster, own_namespace="ours", namespace=NAMESPACE, since=since)


def test_the_journal_and_what_is_still_there_are_put_together():
    journal = config_map(Slot(number=5, entries={"w-0": entry("w-0")}, left_out=3))
    configs = "/api/v1/namespaces/ours/configmaps"
    lists = {
        JOBS: [decided_job()],
        WORKLOADS: [workload()],
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues": [cluster_queue()],
        "/apis/kueue.x-k8s.io/v1beta2/localqueues": [local_queue()],
        (configs, "kueue-fallback.dev/records=journal"): [journal],
    }

    found = read(Cluster(lists))

    keyed = {each.key: each for each in found.entries}
    assert sorted(keyed) == ["w-0", "w-1"]
    assert (keyed["w-1"].option, keyed["w-1"].outcome) == ("cpu", "")
    assert (found.left_out, found.unread) == (3, ())
    assert set(found.state.snapshot(0.0, 0.0).setup.cluster_queues) == {"gpu-cq"}


@pytest.mark.parametrize(
    ("since", "keys", "oldest"),
    [
        (0.0, ["w-5", "w-6", "w-7"], 5),
        (6.5 * SLOT_SECONDS, ["w-6", "w-7"], 6),
        (9.0 * SLOT_SECONDS, [], None),
    ],
)
def test_of_a_long_journal_only_the_hours_that_are_asked_about_are_read(since, keys, oldest):
    # Objects of a ring of 32 say their hour, too, wherever they lie.
    slots = [Slot(number=hour, entries={f"w-{hour}": entry(f"w-{hour}")}) for hour in (7, 5, 6)]
    records = ("/api/v1/namespaces/ours/configmaps", "kueue-fallback.dev/records=journal")
    lists = {JOBS: [decided_job()], WORKLOADS: [], records: [config_map(each) for each in slots]}

    found = read(Cluster(lists), since)

    assert sorted(each.key for each in found.entries) == keys
    assert found.oldest_slot == oldest


def test_who_sees_one_namespace_gets_its_jobs_and_is_told_what_is_missing():
    mine = {path.replace("/v1", f"/v1/namespaces/{NAMESPACE}") for path in (JOBS,)}
    mine |= {WORKLOADS.replace("v1beta2", f"v1beta2/namespaces/{NAMESPACE}")}
    lists = {path: [decided_job() if "jobs" in path else workload()] for path in mine}

    found = read(Cluster(lists, rights=mine))

    assert [each.key for each in found.entries] == ["w-1"]
    assert found.state is None
    assert "/api/v1/namespaces is forbidden" in found.unread
