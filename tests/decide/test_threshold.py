from __future__ import annotations

import pytest

from tests.builders import PAPER_THRESHOLD, applicant, policy
from webhook.decide.strategies import Choice, choose
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.reasons import Reason

PAPER = policy(threshold=PAPER_THRESHOLD)
UNQUEUED = applicant(PAPER, submitted="")
STOPPED = Rejection(reason=Reason.STOPPED, detail="ClusterQueue gpu-cq has stopPolicy Hold")


def option(name, fit=Fit.WAITS, **rest):
    rest = {"pending": 0, "reserving": 0, "starts_now": fit is Fit.FITS, **rest}
    return Assessment(option=name, queue=f"{name}-lq", cluster_queue=f"{name}-cq", fit=fit, **rest)


@pytest.mark.parametrize(
    ("cpu", "because"),
    [
        (option("cpu", Fit.FITS, reserving=3), "cpu-lq has 3 with quota reserved"),
        (option("cpu", Fit.WAITS), "cpu-lq has no quota free"),
        (option("cpu", None, rejection=STOPPED), f"cpu-lq refused: {STOPPED.detail}"),
    ],
    ids=["reserving", "waits", "refused"],
)
def test_without_a_rule_that_holds_the_first_option_stands(cpu, because):
    found = choose(applicant(PAPER), [option("gpu", pending=12), cpu])

    sentence = f"stays in gpu-lq (gpu): no threshold holds; gpu-lq has 12 pending; {because}"
    assert found == Choice(index=0, sentence=sentence)


def test_a_refused_option_is_passed_over():
    found = choose(
        UNQUEUED,
        [option("gpu", None, rejection=STOPPED), option("cpu", Fit.FITS)],
    )

    sentence = f"sent to cpu-lq (cpu): starts now; gpu-lq refused: {STOPPED.detail}"
    assert found == Choice(index=1, sentence=sentence)


def test_a_refused_first_option_leaves_the_job_alone_when_no_rule_holds():
    found = choose(UNQUEUED, [option("gpu", None, rejection=STOPPED), option("cpu")])

    sentence = f"left as submitted: gpu: {STOPPED.detail}"
    assert found == Choice(index=None, sentence=sentence)


def test_quota_may_be_free_behind_a_pending_head():
    gpu = option("gpu", Fit.FITS, pending=12, starts_now=False)

    found = choose(applicant(PAPER), [gpu, option("cpu", Fit.FITS)])

    assert found == Choice(index=0, sentence="stays in gpu-lq (gpu): has quota free")


def test_what_only_observes_says_what_would_be():
    watching = policy(threshold=PAPER_THRESHOLD, mode="Observe")

    found = choose(applicant(watching), [option("gpu", pending=12), option("cpu", Fit.FITS)])

    sentence = "would be sent to cpu-lq (cpu): starts now; gpu-lq has 12 pending"
    assert found == Choice(index=1, sentence=sentence)


def test_a_sentence_leaves_room_for_the_warning_around_it():
    long = Rejection(reason=Reason.INACTIVE, detail="x" * 400)

    found = choose(
        UNQUEUED,
        [option("gpu", None, rejection=long), option("cpu", Fit.FITS)],
    )

    assert len(found.sentence) == 230
    assert found.sentence.endswith("x…")
