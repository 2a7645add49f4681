"""What the console tells of gains where Jobs ran in worker clusters."""

import pytest

from tests.console.journal_server import OURS, UNIX, Server
from tests.hindsight import journals
from webhook.console.lookback import Looker
from webhook.model.policy.fallback_policy import Mode

# The manager lets through ten times what its worker has.
GIVEN = journals.scenario("clusters", managerGpus=40)
DECIDED = journals.happened(GIVEN, "FinishTime")
WORKERS = {name: each.snapshot for name, each in GIVEN.workers.items()}


@pytest.mark.parametrize(("workers", "policies"), [(WORKERS, ["heavy", "light"]), ({}, [])])
def test_gains_are_told_where_the_worker_is_watched_and_not_guessed_else(workers, policies):
    entries = journals.entries(GIVEN, DECIDED, mode="Enforce")
    snapshot = journals.world(GIVEN, "FinishTime", mode=Mode.ENFORCE).snapshot
    looker = Looker(
        lambda: Server(entries),
        OURS,
        lambda _: None,
        clock=lambda: 0.0,
        unix=lambda: UNIX,
        sleep=lambda _: None,
    )

    looker.step(snapshot, workers)

    gained = looker.found(snapshot, workers).gained
    assert [each.policy for each in gained] == policies
    assert all(each.saved_seconds > 0 for each in gained)
