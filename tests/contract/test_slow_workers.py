"""Ten worker clusters, one of which is no use: the whole server process, with played clusters."""

import json

import pytest

from hack import paper
from hack.embedded import many_workers
from hack.embedded.faults import Mood
from hack.embedded.many_workers import NAMES, PENDING, WORKERS
from hack.waiting import wait_for
from tests.contract.serving import serve
from tests.reviews import admitted, review

BAD, WORSE, *OTHERS = WORKERS
KNOWN = dict.fromkeys(OTHERS, PENDING)


@pytest.fixture
def played(tmp_path):
    with many_workers.played(tmp_path) as found:
        yield found


@pytest.fixture
def serving(certificate, tmp_path, played):
    """A server that may look at the workers, two of which never answer."""
    workers = played[1]
    workers[BAD].faults.mood, workers[WORSE].faults.mood = Mood.SILENT, Mood.DRIPPING
    kubeconfig = many_workers.kubeconfig_path(tmp_path)
    with serve(certificate, tmp_path, kubeconfig, watch_workers=True) as found:
        yield found


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
    # There are no options while the manager's own state is stale.
    options = (decision or {}).get("options") or [{}]
    return options[0].get("clusters", ())


def counts(serving):
    """Tell how many wait on each worker, as far as that is known."""
    return {each["name"]: each["pending"] for each in clusters(serving) if "pending" in each}


def refused(serving, *, beside):
    """Tell why workers are refused, once those that answer are known beside them."""
    found = {each["name"]: each.get("rejected") for each in clusters(serving)}
    is_known = all(name in found and found[name] is None for name in beside)
    return {name: why for name, why in found.items() if why} if is_known else {}


def test_workers_that_do_not_answer_hold_up_nobody_and_are_stale_until_they_do(played, serving):
    _, workers = played
    fallen, *prompt = OTHERS

    wait_for(lambda: counts(serving) == KNOWN, "the others are known")
    for number, name in enumerate(OTHERS):
        for more in range(number):
            workers[name].apply(many_workers.workload(f"more-{more}"))
    known = {name: PENDING + number for number, name in enumerate(OTHERS)}
    wait_for(lambda: counts(serving) == known, "what has come to the others is known")
    workers[fallen].faults.mood = Mood.SILENT
    stale = wait_for(
        lambda: (found := refused(serving, beside=prompt)).keys() >= {fallen, BAD} and found,
        lambda: f"those that do not answer are stale, and the others are not: {clusters(serving)}",
    )
    for name in (fallen, BAD):
        workers[name].apply(many_workers.workload("meanwhile"))
        workers[name].faults.mood = Mood.PROMPT
    answering = {**known, fallen: PENDING + 1, BAD: PENDING + 1}
    wait_for(lambda: counts(serving).items() >= answering.items(), "they are known again")

    assert stale[fallen].startswith("stale: its queues were last seen ")
    assert stale[BAD].startswith("stale: its queues were not seen in ")
