from dataclasses import replace

import pytest

from tests.console import views
from tests.console.waiting import waiting
from webhook.console import page_filters
from webhook.console.page_filters import Filters

WORLD = views.view(
    queues=(
        views.queue("gpu-cq", local_queues=("team-a/gpu-lq",)),
        views.queue("cpu-cq", cohort="Research", local_queues=("team-a/cpu-lq", "team-b/big-lq")),
    ),
    policies=(
        views.policy("light-gpu"),
        views.policy("heavy", options=("big",)),
    ),
    decisions=(
        views.decision(1),
        views.decision(2, namespace="team-b", policy="heavy", queue="big-lq", options=()),
    ),
)


def names(view):
    return (
        [queue.name for queue in view.queues],
        [policy.name for policy in view.policies],
        [decision.recorded.id for decision in view.decisions],
    )


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, (["gpu-cq", "cpu-cq"], ["light-gpu", "heavy"], ["id1", "id2"])),
        ({"namespace": "M-B"}, (["cpu-cq"], ["heavy"], ["id2"])),
        ({"policy": "heavy"}, (["cpu-cq"], ["heavy"], ["id2"])),
        ({"queue": "gpu"}, (["gpu-cq"], ["light-gpu"], ["id1"])),
        ({"queue": "big-lq"}, (["cpu-cq"], ["heavy"], ["id2"])),
        ({"queue": "research"}, (["cpu-cq"], ["light-gpu", "heavy"], ["id1", "id2"])),
        ({"namespace": "team-a", "policy": "heavy"}, ([], [], [])),
        ({"namespace": "team-c"}, ([], [], [])),
        ({"text": "big"}, (["cpu-cq"], ["heavy"], ["id2"])),
        ({"text": "train-1"}, ([], [], ["id1"])),
        ({"moved": "1"}, (["gpu-cq", "cpu-cq"], ["light-gpu", "heavy"], ["id1", "id2"])),
    ],
)
def test_filters_keep_what_has_their_text_in_its_name(asked, wanted):
    assert names(page_filters.narrowed(WORLD, page_filters.read_filters(asked))) == wanted


def test_who_waits_is_filtered_as_all_else():
    line = waiting("train"), waiting("other", namespace="team-b"), waiting("rayjob/tune")
    moved = replace(line[0], workload=line[0].workload._replace(decision_id="id1"))
    own = views.decision(1, namespace="team")
    queues = (views.queue("gpu-cq", cohort="research"),)
    world = views.view(waiting=(moved, *line[1:]), decisions=(own,), queues=queues)

    def jobs(**asked):
        found = page_filters.narrowed(world, page_filters.read_filters(asked))
        return [each.workload.job for each in found.waiting]

    assert jobs(namespace="team-b") == ["other"]
    assert jobs(kind="ray") == ["rayjob/tune"]
    assert jobs(text="tun") == ["rayjob/tune"]
    assert jobs(queue="research") == ["train", "other", "rayjob/tune"]
    assert jobs(moved="1") == ["train"]


def test_parameters_are_trimmed_cut_and_the_rest_passed_over():
    given = {"queue": "  gpu ", "policy": "x" * 1000, "color": "red", "moved": "1"}

    assert page_filters.read_filters(given) == Filters(queue="gpu", policy="x" * 253, is_moved=True)


def test_an_address_says_what_was_asked():
    asked = Filters(namespace="a&b", queue="gpu lq", is_moved=True)

    written = "?namespace=a%26b&queue=gpu+lq&before=id7&moved=1"
    assert page_filters.address(asked, before="id7") == written
    assert page_filters.address(page_filters.NONE) == "?"


def test_decisions_are_listed_ten_at_a_time():
    decisions = tuple(views.decision(number) for number in range(24))

    first = page_filters.page(decisions, page_filters.NONE)
    second = page_filters.page(decisions, Filters(before="id9"))
    last = page_filters.page(decisions, Filters(before="id19"))

    assert (first.first, len(first.decisions), first.newer, first.older) == (
        *(1, 10, None),
        "?before=id9",
    )
    assert (second.first, len(second.decisions), second.newer, second.older) == (
        *(11, 10, "?"),
        "?before=id19",
    )
    assert (last.first, len(last.decisions), last.newer, last.older) == (21, 4, "?", None)


def test_a_page_stays_when_new_decisions_arrive():
    decisions = tuple(views.decision(number) for number in range(24))
    asked = Filters(before="id9")

    before = page_filters.page(decisions[1:], asked)
    after = page_filters.page(decisions, asked)

    assert after.decisions == before.decisions
