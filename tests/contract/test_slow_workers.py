"""Ten worker clusters, one of which is no use: the whole server process, with played clusters."""

import json

import pytest

from hack import paper, played_workers
from hack.played_cluster import Mood
from hack.played_workers import NAMES, PENDING, WORKERS
from tests.contract.serving import serve, wait_until
from tests.reviews import admitted, review

BAD, *OTHERS = WORKERS
KNOWN = dict.fromkeys(OTHERS, PENDING)


@pytest.fixture
def played(tmp_path):
    with played_workers.played(tmp_path) as found:
        yield found


@pytest.fixture
def start(certificate, tmp_path):
    """Start the server; it may look at the workers."""
    return lambda: serve(
        certificate, tmp_path, played_workers.kubeconfig_path(tmp_path), watch_workers=True
    )


def decide(serving):
    """Ask for one light Job's decision as a dry run; None: nothing is known yet."""
    job = paper.light_job("light", NAMES)
    asked = json.dumps(review(job, namespace=NAMES.namespace, dry_run=True)).encode()
    status, answer = serving.post(asked)
    assert status == 200
    text = admitted(answer, job)["metadata"].get("annotations", {})
    return json.loads(text.get("kueue-fallback.dev/decision", "null"))


def clusters(serving):
    decision = decide(serving)
    return decision["options"][0].get("clusters", ()) if decision else ()


def counts(serving):
    """Tell how many wait on each worker, as far as that is known."""
    return {each["name"]: each["pending"] for each in clusters(serving) if "pending" in each}


def refusals(serving):
    return {each["name"]: each["rejected"] for each in clusters(serving) if "rejected" in each}


@pytest.mark.parametrize("mood", [Mood.SILENT, Mood.DRIPPING])
def test_a_worker_that_never_answers_holds_up_neither_reviews_nor_the_others(played, start, mood):
    _, workers = played
    workers[BAD].mood = mood

    with start() as serving:
        wait_until(lambda: counts(serving) == KNOWN)
        for number, name in enumerate(OTHERS):
            for more in range(number):
                workers[name].apply(played_workers.workload(f"more-{more}"))
        more = {name: PENDING + number for number, name in enumerate(OTHERS)}
        wait_until(lambda: counts(serving) == more)


def test_a_worker_that_does_not_answer_is_stale_until_it_does(played, start):
    _, workers = played
    fallen, never, *others = WORKERS
    workers[never].mood = Mood.SILENT
    known = dict.fromkeys(others, PENDING)

    with start() as serving:
        wait_until(lambda: counts(serving) == {**known, fallen: PENDING})
        workers[fallen].mood = Mood.SILENT
        wait_until(lambda: len(refusals(serving)) == 2)
        refused, left = refusals(serving), counts(serving)
        for name in (fallen, never):
            workers[name].apply(played_workers.workload("meanwhile"))
            workers[name].mood = Mood.PROMPT
        wait_until(lambda: counts(serving) == {**known, fallen: PENDING + 1, never: PENDING + 1})
        answered = refusals(serving)

    assert refused[fallen].startswith("stale: its queues were last seen ")
    assert refused[never].startswith("stale: its queues were not seen in ")
    assert (left, answered) == (known, {})
