"""Jobs as their metadata tells, and what became of them."""

import copy
import dataclasses

from tests.reviews import light_job
from tests.servers import paper_snapshot
from webhook.api.kubernetes_api import Unreachable
from webhook.api.watch import WatchUpdate
from webhook.controller import unreviewed
from webhook.controller.unreviewed import Unreviewed, UnreviewedJobs
from webhook.jobs import JOB

JOBS = unreviewed.followed(JOB)
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


class Cluster:
    """Jobs as they are stored, told of one by one; the state is the paper's from the start."""

    def __init__(self, *jobs, snapshot=None, at=STARTED):
        self.jobs = {job["metadata"]["name"]: job for job in jobs}
        self.fetched = []
        self.away = False
        self.unreviewed = Unreviewed(self.fetch, "kueue-fallback")
        self.generation = 0
        self.show(snapshot or paper_snapshot(), at)
        self.list()

    def fetch(self, namespace, name):
        assert namespace == "team"
        self.fetched.append(name)
        if self.away:
            raise Unreachable("away")
        return self.jobs.get(name)

    def show(self, snapshot, at):
        self.generation += 1
        state = dataclasses.replace(snapshot, generation=self.generation)
        self.unreviewed.note(state, at, at - STARTED)

    def list(self, at=1.0):
        entries = tuple(entry(job) for job in self.jobs.values())
        return self.unreviewed.take(WatchUpdate(kind="jobs", at=at, entries=entries))

    def create(self, *jobs, event="ADDED", at=5.0):
        for job in jobs:
            self.jobs[job["metadata"]["name"]] = job
            self.unreviewed.take(WatchUpdate(kind="jobs", at=at, event=(event, entry(job))))
        return self

    def found(self, as_of=9.0):
        return self.unreviewed.step(as_of=as_of)


def missed(*names):
    return UnreviewedJobs(unreviewed=tuple((POLICY, f"team/{name}") for name in names))
