"""An option that limits its guests takes in by a move only who will be counted among them."""

import pytest

from tests.builders import policy
from tests.flow.moves import asking, decision, move, pending, reconsidering, with_spec
from tests.reconsider import queued_jobs
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import OPTION_LABEL
from webhook.model.policy.fallback_policy import Reconsider
from webhook.model.reasons import Obstacle

GUESTS = {"maxJobs": 3}
GPU = {"name": "gpu", "queue": "gpu-lq"}
UNLIMITED = {"name": "cpu", "queue": "cpu-lq"}
LIMITED = {**UNLIMITED, "guests": GUESTS}
ADOPTS = {**queued_jobs.RULES, "adopt": True}


def small_job():
    job = light_job()
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources.clear()
    resources |= {"requests": {"cpu": "1"}}
    return job


def adopting(*options):
    rules = Reconsider.model_validate({"adopt": True})
    return Server(
        with_spec(paper_snapshot(), options=policy(*options).spec.options, reconsider=rules)
    )


def asking_undecided(before, option):
    asked = asking(before, option)
    asked["metadata"]["labels"][OPTION_LABEL] = option
    return asked


def test_an_undecided_job_is_not_moved_there_by_its_queue_alone():
    server, before = adopting(GPU, LIMITED), pending(small_job())

    after, warnings = server.update(before, asking_undecided(before, "cpu"))

    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["spec"] == before["spec"]
    assert warnings == [f"kueue-fallback: not moved to cpu: {Obstacle.UNCOUNTED_GUEST.meaning}"]
    assert server.considered[-1].outcome.obstacle is Obstacle.UNCOUNTED_GUEST


def test_once_adopted_by_its_queue_alone_it_is_not_counted_either():
    before = pending(small_job())
    free = adopting(GPU, UNLIMITED, {"name": "more", "queue": "gpu-lq", "guests": GUESTS})
    adopted, _ = free.update(before, asking_undecided(before, "cpu"))

    after, _ = move(free, adopted, "more")

    assert decision(after)["option"] == "cpu"
    assert free.considered[-1].outcome.obstacle is Obstacle.UNCOUNTED_GUEST


def test_a_decided_job_carries_its_policys_mark_and_is_moved_there():
    options = policy(GPU, LIMITED).spec.options
    server = Server(with_spec(reconsidering(pending=0), options=options))
    before = pending(server.create(small_job())[0])

    after, _ = move(server, before, "cpu")

    assert decision(after)["option"] == "cpu"


@pytest.mark.parametrize(
    ("marked", "adaptation", "why"),
    [
        (("light-gpu", "gpu"), {}, set()),
        (("", ""), {}, {Obstacle.UNCOUNTED_GUEST}),
        (("another", "gpu"), {}, {Obstacle.UNCOUNTED_GUEST}),
        (("", ""), queued_jobs.ADAPTED, set()),
    ],
    ids=["its policy's mark", "no mark", "another policy's mark", "its resources change too"],
)
def test_the_look_offers_it_only_to_who_will_be_counted(marked, adaptation, why):
    lines = [
        queued_jobs.running("first"),
        *(queued_jobs.waiting(n, guest=marked) for n in range(8)),
    ]
    jobs = [queued_jobs.pending(number) for number in range(8)]
    limited = {**queued_jobs.OPTIONS[1], "adaptation": adaptation, "guests": GUESTS}
    rules = queued_jobs.rule(options=(queued_jobs.OPTIONS[0], limited), reconsider=ADOPTS)

    found = queued_jobs.looked(lines, jobs, policies=(rules,))

    assert queued_jobs.why(found) == why
    assert bool(found.moves) is not bool(why)
