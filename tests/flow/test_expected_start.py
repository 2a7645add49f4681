"""The annotation with the expected start is a mark: it comes and goes with decisions."""

import pytest

from tests.flow.movable_jobs import stored
from tests.flow.moves import asking, reconsidering
from tests.reviews import light_job
from tests.servers import Server
from webhook.model import forecasts
from webhook.model.forecasts import ExpectedStart
from webhook.model.job import EXPECTED_START, OPTION_LABEL

TOLD = forecasts.write_expected_start(ExpectedStart(at=1e9, as_of=9e8, cluster_queue="cpu-cq"))


def annotations(job):
    return job["metadata"]["annotations"]


@pytest.fixture
def server():
    return Server(reconsidering(pending=0))


@pytest.fixture
def told(server):
    job = stored(Server(reconsidering()))
    annotations(job)[EXPECTED_START] = TOLD
    return job


def test_a_new_job_that_copies_it_is_decided_without_it():
    job = light_job(annotations={EXPECTED_START: TOLD})

    decided, _ = Server(reconsidering()).create(job)

    assert decided["metadata"]["labels"][OPTION_LABEL] == "cpu"
    assert EXPECTED_START not in annotations(decided)


@pytest.mark.parametrize("wish", ["gpu", "none"], ids=["move", "undo"])
def test_a_move_and_an_undo_take_it_off(server, told, wish):
    after, _ = server.update(told, asking(told, wish))

    assert after != told
    assert EXPECTED_START not in annotations(after)


def test_the_write_itself_changes_nothing_else(server, told):
    before = {**told, "metadata": {**told["metadata"], "annotations": dict(annotations(told))}}
    del annotations(before)[EXPECTED_START]

    after, warnings = server.update(before, told)

    assert (after, warnings) == (told, [])
