"""The leading controller nominates worker clusters on Workloads, one at a time."""

from dataclasses import replace

import pytest

from tests import builders
from tests.builders import cluster_queue, held
from tests.controller import moving
from tests.controller.stepping import Metered, at
from tests.controller.waiting_there import snapshot_of, state_of
from tests.state.objects import condition, workload
from webhook.api.kubernetes_api import Refused, Unreachable
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches
from webhook.controller.cluster_dispatcher import (
    AGAIN_SECONDS,
    OVERDUE_SECONDS,
    RETRY_SECONDS,
    ClusterDispatcher,
)
from webhook.decide.cluster_choice import MARGIN_SECONDS, Nomination
from webhook.jobs import JOB
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, KueueConfig, WorkerCluster
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.live_workload import applied
from webhook.state.pipe import Update, changes
from webhook.state.workload import AWAITING, awaiting, read_awaiting

RESERVED_AT = 1_000
API = "kueue.x-k8s.io/v1beta2"
STATUS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"


def waiting(
    name="job-train-1", *, nominated=(), nominated_at="1970-01-01T00:16:40Z", guest=("", "")
):
    """Return a Workload that got its quota 1000 s after 1970, as the API server sends it."""
    reserved = {**condition("QuotaReserved"), "lastTransitionTime": "1970-01-01T00:16:40Z"}
    source = workload(
        name, conditions=(reserved,), admitted_to="gpu-cq", job=name, guest=guest, cpu="1"
    )
    source["apiVersion"] = API
    source["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "7"}
    source["metadata"]["ownerReferences"][0]["uid"] = f"uid-of-{name}"
    source["status"]["admissionChecks"] = [{"name": "remote", "state": "Pending"}]
    paths = {"f:admission": {"f:clusterQueue": {}}}
    if nominated:
        source["status"]["nominatedClusterNames"] = list(nominated)
        paths["f:nominatedClusterNames"] = {}
    source["metadata"]["managedFields"] = [
        {
            "manager": "kueue-admission",
            "operation": "Apply",
            "apiVersion": API,
            "subresource": "status",
            "time": nominated_at,
            "fieldsV1": {"f:status": paths},
        }
    ]
    return source


class Server:
    """An API server with Workloads; an *answer* that is set is raised by each write."""

    def __init__(self, *sources):
        self.workloads = {source["metadata"]["name"]: source for source in sources}
        self.written, self.answer = [], None
        self.events, self.no_events = [], None

    def kueue_version(self):
        return "v1beta2"

    def get(self, path, params):
        name = params["fieldSelector"].partition("=")[2]
        assert path == STATUS
        return {"items": [self.workloads[name]] if name in self.workloads else []}

    def apply(self, path, body, *, manager):
        if self.answer is not None:
            raise self.answer
        name = body["metadata"]["name"]
        assert (path, manager) == (f"{STATUS}/{name}/status", "kueue-admission")
        self.written.append((name, tuple(body["status"]["nominatedClusterNames"])))
        return body

    def post(self, path, body):
        if self.no_events is not None:
            raise self.no_events
        assert path == "/api/v1/namespaces/team/events"
        self.events.append((body["reason"], body["involvedObject"], body["message"]))


def manager(*names, own=True, active=(), **rest):
    check = AdmissionCheck(controller=MULTIKUEUE, parameters="all")
    queue = cluster_queue("gpu-cq", {"a100": {"cpu": "100"}}, checks=("remote",))
    return builders.snapshot(
        queue,
        checks={"remote": check},
        multikueue_configs={"all": names},
        worker_clusters={
            name: WorkerCluster(active=not active or name in active) for name in names
        },
        kueue=KueueConfig(own_dispatcher=own),
        **rest,
    )


class Workers:
    """The watches of the worker clusters, with the snapshots that a test gives."""

    def __init__(self, **snapshots):
        self.snapshots = snapshots

    def follow(self, snapshot):
        pass

    def counted(self):
        return {}

    def with_clusters(self, update, now, unix):
        news = {
            name: Update(
                changed=changes(None, replace(snapshot, as_of=now)), synced=True, as_of=now
            )
            for name, snapshot in self.snapshots.items()
        }
        return replace(update, clusters=news, watched_clusters=tuple(self.snapshots))


def worker(cpus="4"):
    return builders.snapshot(cluster_queue("gpu-cq", {"a100": {"cpu": cpus}}))


class World:
    def __init__(self, *sources, snapshot=None, workers=None, leads=True):
        self.server = Server(*sources)
        self.leads = leads
        self.snapshot = snapshot or manager("near", "far")
        self.metered = Metered(
            lambda metrics: ClusterDispatcher(
                self.server,
                workers,
                max_state_age=15.0,
                placement_ttl=30.0,
                is_leader=lambda: self.leads,
                metrics=metrics,
            ),
            "nominations",
        )
        self.dispatcher = self.metered.part
        self.tell(*sources)

    def tell(self, *sources):
        entries = tuple(read_awaiting(AWAITING.kind, source) for source in sources)
        self.dispatcher.take(WatchUpdate(kind=AWAITING.kind, at=0.0, entries=entries))

    def step(self, seconds=0.0):
        """Step so long after the Workloads got their quota."""
        return self.metered.step(at(seconds, RESERVED_AT + seconds, snapshot=self.snapshot))

    def show(self, name, *nominated, guest=("", "")):
        """Let the watch tell what was written."""
        source = waiting(name, nominated=nominated, guest=guest)
        self.server.workloads[name] = source
        event = "MODIFIED", read_awaiting(AWAITING.kind, source)
        self.dispatcher.take(WatchUpdate(kind=AWAITING.kind, at=0.0, event=event))


def test_the_first_of_equal_clusters_is_nominated_and_then_the_next_in_time():
    world = World(waiting())

    first = world.step(0.5)
    world.show("job-train-1", "near")
    nothing = [world.step(seconds).counts for seconds in (1.0, 11.0, MARGIN_SECONDS - 1)]
    late = world.step(MARGIN_SECONDS + AGAIN_SECONDS)

    assert world.server.written == [
        ("job-train-1", ("near",)),
        ("job-train-1", ("near", "far")),
    ]
    assert first.counts == {Nomination.FIRST: 1}
    assert list(first.lines) == ["Workload team/job-train-1: asks near: the best by its policy"]
    assert nothing == [{}, {}, {}]
    assert late.counts == {Nomination.LATE: 1}
    text = "asks far: where it waits, it was not taken in time"
    assert list(late.lines) == [f"Workload team/job-train-1: {text}"]
    involved = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team"}
    involved |= {"name": "job-train-1", "uid": "uid-of-job-train-1"}
    assert world.server.events == [("ClusterAsked", involved, text)]


def test_an_event_that_cannot_be_written_is_said_and_holds_up_nothing():
    world = World(waiting())
    world.server.no_events = Unreachable("no answer")
    world.step()
    world.show("job-train-1", "near")

    late = world.step(MARGIN_SECONDS + AGAIN_SECONDS)

    assert world.server.written[-1] == ("job-train-1", ("near", "far"))
    assert late.lines[1:] == ["Job team/job-train-1: no Event written: no answer"]


def test_a_cluster_that_kueue_does_not_reach_is_asked_last_and_lost_when_it_goes():
    world = World(waiting(), snapshot=manager("near", "far", active=("far",)))
    world.step()
    world.show("job-train-1", "far")
    world.snapshot = manager("near", "far", active=("near",))

    lost = world.step(20.0)

    assert world.server.written == [("job-train-1", ("far",)), ("job-train-1", ("far", "near"))]
    assert lost.counts == {Nomination.LOST: 1}


def test_those_nominated_in_one_step_fill_a_cluster_one_after_the_other():
    sources = [waiting(f"job-{number}") for number in range(6)]
    workers = Workers(near=worker("2"), far=worker("9"))

    world = World(*sources, workers=workers)
    world.step()

    assert [names for _, names in world.server.written] == [("near",)] * 2 + [("far",)] * 4


def test_a_new_leader_goes_on_from_what_is_written_on_the_workload():
    source = waiting(nominated=("near",), nominated_at="1970-01-01T00:17:00Z")
    world = World(source)
    written_at = 20.0

    early = world.step(written_at + MARGIN_SECONDS - 5)
    late = world.step(written_at + MARGIN_SECONDS + 1)

    assert early.counts == {}
    assert late.counts == {Nomination.LATE: 1}
    assert world.server.written == [("job-train-1", ("near", "far"))]


@pytest.mark.parametrize(
    "given",
    [{"leads": False}, {"snapshot": manager("near", "far", own=False)}, {"snapshot": manager()}],
)
def test_nobody_else_nominates(given):
    world = World(waiting(), **given)

    assert world.step().counts == {}
    assert world.server.written == []


@pytest.mark.parametrize(
    "snapshot",
    [
        manager("near", "far", off=OffSwitch()),
        # Its LocalQueue is gone, so nothing can be said of any cluster.
        manager("near", "far", local_queues={}),
    ],
)
def test_all_clusters_are_asked_at_once_where_nothing_can_be_compared(snapshot):
    world = World(waiting(), snapshot=snapshot)

    dispatched = world.step()

    assert world.server.written == [("job-train-1", ("near", "far"))]
    assert dispatched.counts == {Nomination.ALL: 1}
    assert list(dispatched.lines) == [
        "Workload team/job-train-1: asks near, far: all are asked at once"
    ]


def test_a_write_that_fails_is_said_once_and_tried_again():
    world = World(waiting())
    world.server.answer = Unreachable("no answer")

    failed = [list(world.step(seconds).lines) for seconds in (0.0, 1.0, RETRY_SECONDS + 1)]
    world.server.answer = None
    world.step(2 * RETRY_SECONDS + 2)

    assert failed == [["Workload team/job-train-1: no cluster nominated: no answer"], [], []]
    assert world.server.written == [("job-train-1", ("near",))]


def test_a_workload_that_changed_meanwhile_is_looked_at_again():
    world = World(waiting())
    world.server.answer = Refused(409, "has been modified")
    conflict = world.step()
    world.server.answer = None
    taken = waiting()
    taken["status"]["clusterName"] = "far"
    world.server.workloads["job-train-1"] = taken
    world.step(2.0)

    assert (conflict.counts, list(conflict.lines)) == ({}, [])
    assert world.server.written == []


def test_what_kueue_has_applied_is_repeated_with_the_version_that_was_read():
    source = waiting(nominated=("near",))

    body = applied(source, ("near", "far"))

    assert body == {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": "job-train-1", "namespace": "team", "resourceVersion": "7"},
        "status": {
            "admission": {"clusterQueue": "gpu-cq"},
            "nominatedClusterNames": ["near", "far"],
        },
    }


def test_workloads_without_a_nomination_for_long_are_counted_by_every_replica():
    world = World(waiting("a"), waiting("b", nominated=("near",)), leads=False)

    def forgotten(seconds):
        world.dispatcher.show(at(seconds, RESERVED_AT + seconds, snapshot=world.snapshot))
        return world.metered.shown("unnominated_workloads")

    assert [forgotten(seconds) for seconds in (OVERDUE_SECONDS, OVERDUE_SECONDS + 1)] == [0, 1]
    world.tell()
    assert forgotten(OVERDUE_SECONDS + 1) == 0


def test_a_workload_that_is_deleted_is_forgotten():
    world = World(waiting())
    entry = ReadObject(("team", "job-train-1"), awaiting(waiting()))

    world.dispatcher.take(WatchUpdate(kind=AWAITING.kind, at=0.0, event=("DELETED", entry)))

    assert world.step().counts == {}


JOBS = followed_watches.followed(JOB)
BY_FINISH = builders.policy(strategy={"type": "FinishTime", "finishTime": {"runTime": "100s"}})


def freed(seconds):
    """A cluster whose CPUs are all held, and free again after so many seconds."""
    queue, used = cluster_queue("gpu-cq", {"a100": {"cpu": "4"}}), {"a100": {"cpu": "4"}}
    known = builders.snapshot(queue, held={"gpu-cq": held(used, reserving=4, pending=1)})
    return builders.foreseen(known, ("gpu-cq", used, seconds))


def job_that_says(**annotations):
    """A decided Job, created ten seconds before its Workload got quota."""
    source = moving.job(1)
    source["metadata"]["creationTimestamp"] = "1970-01-01T00:16:30Z"
    said = {f"kueue-fallback.dev/{name}": text for name, text in annotations.items()}
    source["metadata"]["annotations"] |= said
    return JOBS.read(JOBS.kind, source)


def asked_first(*updates):
    """Return which of two clusters is nominated first after these updates of Jobs."""
    world = World(
        waiting("job-1", guest=("light-gpu", "gpu")),
        snapshot=manager("near", "far", policies=(BY_FINISH,)),
        workers=Workers(near=freed(20.0), far=freed(0.1)),
    )
    for update in updates:
        world.dispatcher.take_jobs(update)
    world.step()
    return world.server.written[0][1][0]


def listed(*entries):
    return WatchUpdate(kind=JOBS.kind, at=0.0, entries=entries)


def happened(what, entry):
    return WatchUpdate(kind=JOBS.kind, at=0.0, event=(what, entry))


URGENT, PATIENT = {"deadline": "120s"}, {"deadline": "10m"}


@pytest.mark.parametrize(
    ("updates", "first"),
    [
        ([], "near"),
        # The nearer one would be done in 121 s, and the deadline is in 110 s.
        ([listed(job_that_says(**URGENT))], "far"),
        # Its owner may change what the Job says after the decision.
        (
            [listed(job_that_says(**URGENT)), happened("MODIFIED", job_that_says(**PATIENT))],
            "near",
        ),
        ([listed(job_that_says()), happened("MODIFIED", job_that_says(**URGENT))], "far"),
        ([listed(job_that_says(**URGENT)), happened("DELETED", job_that_says(**URGENT))], "near"),
        ([listed(job_that_says(**URGENT)), listed()], "near"),
        # What cannot be read says nothing.
        ([listed(job_that_says(deadline="soon"))], "near"),
    ],
)
def test_what_a_job_says_now_decides_which_cluster_is_asked_first(updates, first):
    assert asked_first(*updates) == first


def test_in_a_burst_each_counts_with_the_run_that_its_policy_expects():
    # Four CPUs are free in 21 s and in 61 s, and runs take 100 s; 60 s sooner are worth it.
    sources = [waiting(f"job-{number}", guest=("light-gpu", "gpu")) for number in range(9)]
    workers = Workers(near=freed(20.0), far=freed(60.0))
    snapshot = manager("near", "far", policies=(BY_FINISH,))

    world = World(*sources, snapshot=snapshot, workers=workers)
    world.step()

    asked = [names for _, names in world.server.written]
    assert asked == [("near",)] * 4 + [("far",)] * 4 + [("near",)]


RECONSIDERED = builders.policy(
    strategy={"type": "FinishTime", "finishTime": {"runTime": "100s"}},
    reconsider={"after": "15s", "minimumGain": {"time": "60s", "percent": 20}},
)


@pytest.mark.parametrize(
    ("policy", "free_in", "gains"),
    [
        # It ends 201 s after it waits at *near*; 50 s less are enough for a decision, not a move.
        (BY_FINISH, 50.0, "done 50s sooner"),
        (RECONSIDERED, 50.0, ""),
        (RECONSIDERED, 30.0, "done 1m10s sooner"),
    ],
)
def test_a_cluster_that_has_become_better_is_asked_for_what_a_move_must_gain(
    policy, free_in, gains
):
    workers = Workers(near=freed(100.0), far=freed(500.0))
    snapshot = manager("near", "far", policies=(policy,))
    guest = ("light-gpu", "gpu")
    world = World(waiting("job-1", guest=guest), snapshot=snapshot, workers=workers)
    world.step()
    world.show("job-1", "near", guest=guest)
    workers.snapshots["far"] = freed(free_in)

    soon = world.step(12.0) if policy is RECONSIDERED else None
    better = world.step(18.0)

    text = f"asks far: better by now than where it waits ({gains})"
    assert soon is None or soon.lines == []
    assert list(better.lines) == ([f"Workload team/job-1: {text}"] if gains else [])
    assert [message for _, _, message in world.server.events] == ([text] if gains else [])
    assert better.counts == ({Nomination.BETTER: 1} if gains else {})


def test_a_workload_is_not_moved_because_it_waits_behind_itself():
    """Where it waits it starts in 101 s, and another after it in 202 s; at *far* in 151 s."""
    state = state_of("job-1", cpu="4")
    near = replace(snapshot_of(state), as_of=0.0)
    workers = Workers(near=near, far=freed(150.0))
    snapshot = manager("near", "far", policies=(BY_FINISH,))

    def step_of(state):
        workers.counted = lambda: {"near": near}
        workers.contents_of = lambda _, queue: state.contents_of(queue)
        source = waiting("job-1", guest=("light-gpu", "gpu"), nominated=("near",))
        world = World(source, snapshot=snapshot, workers=workers)
        return world.step(20.0).counts

    assert step_of(state) == {}
    # If it is not there, it would come behind who is.
    assert step_of(state_of("other", cpu="4")) == {Nomination.BETTER: 1}
