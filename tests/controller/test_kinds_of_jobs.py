"""What the controller does for Jobs it does for every kind that is switched on and served."""

import time

import pytest

from tests.builders import policy as read_policy
from tests.controller.fakes import Elector, Followed
from tests.controller.moving import Cluster, Moving, feed, job, list_pending, step, tell
from tests.controller.moving import policy_object as rules
from tests.controller.objects import Objects
from tests.controller.stepping import at
from tests.controller.watched_jobs import STAMP, STARTED, Replica, missed
from tests.reconsider.queued_jobs import waiting
from tests.servers import paper_snapshot
from tests.state.kueue import IMAGE, configuration, deployment
from webhook.api import resources as kinds
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches
from webhook.controller.job_events import JobEvents
from webhook.jobs import BY_NAME
from webhook.model.queues import KueueConfig
from webhook.model.reasons import Obstacle
from webhook.reconsider import pending_jobs
from webhook.settings import Settings
from webhook.state.readers import read_by_kind
from webhook.state.snapshot import updated
from webhook.state.watched import signing_keys, watched

__all__ = ["feed"]

RAYJOB, JOBSET, PYTORCHJOB = (BY_NAME[name] for name in ("RayJob", "JobSet", "PyTorchJob"))
FRAMEWORKS = ("batch/job", *(kind.framework for kind in (RAYJOB, JOBSET, PYTORCHJOB)))


def spec_of(kind, template):
    if kind is RAYJOB:
        head = {"headGroupSpec": {"rayStartParams": {}, "template": template}}
        return {"suspend": True, "submissionMode": "HTTPMode", "rayClusterSpec": head}
    if kind is JOBSET:
        replicated = {"name": "workers", "template": {"spec": {"template": template}}}
        return {"suspend": True, "replicatedJobs": [replicated]}
    specs = {"Worker": {"replicas": 1, "template": template}}
    return {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": specs}


def stored(kind, number, **given):
    """A batch Job of the other tests, as one of a kind."""
    plain = job(number, **given)
    spec = spec_of(kind, plain["spec"]["template"])
    return {**plain, "apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}


def owned(kind, number):
    found = waiting(number)
    found["metadata"]["ownerReferences"][0]["kind"] = kind.kind
    return found


class Server(Cluster):
    """An API server of one kind's Jobs."""

    def __init__(self, kind, **version):
        super().__init__(**version)
        self.kind = kind

    def patch(self, path, body):
        super().patch(path, body)
        number = path.rpartition("-")[2]
        return stored(self.kind, number, option=self.moved_to(body), moves=1, version="2")


@pytest.fixture
def managed(feed):
    """The queues with a Kueue that is told of these kinds."""
    text = "integrations: {frameworks: [" + ", ".join(FRAMEWORKS) + "]}"
    entry = read_by_kind(kinds.KUEUE_CONFIG, configuration(text))
    feed.take(WatchUpdate(kind=kinds.KUEUE_CONFIG, at=0.0, entries=(entry,)))
    return feed


def wait_in_line(feed, kind):
    first = waiting(0)
    tell(feed, kinds.WORKLOADS, first, *(owned(kind, number) for number in range(8)))


@pytest.mark.parametrize("kind", [RAYJOB, PYTORCHJOB], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("minor", ["36", "29"])
def test_one_that_may_change_is_asked_to_move_by_its_kind(managed, kind, minor):
    cluster = Server(kind, minor=minor)
    found = Moving(cluster)
    list_pending(found, *(stored(kind, number) for number in range(8)), kind=kind)
    wait_in_line(managed, kind)

    stepped = step(found, managed)

    ((path, body),) = cluster.patched
    assert path.startswith(f"{kind.path('team')}/job-")
    assert body["metadata"]["annotations"]["kueue-fallback.dev/move-to"] == "cpu"
    assert (stepped.counts, found.in_flight) == ({}, 1)


def test_what_is_immutable_of_a_kind_keeps_it_where_it_is(managed):
    found = Moving(Server(JOBSET))
    list_pending(found, *(stored(JOBSET, number) for number in range(8)), kind=JOBSET)
    wait_in_line(managed, JOBSET)

    step(found, managed)

    assert found.obstacles == {("light-gpu", Obstacle.IMMUTABLE_RESOURCES): 8}


def metadata_of(kind, name="train", **annotations):
    return {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "creationTimestamp": STAMP,
        "labels": {"kueue.x-k8s.io/queue-name": "gpu-lq", "workload-type": "light-gpu"},
        "annotations": annotations,
    }


def told(kind, metadata, event="ADDED"):
    resource = followed_watches.followed(kind)
    entry = resource.read(resource.kind, {"metadata": metadata})
    return WatchUpdate(kind=resource.kind, at=5.0, event=(event, entry))


@pytest.mark.parametrize("kind", [RAYJOB, JOBSET], ids=lambda kind: kind.kind)
def test_one_that_came_without_a_review_is_fetched_by_its_kind_and_counted(kind):
    fetched = []
    template = job(1)["spec"]["template"]
    whole = {"metadata": metadata_of(kind), "spec": spec_of(kind, template)}
    named = Replica(lambda *key: fetched.append(key) or whole)
    policy = read_policy(match={"jobSelector": {}, "kinds": [kind.kind]}, mode="Enforce")
    config = KueueConfig(frameworks=FRAMEWORKS)
    named.show(updated(paper_snapshot(kueue=config), policies=(policy,)), STARTED)
    named.unreviewed.take(WatchUpdate(kind=kind.plural, at=1.0, entries=()))

    named.unreviewed.take(told(kind, metadata_of(kind)))

    name = f"{kind.kind.lower()}/train"
    assert named.found() == missed(name)
    assert fetched == [("team", name)]


def test_an_event_names_the_kind_that_it_is_about():
    written = []

    class Api:
        def post(self, path, body):
            written.append((path, body["involvedObject"]))
            return body

    events = JobEvents(Api(), is_leader=lambda: True, unix=lambda: STARTED + 60)
    undone = {"kueue-fallback.dev/undone": "light-gpu", "kueue-fallback.dev/policy": "none"}

    events.take(told(RAYJOB, metadata_of(RAYJOB, **undone)))
    events.step(at(0.0, STARTED + 60))

    assert written == [
        (
            "/api/v1/namespaces/team/events",
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "namespace": "team",
                "name": "train",
                "uid": "uid-train",
            },
        )
    ]


class Policies(Objects):
    """It lists one policy for RayJobs, and keeps its status."""

    def __init__(self):
        super().__init__()
        metadata = {"name": "light-gpu", "generation": 1, "resourceVersion": "9"}
        self.policy = {**rules(), "metadata": metadata}
        self.policy["spec"]["match"]["kinds"] = ["RayJob"]
        self.said = []

    def get(self, path, params=None):
        if path == kinds.our_path(kinds.POLICIES):
            return {"items": [self.policy]}
        return super().get(path, params)

    def patch(self, path, body):
        self.policy["status"] = body["status"]
        self.said.append(body["status"]["conditions"][0]["message"])
        return body


class Watching(Followed):
    """What it follows is written down."""

    def __init__(self, *given, **named):
        self.follows = []
        super().__init__(*given, **named)

    def _follow(self, resource, client):
        self.follows.append(resource.kind)


@pytest.fixture
def replica():
    elector = Elector()
    elector.said = 1
    switched_on = Settings(kinds=("Job", "RayJob", "Deployment"))
    cluster = Policies()
    found = Watching(switched_on, cluster, jobs_client=cluster, elector=elector, log=lambda _: None)
    found.cluster = cluster
    frameworks = "integrations: {frameworks: [batch/job, ray.io/rayjob, deployment]}"
    held = {
        kinds.POLICIES: (
            ReadObject(
                ("", "light-gpu"),
                read_policy(
                    match={"jobSelector": {}, "kinds": ["RayJob"]}, reconsider={}, mode="Enforce"
                ),
            ),
        ),
        kinds.KUEUE_CONFIG: (read_by_kind(kinds.KUEUE_CONFIG, configuration(frameworks)),),
        kinds.KUEUE_DEPLOYMENT: (read_by_kind(kinds.KUEUE_DEPLOYMENT, deployment(image=IMAGE)),),
    }
    names = Settings()
    every = watched(namespace=names.namespace, kueue_namespace=names.kueue_namespace)
    for resource in (*every, signing_keys(names.namespace)):
        if resource.kind != kinds.WORKLOADS:
            list_of(found, resource.kind, *held.get(resource.kind, ()))
    list_of(found, "jobs")
    list_of(found, "deployments")
    yield found
    found.leadership.stop()


def list_of(controller, kind, *entries, served=True):
    message = WatchUpdate(kind=kind, at=time.monotonic(), entries=entries, served=served)
    controller.put(message)


def turn(controller):
    for _ in range(2):
        controller.put(None)
        controller.step()


def test_a_kind_that_is_not_served_is_named_until_it_is(replica):
    list_of(replica, "rayjobs", served=False)
    turn(replica)
    unserved = list(replica.cluster.said)
    list_of(replica, "rayjobs")
    turn(replica)

    words = "spec.match.kinds[0]: the cluster serves no rayjobs of ray.io/v1"
    assert [words in said for said in unserved] == [True]
    assert words not in replica.cluster.said[-1]


def test_only_what_is_served_and_may_be_moved_is_followed_whole(replica):
    list_of(replica, "rayjobs", served=False)
    turn(replica)
    before = [name for name in replica.follows if name.startswith("pending")]
    list_of(replica, "rayjobs")
    turn(replica)

    assert before == []
    assert [name for name in replica.follows if name.startswith("pending")] == ["pendingrayjobs"]


def test_the_list_of_one_kind_replaces_no_job_of_another(managed):
    cluster = Server(RAYJOB)
    found = Moving(cluster)
    list_pending(found, *(stored(RAYJOB, number) for number in range(8)), kind=RAYJOB)
    list_pending(found)
    wait_in_line(managed, RAYJOB)

    step(found, managed)

    assert len(cluster.patched) == 1


def test_those_of_a_kind_whose_watch_is_silent_are_not_moved(managed):
    cluster = Server(RAYJOB)
    found = Moving(cluster, max_state_age=15.0)
    list_pending(found, *(stored(RAYJOB, number) for number in range(8)), kind=RAYJOB)
    wait_in_line(managed, RAYJOB)
    managed.update(20.0, 0.0)
    for resource in (kinds.CLUSTER_QUEUES, kinds.LOCAL_QUEUES, kinds.POLICIES):
        managed.take(WatchUpdate(kind=resource, at=20.0))
    failed = WatchUpdate(kind=pending_jobs.followed(RAYJOB).kind, at=20.0, error="no route")

    assert found.part.take(failed) == ("pendingrayjobs: no route",)
    step(found, managed, now=20.0)
    assert cluster.patched == []
