"""Events on Jobs: of what was done to them, once, by the leader alone."""

import json

import pytest

from tests.controller.stepping import at
from tests.reviews import light_job
from webhook.api.kubernetes_api import Forbidden, NotServed, Refused, Unreachable
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches
from webhook.controller.job_events import EVENTS_A_MINUTE, MOST_AT_ONCE, MOST_WAITING, JobEvents
from webhook.jobs import JOB

JOBS = followed_watches.followed(JOB)
NOW = 1_800_000_000.0
STAMP = "2027-01-15T08:00:00Z"
EARLIER = "2027-01-15T07:54:00Z"
OURS = "kueue-fallback.dev/"
WHY = "sent to cpu-lq (cpu): starts now; gpu-lq has 10 pending"
UNDONE = {OURS + "undone": "light-gpu", OURS + "policy": "none"}


def decided(name="light", *, created=STAMP, time=STAMP, **given):
    decision = {
        "version": 1,
        "id": "a",
        "time": time,
        "policy": "light-gpu",
        "mode": "Enforce",
        "option": "cpu",
        "reason": WHY,
        "from": {"queue": "gpu-lq"},
        "changed": ["queue", "nvidia.com/gpu"],
        "original": {},
        **given,
    }
    return stored(name, created=created, **{OURS + "decision": json.dumps(decision)})


def stored(name="light", *, created=STAMP, **annotations):
    return light_job(name, uid=f"uid-{name}", creationTimestamp=created, annotations=annotations)


def moved(time=STAMP, **given):
    stay = {"time": time, "option": "cpu", "reason": "moved"}
    return decided(moves=1, history=[stay], reason="moved to cpu-lq (cpu): as asked", **given)


def entry(job):
    return JOBS.read(JOBS.kind, {"kind": "PartialObjectMetadata", "metadata": job["metadata"]})


class Replica:
    """One controller; the Events are those that the API server has taken."""

    def __init__(self, *listed, leads=True, written=None):
        self.now, self.leads, self.trouble = NOW, leads, None
        self.written = {} if written is None else written
        self.tried = 0
        self.events = JobEvents(self, is_leader=lambda: self.leads, unix=lambda: self.now)
        self.list(*listed)

    def list(self, *jobs):
        self.events.take(WatchUpdate(kind="jobs", at=0.0, entries=tuple(map(entry, jobs))))

    def step(self):
        return self.events.step(at(self.now, self.now))

    def see(self, *jobs, event="MODIFIED"):
        for job in jobs:
            self.events.take(WatchUpdate(kind="jobs", at=0.0, event=(event, entry(job))))
        return self.step()

    def post(self, path, body):
        self.tried += 1
        if self.trouble is not None:
            raise self.trouble
        name = body["metadata"]["name"]
        if name in self.written:
            raise Refused(409, "there already")
        self.written[name] = (path, body)
        return body

    @property
    def said(self):
        return [(body["reason"], body["message"]) for _, body in self.written.values()]


def test_a_job_that_was_changed_gets_an_event_that_says_what():
    replica = Replica()

    lines = replica.see(decided(), event="ADDED")

    ((path, body),) = replica.written.values()
    assert lines == ()
    assert path == "/api/v1/namespaces/team/events"
    assert (body["type"], body["reason"]) == ("Normal", "Decided")
    assert body["message"] == f"{WHY} (changed: queue, nvidia.com/gpu)"
    assert body["firstTimestamp"] == STAMP
    assert body["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "team",
        "name": "light",
        "uid": "uid-light",
    }


@pytest.mark.parametrize(
    "job",
    [
        stored(),
        decided(changed=[]),
        decided(mode="Advise"),
        decided(option=""),
        decided(version=2),
        stored(**{OURS + "decision": "{}", **UNDONE}),
        stored(**{OURS + "undone": "x" * 100_000}),
    ],
)
def test_a_job_that_stays_gets_none(job):
    replica = Replica()

    replica.see(job, event="ADDED")

    assert replica.tried == 0


def test_a_move_and_an_undo_are_told_whoever_asked_for_them():
    replica = Replica(decided(time=EARLIER, created=EARLIER))

    replica.see(moved(created=EARLIER))
    replica.see(stored(created=EARLIER, **UNDONE))

    assert replica.said == [
        ("Moved", "moved to cpu-lq (cpu): as asked"),
        ("Undone", "undone: in gpu-lq as submitted; policy light-gpu decides it no more"),
    ]


@pytest.mark.parametrize("job", [decided(), moved(), stored(**UNDONE)])
def test_a_restart_tells_nothing_again(job):
    first = Replica()
    first.see(job, event="ADDED")

    second = Replica(job, written=first.written)
    lines = second.step()

    assert lines == ()
    assert (second.tried, len(second.written)) == (1, 1)


def test_who_does_not_lead_tells_nothing_and_who_comes_to_lead_tells_the_last_seconds():
    replica = Replica(leads=False)
    replica.see(decided("early"))
    replica.now += 20
    replica.see(decided("late"))

    assert replica.tried == 0
    replica.leads = True
    replica.step()
    assert [body["involvedObject"]["name"] for _, body in replica.written.values()] == ["late"]


def test_a_burst_is_told_at_a_bounded_pace_and_what_is_too_much_is_counted():
    replica = Replica()

    jobs = [entry(decided(f"light-{number}")) for number in range(MOST_WAITING // 2 + 7)]
    for each in jobs:
        replica.events.take(WatchUpdate(kind="jobs", at=0.0, event=("ADDED", each)))
    lines = replica.step()
    at_once = replica.tried
    for _ in range(100):
        replica.step()
    in_a_minute = replica.tried
    replica.now += 61
    replica.step()

    assert lines == ("Events on Jobs: 7 left out, too many at once",)
    assert (at_once, in_a_minute) == (MOST_AT_ONCE, EVENTS_A_MINUTE)
    assert replica.tried == EVENTS_A_MINUTE + MOST_AT_ONCE


def test_a_burst_of_one_namespace_delays_and_drops_no_event_of_another():
    replica = Replica()
    for number in range(MOST_WAITING + 7):
        noisy = entry(decided(f"noisy-{number}"))._replace(key=("noisy", f"noisy-{number}"))
        replica.events.take(WatchUpdate(kind="jobs", at=0.0, event=("ADDED", noisy)))

    replica.see(decided("quiet"))

    names = [body["involvedObject"]["name"] for _, body in replica.written.values()]
    assert names[:3] == ["noisy-0", "quiet", "noisy-1"]


@pytest.mark.parametrize(
    "trouble",
    [Unreachable("away"), Forbidden("events", 'events is forbidden: User "us" cannot create')],
)
def test_what_cannot_be_written_now_is_tried_again_and_said_once(trouble):
    replica = Replica()
    replica.trouble = trouble

    lines = [replica.see(decided()), replica.step()]
    replica.trouble = None
    replica.step()

    assert lines == [(f"Events on Jobs: {trouble}",), ()]
    assert len(replica.written) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden("events", 'events "light" is forbidden: namespace team is being terminated'),
        NotServed("/api/v1/namespaces/team/events"),
        Refused(422, "invalid"),
        RuntimeError("not foreseen"),
    ],
)
def test_what_is_refused_holds_up_no_other_and_is_not_tried_again(refusal):
    replica = Replica()
    replica.trouble = refusal

    try:
        lines = replica.see(decided("ill"))
    except RuntimeError:  # The controller's loop counts it, and goes on.
        lines = (f"Job team/ill: no Event written: {refusal}",)
    replica.trouble = None
    replica.see(decided("well"))

    assert lines == (f"Job team/ill: no Event written: {refusal}",)
    assert replica.tried == 2
    assert [body["involvedObject"]["name"] for _, body in replica.written.values()] == ["well"]


def test_each_is_told_once():
    replica = Replica()
    changed = decided()

    for _ in range(3):
        replica.see(changed)
    changed["metadata"]["labels"]["another"] = "label"
    replica.see(changed)
    replica.list(changed)
    replica.step()

    assert (len(replica.written), replica.tried) == (1, 1)
