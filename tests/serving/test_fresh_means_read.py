"""A state is as fresh as what was read of the cluster, however often an observer is started."""

from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from tests.state.feeds import RESOURCES, synced_feed
from webhook.state.feed import Feed
from webhook.state.pipe import Update, apply_update
from webhook.state.snapshot import Snapshot

REASON = "kueue-fallback.dev/reason"


def test_observers_that_end_before_their_first_sync_make_no_old_state_fresh():
    server = Server(paper_snapshot(as_of=95.0))
    for started in range(96, 116, 5):
        server.now = float(started)
        server.handler.update(Feed(RESOURCES, now=started).update(started + 0.5, 0.0))

    job, _ = server.create(light_job())

    assert server.handler.state_age_seconds() == 16.0
    assert job["metadata"]["annotations"][REASON].startswith(
        "kueue-fallback: left as submitted: stale: the queues were last seen 16s ago"
    )


def test_the_forecasts_of_one_that_knows_nothing_are_no_fresher_either():
    server = Server(paper_snapshot(as_of=95.0))
    before = server.handler.forecast_age_seconds()

    server.handler.update(Update(forecasts_as_of=100.0, as_of=100.0))

    assert server.handler.forecast_age_seconds() == before


def test_the_first_sync_of_another_observer_makes_it_fresh():
    snapshot = apply_update(Snapshot(as_of=5.0), Update(as_of=9.0, synced=True))

    assert apply_update(snapshot, Update(as_of=12.0)).as_of == snapshot.as_of == 9.0


def test_an_update_after_one_that_was_lost_carries_everything():
    feed = synced_feed()
    whole = feed.update(2.0, 0.0).changed
    nothing = feed.update(3.0, 0.0).changed
    feed.publish_anew()

    again = feed.update(4.0, 0.0).changed

    assert nothing == {}
    assert again.keys() == whole.keys()
