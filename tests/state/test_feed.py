from tests.state.dispatched import NOON, sent
from tests.state.feeds import REQUIRED, RESOURCES, changed, listed, synced_feed
from tests.state.objects import cluster_queue, local_queue, named, workload
from webhook.api import resources as kinds
from webhook.api.watch import WatchUpdate
from webhook.model.pods import Selector
from webhook.state.feed import Feed
from webhook.state.pipe import apply_update
from webhook.state.snapshot import Snapshot, updated


def alive(kind, at):
    return WatchUpdate(kind=kind, at=at)


def test_nothing_is_published_before_all_that_is_required_has_been_listed():
    feed = Feed(RESOURCES, now=0.0)
    for kind in REQUIRED[:-1]:
        feed.take(listed(kind))

    early = feed.update(2.0, 0.0)
    feed.take(listed(REQUIRED[-1]))
    update = feed.update(3.0, 0.0)

    assert (early.synced, early.changed) == (False, {})
    assert update.synced


def test_what_is_waited_for_is_named():
    feed = Feed(RESOURCES, now=0.0)
    before = feed.update(1.0, 0.0)
    for kind in REQUIRED[:-2]:
        feed.take(listed(kind))

    assert before.waiting == tuple(sorted(REQUIRED))
    assert feed.update(2.0, 0.0).waiting == tuple(sorted(REQUIRED[-2:]))
    assert feed.not_ready() == f"not synced yet: {', '.join(sorted(REQUIRED[-2:]))}"
    assert (synced_feed().update(2.0, 0.0).waiting, synced_feed().not_ready()) == ((), "")


def test_the_first_update_carries_everything_so_that_nothing_of_another_observer_stays():
    old = updated(Snapshot(), held={"gone-cq": None}, competing={"gone-cq": ()}, generation=99)

    new = apply_update(old, synced_feed().update(2.0, 0.0))

    assert (new.workloads.held, new.workloads.arrivals, new.setup.cluster_queues) == ({}, (), {})


def test_later_updates_carry_what_has_changed():
    feed = synced_feed(clusterqueues=[cluster_queue()], localqueues=[local_queue()])
    first = feed.update(2.0, 0.0)
    quiet = feed.update(3.0, 0.0)
    feed.take(changed(kinds.WORKLOADS, "ADDED", workload(decision="d1")))
    update = feed.update(4.0, 0.0)

    assert quiet.changed == {}
    assert sorted(update.changed) == ["competing", "generation", "held"]
    assert [seen.key for seen in update.seen] == ["d1"]
    snapshot = apply_update(apply_update(Snapshot(), first), update)
    assert [arrival.key for arrival in snapshot.workloads.arrivals] == ["d1"]


def test_a_status_that_changes_nothing_we_use_is_no_change():
    feed = synced_feed(clusterqueues=[cluster_queue()])
    feed.update(2.0, 0.0)
    busier = {**cluster_queue(), "status": {"pendingWorkloads": 7}}

    feed.take(changed(kinds.CLUSTER_QUEUES, "MODIFIED", busier))

    assert feed.update(3.0, 0.0).changed == {}


def test_the_state_is_as_old_as_the_watch_that_has_been_silent_the_longest():
    feed = synced_feed()
    for kind in REQUIRED:
        feed.take(alive(kind, at=9.0))
    feed.take(alive(kinds.WORKLOADS, at=5.0))

    for kind in REQUIRED[1:]:
        feed.take(alive(kind, at=20.0))
    update = feed.update(21.0, 0.0)

    assert update.as_of == 9.0
    assert update.ages[REQUIRED[0]] == 12.0
    assert update.ages[REQUIRED[1]] == 1.0


def test_webhook_configurations_are_not_waited_for():
    feed = synced_feed()
    feed.take(alive(kinds.WEBHOOKS, at=50.0))

    assert feed.update(2.0, 0.0).as_of == 1.0


def test_running_before_kueue_must_be_proven():
    ours = named("", "a-fallback", webhooks=[{"name": "create.kueue-fallback.dev"}])
    kueues = named("", "kueue-webhooks", webhooks=[{"name": "mjob.kb.io"}])
    feed = synced_feed()
    unread = feed.update(1.0, 0.0).changed["runs_before_kueue"]
    feed.take(listed(kinds.WEBHOOKS, ours, kueues))
    proven = feed.update(2.0, 0.0).changed["runs_before_kueue"]
    feed.take(WatchUpdate(kind=kinds.WEBHOOKS, at=3.0, error="no", unreadable=True))
    forbidden = feed.update(3.0, 0.0).changed["runs_before_kueue"]

    assert (unread, proven, forbidden) == (False, True, False)


def test_what_may_no_longer_be_read_ends_the_sync_and_is_said_once():
    feed = synced_feed()
    refusal = WatchUpdate(kind=kinds.WORKLOADS, at=2.0, error="forbidden", unreadable=True)

    said = feed.take(refusal), feed.take(refusal), feed.take(listed(kinds.WORKLOADS, at=9.0))

    assert said == (("workloads: forbidden",), (), ("workloads: readable again",))
    assert feed.synced


def test_an_object_that_cannot_be_read_is_skipped_counted_and_said_once():
    broken = cluster_queue(stopPolicy="Sometimes")
    feed = synced_feed(clusterqueues=[cluster_queue("good")])
    said = feed.take(changed(kinds.CLUSTER_QUEUES, "ADDED", broken))
    again = feed.take(changed(kinds.CLUSTER_QUEUES, "MODIFIED", broken))
    update = feed.update(3.0, 0.0)

    expected = "expected one of None, Hold, HoldAndDrain, got 'Sometimes'"
    assert said == (f"skipped: clusterqueues gpu-cq: spec.stopPolicy: {expected}",)
    assert again == ()
    assert list(update.changed["cluster_queues"]) == ["good"]
    assert update.problems == {kinds.CLUSTER_QUEUES: 1}


def test_a_policy_that_stops_being_valid_is_skipped():
    options = [{"queue": "gpu-lq"}]
    spec = {"match": {"jobSelector": {}}, "options": options}
    good = named("FallbackPolicy", "p", spec=spec) | {"apiVersion": "kueue-fallback.dev/v1alpha1"}
    feed = synced_feed(fallbackpolicies=[good])
    before = feed.update(2.0, 0.0).changed["policies"]
    said = feed.take(changed(kinds.POLICIES, "MODIFIED", {**good, "spec": {**spec, "options": 3}}))
    after = feed.update(3.0, 0.0)

    assert [policy.name for policy in before] == ["p"]
    assert after.changed["policies"] == ()
    assert after.problems == {kinds.POLICIES: 1}
    assert said[0].startswith("skipped: fallbackpolicies p: ")


def test_lists_are_counted_and_looks_for_what_is_not_served_are_none():
    feed = synced_feed()
    feed.take(listed(kinds.COHORTS, at=2.0))
    feed.take(WatchUpdate(kind=kinds.CHECKS, at=2.0, entries=(), served=False))

    relists = feed.update(3.0, 0.0).relists

    assert (relists[kinds.COHORTS], relists[kinds.CHECKS]) == (2, 1)


def test_the_namespaces_that_we_are_asked_about_are_known_from_our_configuration():
    selector = {"matchLabels": {"team": "a"}}
    ours = {"name": "create.kueue-fallback.dev", "namespaceSelector": selector}
    feed = synced_feed()
    nothing = feed.update(1.0, 0.0).changed["reviewed_namespaces"]
    feed.take(listed(kinds.WEBHOOKS, named("", "a", webhooks=[ours]), named("", "b")))

    assert nothing == ()
    assert feed.update(2.0, 0.0).changed["reviewed_namespaces"] == (Selector(labels={"team": "a"}),)


def test_since_when_one_waits_does_not_depend_on_how_old_the_state_is():
    waits = sent("w1", "11:59:00")
    old, fresh = synced_feed(workloads=[waits]), synced_feed(workloads=[waits])
    for kind in REQUIRED:
        fresh.take(alive(kind, at=8.0))

    updates = [feed.update(9.0, NOON) for feed in (old, fresh)]

    assert [each.as_of for each in updates] == [1.0, 8.0]
    assert [each.changed["dispatches"]["gpu-cq"].waiting_since for each in updates] == [-51.0] * 2
