"""A dry run of a manifest, over HTTP: what would be decided, for those who may create it."""

import json

import pytest

from tests.console.viewers import Only
from tests.console.worlds import known
from tests.contract.consoles import ask, send, served
from tests.reviews import light_job
from tests.servers import paper_snapshot
from webhook.console.collect import collect
from webhook.console.on_demand import DryRuns

UNIX = 1_790_000_000.0
NAMESPACE = "team"


class Clock:
    def __init__(self):
        self.now, self.slept = 1000.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def runs(counted=None, clock=None):
    clock = clock or Clock()
    return DryRuns(
        lambda: counted, "kueue-fallback", clock=clock, unix=lambda: UNIX, sleep=clock.sleep
    )


def paper():
    return paper_snapshot()


def manifest(**metadata):
    job = light_job()
    return {**job, "metadata": {"namespace": NAMESPACE, **job["metadata"], **metadata}}


@pytest.fixture
def console():
    view = collect(known())
    with served(lambda: view, decide=runs(paper()).decide) as port:
        yield port


def test_it_says_what_admission_would_decide(console):
    status, answer = send(console, "/dry-run", json.dumps(manifest()))

    assert status == 200
    assert answer["decision"]["policy"] == "light-gpu"
    assert set(answer) == {"decision", "edits", "warnings"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("[1]", "expected an object, got a list"),
        ("{", "expected JSON"),
        (json.dumps({"kind": "Secret"}), "kind: expected one of "),
        (json.dumps({**light_job(), "metadata": {}}), "metadata.namespace: must be given"),
        (json.dumps({**manifest(), "spec": {"template": 7}}), "spec.template: "),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(console, body, error):
    status, answer = send(console, "/dry-run", body)

    assert status == 400
    assert error in answer["error"]


def test_only_json_of_a_bounded_size_is_read(console):
    text = json.dumps(manifest())

    assert send(console, "/dry-run", text, "text/plain")[0] == 415
    assert send(console, "/dry-run", text + " " * 70_000)[0] == 413
    assert send(console, "/dry-run?x=1", text)[0] == 400
    response, _ = ask(console, "/dry-run")
    assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("rights", "status"),
    [
        ((f"create Job in {NAMESPACE}",), 200),
        ((NAMESPACE, "create Job in elsewhere", f"create RayJob in {NAMESPACE}"), 403),
        ((), 403),
    ],
)
def test_who_may_not_create_it_there_gets_no_answer(rights, status):
    view = collect(known())
    with served(
        lambda: view, rights_of=lambda *_: Only(*rights), decide=runs(paper()).decide
    ) as port:
        answered, answer = send(port, "/dry-run", json.dumps(manifest()))

    assert answered == status
    if status == 403:
        assert answer == {"error": f"needs create jobs in namespace {NAMESPACE}"}


def test_before_anything_is_known_one_is_asked_to_come_again():
    view = collect(known())
    with served(lambda: view, decide=runs().decide) as port:
        assert send(port, "/dry-run", json.dumps(manifest()))[0] == 503
    stale = collect(known(counted=None))
    with served(lambda: stale, decide=runs(paper()).decide) as port:
        assert send(port, "/dry-run", json.dumps(manifest()))[0] == 503


def test_it_rests_for_ten_times_as_long_as_a_decision_took():
    clock, takes = Clock(), [0.125, 1.0]

    def unix():
        clock.now += takes.pop(0)
        return UNIX

    slow = DryRuns(paper, "kueue-fallback", clock=clock, unix=unix, sleep=clock.sleep)

    decided = [slow.decide(manifest(), None) for _ in range(3)]

    assert [outcome is None for outcome in decided] == [False, False, True]
    assert clock.slept == [0.0, 1.25]
