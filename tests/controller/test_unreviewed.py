"""Jobs that came without a review, told from those that came with one and from those of nobody."""

import pytest

from tests.controller.stepping import values
from tests.controller.watched_jobs import POLICY, STARTED, Cluster, missed, stored
from tests.servers import Server, paper_snapshot
from webhook.api.watch import WatchUpdate
from webhook.controller.unreviewed import MOST_WAITING, NAMED_A_MINUTE, SnapshotHistory
from webhook.model.pods import Selector
from webhook.model.queues import ConsumedResources
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated

CREATED = STARTED + 60
OURS = "kueue-fallback.dev/"


def test_a_matching_job_without_a_decision_came_without_a_review():
    cluster = Cluster().create(stored("a"), stored("b"))

    assert cluster.found() == missed("a", "b")
    assert cluster.found() == []


@pytest.mark.parametrize("mode", ["Enforce", "Advise"])
@pytest.mark.parametrize(
    ("state", "annotations"),
    [
        ({}, {}),
        ({"pending": 0}, {}),
        ({"as_of": 50.0}, {}),
        ({}, {OURS + "allow": "nothing"}),
        ({}, {OURS + "decision": "{}"}),
    ],
    ids=["moved", "kept", "stale", "unreadable", "forged"],
)
def test_whatever_a_review_came_to_it_left_a_decision(mode, state, annotations):
    server = Server(paper_snapshot(mode=mode, **state))
    reviewed, _ = server.create(stored(annotations=annotations))

    cluster = Cluster(snapshot=paper_snapshot(mode=mode)).create(reviewed)

    assert cluster.found() == []
    assert cluster.fetched == []


def test_a_policy_that_only_observes_leaves_nothing_to_tell_by():
    cluster = Cluster(snapshot=paper_snapshot(mode="Observe")).create(stored())

    assert cluster.found() == []


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"kueue.x-k8s.io/queue-name": "gpu-lq"}},
        {"annotations": {OURS + "policy": "none"}},
        {"annotations": {OURS + "policy": "another"}},
        {
            "ownerReferences": [
                {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}
            ]
        },
        {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
    ],
    ids=["unmatched", "opted out", "other policy", "owned", "elastic"],
)
def test_what_metadata_rules_out_needs_no_call(metadata):
    cluster = Cluster().create(stored(**metadata))

    assert cluster.found() == []
    assert cluster.fetched == []


def test_what_only_the_spec_rules_out_is_found_there():
    cluster = Cluster().create(stored(spec={"managedBy": "example.com/other"}))

    assert cluster.found() == []
    assert cluster.fetched == ["light"]


@pytest.mark.parametrize(
    "other",
    [
        paper_snapshot(mode="Observe"),
        paper_snapshot(off=OffSwitch()),
        updated(paper_snapshot(), policies=()),
        paper_snapshot(reviewed_namespaces=(Selector(labels={"reviewed": "yes"}),)),
    ],
    ids=["mode", "off switch", "policy", "webhook configuration"],
)
@pytest.mark.parametrize("change", ["before", "after", "always"])
def test_only_a_state_that_stood_still_around_the_creation_tells(other, change):
    ours = paper_snapshot()
    first, second = {"before": (other, ours), "after": (ours, other), "always": (other, other)}[
        change
    ]
    cluster = Cluster(snapshot=first)
    cluster.show(second, CREATED + (-1 if change == "before" else 1))

    assert cluster.create(stored()).found() == []


def test_jobs_that_were_there_before_are_nobodys_business():
    cluster = Cluster(stored())

    cluster.list(at=5.0)

    assert cluster.create(stored(), event="MODIFIED").found() == []


def test_a_job_that_a_later_list_brings_is_judged_once():
    cluster = Cluster()
    cluster.jobs["light"] = stored()

    cluster.list(at=5.0)
    cluster.list(at=6.0)

    assert cluster.found() == missed("light")


def test_a_job_from_before_the_state_was_known_is_not_judged():
    cluster = Cluster(at=CREATED - 1)

    assert cluster.create(stored()).found() == []


def test_a_job_waits_until_every_watch_was_alive_since():
    cluster = Cluster().create(stored())

    assert cluster.found(as_of=5.0) == []
    assert cluster.found(as_of=5.1) == missed("light")


def test_a_job_waits_for_an_api_server_that_is_away():
    cluster = Cluster().create(stored())
    cluster.away = True
    without = cluster.found()
    cluster.away = False

    assert (without, cluster.found()) == ([], missed("light"))


@pytest.mark.parametrize("now", [None, stored(uid="another")], ids=["gone", "another"])
def test_a_job_that_is_gone_is_let_go(now):
    cluster = Cluster().create(stored())
    cluster.jobs = {"light": now}

    assert cluster.found() == []


def test_what_is_too_much_is_counted():
    cluster = Cluster().create(*[stored(f"job-{n}") for n in range(MOST_WAITING + 2)])

    lines = cluster.found()

    unreviewed, unjudged = (
        values(cluster.metrics, name) for name in ("unreviewed_jobs_total", "unjudged_jobs_total")
    )
    assert (unreviewed, unjudged) == ({POLICY: 100}, {(): 2})
    assert cluster.missed == [POLICY] * 100
    assert lines == missed(*(f"job-{number}" for number in range(NAMED_A_MINUTE)))


def test_a_refusal_is_said_once_and_what_came_meanwhile_is_not_judged():
    cluster = Cluster()
    refusal = WatchUpdate(kind="jobs", at=2.0, error="forbidden", unreadable=True)
    said = cluster.unreviewed.take(refusal), cluster.unreviewed.take(refusal)
    cluster.jobs["light"] = stored()

    assert (*said, cluster.list(at=5.0)) == (("jobs: forbidden",), (), ("jobs: readable again",))
    assert cluster.found() == []


def test_of_snapshots_that_differ_in_what_waits_one_is_kept():
    history, snapshot = SnapshotHistory(), paper_snapshot()
    off = updated(snapshot, off=OffSwitch())
    for number in range(100):
        used = {("team", "gpu-lq"): ConsumedResources(amounts={"cpu": float(number)})}
        changed = {"competing": {}, "reserving": {"gpu-cq": (number,)}, "consumed": used}
        state = updated(snapshot, generation=number + 1, **changed)
        history.note(state, number)
    history.note(off, 100.0)

    kept = history.since(50.0)

    assert [each.fallback.off for each in kept] == [OffSwitch(), None]
    assert all(each.fallback.policies == snapshot.fallback.policies for each in kept)
