"""Jobs that came without a review, as a replica that does not lead knows them."""

from tests.controller.stepping import values
from tests.controller.watched_jobs import Cluster, missed, stored
from webhook.controller.unreviewed import JUDGED_SECONDS, MOST_WAITING

SEEN = 5.0


def test_jobs_that_the_leader_cannot_have_judged_are_kept_for_who_leads_next():
    cluster = Cluster().create(stored())

    cluster.follow(leader_at=SEEN + JUDGED_SECONDS)

    assert cluster.found() == missed("light")


def test_jobs_that_a_leader_has_judged_are_not_judged_again():
    cluster = Cluster().create(stored())

    cluster.follow(leader_at=SEEN + JUDGED_SECONDS + 0.1)

    assert cluster.found() == []


def test_while_nobody_was_seen_to_lead_all_are_kept():
    cluster = Cluster().create(stored())

    cluster.follow(leader_at=float("-inf"))

    assert cluster.found() == missed("light")


def test_what_is_too_much_for_a_follower_is_counted_by_nobody():
    cluster = Cluster().create(*[stored(f"job-{n}") for n in range(MOST_WAITING + 2)])

    cluster.follow(leader_at=SEEN + JUDGED_SECONDS + 0.1)

    assert cluster.found() == []
    assert values(cluster.metrics, "unjudged_jobs_total") == {}
