"""A move or an undo that a person asks for while the Workload is not simply waiting."""

import pytest

from tests.flow.movable_jobs import ALIKE, QUEUE, UNNAMED, small_job, stored
from tests.flow.moves import asking, decision, move, pending, reconsidering, with_spec
from tests.reviews import light_job
from tests.servers import Server
from webhook.model.decision import Undone
from webhook.model.reasons import Obstacle
from webhook.state.snapshot import updated

LIGHT = ("team", "light")
BLOCKING = [
    Obstacle.QUOTA_RESERVED,
    Obstacle.STOPPING,
    Obstacle.HELD,
    Obstacle.ON_HOLD,
    Obstacle.BACKOFF,
]


def server(obstacle=None, *, options=UNNAMED, key=LIGHT, **state):
    found = with_spec(reconsidering(**state), options=options)
    return Server(updated(found, obstacles={key: obstacle} if obstacle else {}))


def refused(at, before, option):
    """Ask; returns the obstacle and what is warned of, once nothing else has changed."""
    after, warnings = at.update(before, asking(before, option))
    assert after == before
    return at.considered[-1].outcome.obstacle, _as_one(warnings)


def _as_one(warnings):
    """Join what was told in two warnings, as one would have been too long."""
    first, *rest = warnings
    return ": ".join([first, *(each.removeprefix("kueue-fallback: ") for each in rest)])


@pytest.mark.parametrize("obstacle", BLOCKING)
@pytest.mark.parametrize("alike", [False, True], ids=["resources", "queue alone"])
def test_a_move_is_refused_with_what_the_workload_has_against_it(obstacle, alike):
    options, job = (ALIKE, small_job()) if alike else (UNNAMED, light_job())
    before = stored(server(options=options, pending=0), job)

    found = refused(server(obstacle, options=options, pending=0), before, "cpu")

    assert found == (obstacle, f"kueue-fallback: not moved to cpu: {obstacle.meaning}")


@pytest.mark.parametrize("obstacle", BLOCKING)
def test_an_undo_is_refused_with_it_too(obstacle):
    before = stored(server())

    found = refused(server(obstacle), before, "none")

    assert found == (obstacle, f"kueue-fallback: not undone: {obstacle.meaning}")


def test_another_jobs_workload_is_nothing_to_it():
    before = stored(server(pending=0))

    elsewhere = server(Obstacle.QUOTA_RESERVED, key=("other", "light"), pending=0)

    assert decision(move(elsewhere, before, "cpu")[0])["option"] == "cpu"


def test_once_evicted_it_is_moved_with_its_resources_but_not_by_its_queue_alone():
    whole, alone = stored(server(pending=0)), stored(server(options=ALIKE, pending=0), small_job())

    moved, _ = move(server(Obstacle.EVICTED, pending=0), whole, "cpu")
    found = refused(server(Obstacle.EVICTED, options=ALIKE, pending=0), alone, "cpu")

    assert decision(moved)["option"] == "cpu"
    assert found[0] is Obstacle.EVICTED


@pytest.mark.parametrize("alike", [False, True], ids=["resources", "queue alone"])
def test_what_is_deactivated_can_be_moved_before_it_is_activated_again(alike):
    options, job = (ALIKE, small_job()) if alike else (UNNAMED, light_job())
    before = stored(server(options=options, pending=0), job)
    at = server(Obstacle.DEACTIVATED, options=options, pending=0)

    moved, _ = move(at, before, "cpu")
    back, _ = at.update(moved, asking(moved, "none"))

    assert (decision(moved)["option"], moved["metadata"]["labels"][QUEUE]) == ("cpu", "cpu-lq")
    assert back["metadata"]["labels"][QUEUE] == "gpu-lq"


def test_once_evicted_it_is_undone_with_its_resources_but_not_by_its_queue_alone():
    whole = stored(server())
    alone, _ = move(
        server(options=ALIKE, pending=0),
        stored(server(options=ALIKE, pending=0), small_job()),
        "cpu",
    )

    undone, _ = (at := server(Obstacle.EVICTED)).update(whole, asking(whole, "none"))
    found = refused(server(Obstacle.EVICTED, options=ALIKE), alone, "none")

    assert undone["metadata"]["labels"][QUEUE] == "gpu-lq"
    assert isinstance(at.considered[-1].outcome, Undone)
    assert found[0] is Obstacle.EVICTED


def test_an_undo_that_the_workload_need_not_follow_is_made_whatever_that_is():
    before = stored(server(options=ALIKE, pending=0), small_job())
    at = server(Obstacle.QUOTA_RESERVED, options=ALIKE)

    after, (warning,) = at.update(before, asking(before, "none"))

    assert warning.startswith("kueue-fallback: undone: in gpu-lq as submitted")
    assert after["spec"] == before["spec"]


def test_where_the_state_is_too_old_nothing_is_moved_and_an_undo_goes_by_the_job_alone():
    before, here = stored(server()), stored(server(pending=0))
    late = server(Obstacle.QUOTA_RESERVED)
    late.now += 60.0

    assert refused(late, here, "cpu")[0] is Obstacle.STALE
    after, _ = late.update(before, asking(before, "none"))
    assert after["metadata"]["labels"][QUEUE] == "gpu-lq"


def test_a_manifest_applied_again_is_restored_whatever_its_workload_is():
    before = stored(server())
    again = pending(light_job(annotations=before["metadata"]["annotations"]))

    for obstacle in (None, Obstacle.QUOTA_RESERVED):
        restored, _ = server(obstacle).update(before, again)
        assert restored["metadata"]["labels"][QUEUE] == "cpu-lq"
