"""Options and policies that are for some users alone, at creation and in moves."""

import json

import pytest

from tests.builders import policy
from tests.flow.moves import asking, pending, with_spec
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import OPTION_LABEL, PRIORITY_LABEL
from webhook.model.policy.fallback_policy import Reconsider

MEMBER = {"username": "alice", "groups": ["ml-research", "system:authenticated"]}
STRANGER = {"username": "mallory", "groups": ["system:authenticated"]}
CONTROLLER = {
    "username": "system:serviceaccount:kueue-fallback:kueue-fallback-controller",
    "groups": ["system:serviceaccounts", "system:authenticated"],
}
GPU = {"name": "gpu", "queue": "gpu-lq"}
CPU = {"name": "cpu", "queue": "cpu-lq", "adaptation": {"accelerator": "Remove"}}
RESEARCH = {"only": {"groups": ["ml-research"]}}


def serving(*options, **changes):
    return Server(with_spec(paper_snapshot(), options=policy(*options).spec.options, **changes))


@pytest.mark.parametrize("kept", [RESEARCH, {"only": {"users": ["alice"]}}])
def test_who_asks_is_neither_written_on_the_job_nor_logged(kept):
    server = serving(GPU, {**CPU, **kept})

    decided, warnings = server.create(light_job(), userInfo=STRANGER)

    told = json.dumps([decided, warnings, server.logged()])
    assert "notForYou" in told
    assert not any(name in told for name in ("mallory", "system:authenticated"))


@pytest.mark.parametrize(
    ("user", "moved"), [(MEMBER, True), (STRANGER, False), (CONTROLLER, False)]
)
def test_a_move_is_judged_by_who_asks_for_it(user, moved):
    server = serving(GPU, {**CPU, **RESEARCH}, reconsider=Reconsider())
    before = pending(server.create(light_job(), userInfo=STRANGER)[0])

    after, warnings = server.update(before, asking(before, "cpu"), userInfo=user)

    assert (after["metadata"]["labels"][OPTION_LABEL] == "cpu") == moved
    assert moved or "notForYou" in warnings[0]


def test_a_policy_for_users_moves_whom_it_has_decided():
    match = policy(match={"users": ["alice"]}).spec.match
    server = serving(GPU, CPU, match=match, reconsider=Reconsider())
    before = pending(server.create(light_job(), userInfo=MEMBER)[0])

    after, _ = server.update(before, asking(before, "gpu"), userInfo=CONTROLLER)

    assert after["metadata"]["labels"][OPTION_LABEL] == "gpu"


def test_an_option_gives_its_jobs_a_priority_class():
    server = serving(GPU, {**CPU, "priorityClass": "low"})

    decided, _ = server.create(light_job())

    assert decided["metadata"]["labels"][PRIORITY_LABEL] == "low"
