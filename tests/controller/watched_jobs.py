"""Jobs as their metadata tells, and what became of them."""

import copy
import dataclasses

from tests.controller.stepping import at
from tests.reviews import light_job
from tests.servers import paper_snapshot
from webhook.api.kubernetes_api import Unreachable
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.unreviewed import Unreviewed
from webhook.jobs import JOB
from webhook.state.snapshot import Snapshot

JOBS = followed_watches.followed(JOB)
STARTED = 1_800_000_000.0


STAMP = "2027-01-15T08:01:00Z"


POLICY = "light-gpu"


def stored(name="light", *, uid="", spec=None, **metadata):
    job = light_job(name, uid=uid or f"uid-{name}", creationTimestamp=STAMP, **metadata)
    job["spec"].update(spec or {})
    return job


def entry(job):
    metadata = copy.deepcopy(job["metadata"])
    return JOBS.read(JOBS.kind, {"kind": "PartialObjectMetadata", "metadata": metadata})


class Replica:
    """Who judges Jobs: it follows while it is shown snapshots, and leads when it is asked."""

    def __init__(self, fetch):
        self.leads, self.leader_at, self.metrics = False, float("-inf"), ControllerMetrics()
        self.missed = []
        self.unreviewed = Unreviewed(
            fetch,
            "kueue-fallback",
            is_leader=lambda: self.leads,
            leader_at=lambda: self.leader_at,
            note=self.missed.append,
            metrics=self.metrics,
        )
        self.snapshot, self.unix, self.generation = Snapshot(), 0.0, 0

    def show(self, snapshot, unix):
        self.generation += 1
        self.snapshot = dataclasses.replace(snapshot, generation=self.generation)
        self.unix = unix
        self.follow()

    def follow(self, leader_at=float("-inf")):
        """Step while another leads, and was last heard then."""
        self.leads, self.leader_at = False, leader_at
        self.unreviewed.step(at(self.unix - STARTED, self.unix, snapshot=self.snapshot))

    def found(self, as_of=9.0):
        """Step while we lead; return the lines to log."""
        self.leads = True
        state = dataclasses.replace(self.snapshot, as_of=as_of)
        return self.unreviewed.step(at(self.unix - STARTED, self.unix, snapshot=state))


class Cluster(Replica):
    """Jobs as they are stored, told of one by one; the state is the paper's from the start."""

    def __init__(self, *jobs, snapshot=None, at=STARTED):
        self.jobs = {job["metadata"]["name"]: job for job in jobs}
        self.fetched = []
        self.away = False
        super().__init__(self.fetch)
        self.show(snapshot or paper_snapshot(), at)
        self.list()

    def fetch(self, namespace, name):
        assert namespace == "team"
        self.fetched.append(name)
        if self.away:
            raise Unreachable("away")
        return self.jobs.get(name)

    def list(self, at=1.0):
        entries = tuple(entry(job) for job in self.jobs.values())
        return self.unreviewed.take(WatchUpdate(kind="jobs", at=at, entries=entries))

    def create(self, *jobs, event="ADDED", at=5.0):
        for job in jobs:
            self.jobs[job["metadata"]["name"]] = job
            self.unreviewed.take(WatchUpdate(kind="jobs", at=at, event=(event, entry(job))))
        return self


def missed(*names):
    """Return what is said of Jobs that were not reviewed."""
    matches = f"created without a review; FallbackPolicy {POLICY} matches"
    return [f"Job team/{name}: {matches}" for name in names]
