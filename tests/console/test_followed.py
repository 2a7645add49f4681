"""What only the console follows: decisions on Jobs, and what the controller says of policies."""

import json

import pytest

from tests.console.worlds import PUBLISHED
from webhook.api.resources import SAVINGS, ReadObject
from webhook.api.watch import WatchUpdate
from webhook.console.collect import Leads
from webhook.console.console import (
    JUDGED,
    LEASES,
    Followed,
    NewestJobs,
    jobs,
    lease_in,
    read_judged,
    read_leads,
    savings_in,
)
from webhook.console.decisions import DecisionStore
from webhook.console.view import Judged
from webhook.hindsight.savings_record import config_map, packed
from webhook.jobs import BY_NAME
from webhook.model.job import DECISION
from webhook.settings import Settings

JOBS = "jobs"


def job(number, **rest):
    decision = {"version": 1, "id": f"d-{number}", "time": f"2026-12-01T08:00:{number:02d}Z"}
    return {
        "metadata": {
            "namespace": "team",
            "name": f"light-{number}",
            "uid": str(number),
            "creationTimestamp": decision["time"],
            "annotations": {DECISION: json.dumps(decision)},
            **rest,
        }
    }


def policy(*conditions, name="light-gpu"):
    return {"metadata": {"name": name}, "status": {"conditions": list(conditions)}}


READY = {"type": "Ready", "status": "True", "message": "fine"}
REVIEWED = {"type": "Reviewed", "status": "True", "message": "3 Jobs"}


def read(*numbers, newest):
    return [newest.read(JOBS, job(number)).value is not None for number in numbers]


def test_of_many_jobs_the_newest_are_read():
    newest = NewestJobs(kept=2)

    assert read(5, 3, 1, 4, 5, 3, newest=newest) == [True, True, False, True, True, False]


@pytest.mark.parametrize("metadata", [{"uid": 1}, {"creationTimestamp": None, "name": 7}])
def test_a_job_that_cannot_be_read_is_a_problem(metadata):
    entry = NewestJobs().read(JOBS, job(1, **metadata))

    assert entry.value is None
    assert entry.problem.startswith("jobs")


def test_only_jobs_that_were_sent_somewhere_are_asked_for():
    assert jobs(NewestJobs()).params == {"labelSelector": "kueue-fallback.dev/option"}


@pytest.mark.parametrize(
    ("conditions", "judged"),
    [
        ((READY,), Judged(is_ready=True, message="fine")),
        (({"type": "Other"}, {**READY, "status": "False"}), Judged(is_ready=False, message="fine")),
        (
            (READY, {**REVIEWED, "status": "False"}),
            Judged(is_ready=True, message="fine", unreviewed="3 Jobs"),
        ),
        ((READY, REVIEWED), Judged(is_ready=True, message="fine")),
        ((), None),
    ],
)
def test_what_the_controller_says_is_the_condition_ready(conditions, judged):
    assert read_judged(JUDGED.kind, policy(*conditions)) == ReadObject(("", "light-gpu"), judged)


@pytest.fixture
def console():
    book, lines = DecisionStore(), []
    found = Followed(book, Settings(), lines.append)
    found.book, found.lines = book, lines
    return found


def told(kind, *sources, read, **rest):
    return WatchUpdate(
        kind=kind, at=1.0, entries=tuple(read(kind, each) for each in sources), **rest
    )


def test_what_jobs_alone_have_said_is_forgotten_with_them(console):
    newest = NewestJobs()
    console.take(told(JOBS, job(1), job(2), read=newest.read))
    console.take(told(JOBS, job(2), read=newest.read))
    assert [each.recorded.id for each in console.book.newest()] == ["d-2"]
    gone = newest.read(JOBS, job(2))
    console.take(WatchUpdate(kind=JOBS, at=2.0, event=("DELETED", gone)))

    assert console.book.newest() == ()


def test_what_is_said_of_policies_follows_what_is_there(console):
    say = Judged(is_ready=True, message="fine")
    first, second = policy(READY, name="a"), policy(READY, name="b")
    console.take(told(JUDGED.kind, first, second, read=read_judged))
    before = console.judged
    console.take(
        WatchUpdate(kind=JUDGED.kind, at=2.0, event=("DELETED", read_judged(JUDGED.kind, first)))
    )
    console.take(
        WatchUpdate(
            kind=JUDGED.kind, at=2.0, event=("MODIFIED", read_judged(JUDGED.kind, policy()))
        )
    )

    assert before == {"a": say, "b": say}
    assert console.judged == {"b": say}


def test_what_cannot_be_followed_is_said_once_until_it_can_be_again(console):
    for error in ("403", "403 again", "", "403"):
        console.take(WatchUpdate(kind=JOBS, at=1.0, error=error, unreadable=bool(error)))

    assert console.lines == ["console: jobs: 403", "console: jobs: 403"]


def test_nothing_is_followed_before_somebody_asks_and_then_once(monkeypatch):
    started = []

    class Recorded(Followed):
        def _start(self, resource, *, metadata_only):
            started.append((resource.kind, metadata_only))
            self.take(WatchUpdate(kind=resource.kind, at=1.0, entries=()))

    console = Recorded(DecisionStore(), Settings(), lambda _: None)
    before = list(started)
    console.begin()
    console.begin()

    others = [(JUDGED.kind, False), (LEASES, False), (SAVINGS, False)]
    assert (before, started) == ([], [(JOBS, True), *others])


def test_an_api_server_that_does_not_answer_holds_up_the_first_answer_alone(monkeypatch):
    monkeypatch.setattr("webhook.console.console.FIRST_SECONDS", 0.0)

    class Silent(Followed):
        def _start(self, resource, *, metadata_only):
            pass

    console = Silent(DecisionStore(), Settings(), lambda _: None)
    console.begin()
    console.begin()

    assert console.judged == {}


LEASE = {
    "metadata": {"namespace": "ours", "name": "kueue-fallback-controller"},
    "spec": {
        "holderIdentity": "controller-7_ab12",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-12-01T08:00:00.000000Z",
    },
}


def test_who_leads_is_who_holds_the_lease(console):
    console.take(told(LEASES, LEASE, read=read_leads))
    before = console.leads
    gone = read_leads(LEASES, LEASE)
    console.take(WatchUpdate(kind=LEASES, at=2.0, event=("DELETED", gone)))

    assert before == Leads("controller-7_ab12", 1796112015.0)
    assert console.leads is None
    assert lease_in("ours").params == {"fieldSelector": "metadata.name=kueue-fallback-controller"}


def test_what_was_saved_is_what_the_controller_published_last(console):
    resource = savings_in("ours")
    source = config_map(packed(PUBLISHED))
    console.take(told(SAVINGS, source, read=resource.read))
    before = console.published
    damaged = {**source, "binaryData": {"savings": "AAAA"}}
    found = resource.read(SAVINGS, damaged)
    console.take(WatchUpdate(kind=SAVINGS, at=2.0, event=("MODIFIED", found)))

    assert before == PUBLISHED
    assert console.published is None
    assert found.problem.startswith("kueue-fallback-savings kueue-fallback-savings: ")
    assert resource.params == {"fieldSelector": "metadata.name=kueue-fallback-savings"}


def test_the_kinds_that_are_switched_on_are_followed(monkeypatch):
    started = []
    settings = Settings(kinds=("Job", "RayJob"))
    console = Followed(DecisionStore(), settings, lambda _: None)

    def start(resource, *, metadata_only):
        started.append(resource.path)
        console.take(WatchUpdate(kind=resource.kind, at=1.0, entries=(), served=False))

    monkeypatch.setattr(console, "_start", start)
    console.begin()

    assert started[:2] == ["/apis/batch/v1/jobs", "/apis/ray.io/v1/rayjobs"]


def test_jobs_of_two_kinds_and_of_one_name_are_told_apart():
    book = DecisionStore()
    console = Followed(book, Settings(kinds=("Job", "RayJob")), lambda _: None)
    one, other = job(1, name="train"), job(2, name="train")
    ray = NewestJobs(kind="RayJob")
    console.take(told(JOBS, one, read=NewestJobs().read))
    console.take(told("rayjobs", other, read=ray.read))

    found = {(each.job, each.kind) for each in book.newest()}
    assert found == {("rayjob/train", "RayJob"), ("train", "Job")}

    console.take(WatchUpdate(kind="rayjobs", at=2.0, entries=()))
    assert [each.job for each in book.newest()] == ["train"]
    assert jobs(ray, BY_NAME["RayJob"]).path == "/apis/ray.io/v1/rayjobs"
