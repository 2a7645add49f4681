import pytest

from tests.console import views
from webhook.console import page
from webhook.console.page import Filters

WORLD = views.view(
    queues=(views.queue("gpu-cq"), views.queue("cpu-cq", cohort="Research")),
    policies=(views.policy("light-gpu"), views.policy("heavy")),
    decisions=(
        views.decision(1),
        views.decision(2, namespace="team-b", policy="heavy", queue="big-lq", options=()),
    ),
)


def names(view):
    return (
        [queue.name for queue in view.queues],
        [policy.name for policy in view.policies],
        [decision.id for decision in view.decisions],
    )


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, (["gpu-cq", "cpu-cq"], ["light-gpu", "heavy"], ["id1", "id2"])),
        ({"namespace": "M-B"}, (["gpu-cq", "cpu-cq"], ["light-gpu", "heavy"], ["id2"])),
        ({"policy": "heavy"}, (["gpu-cq", "cpu-cq"], ["heavy"], ["id2"])),
        ({"queue": "gpu"}, (["gpu-cq"], ["light-gpu", "heavy"], ["id1"])),
        ({"queue": "big-lq"}, ([], ["light-gpu", "heavy"], ["id2"])),
        ({"queue": "research"}, (["cpu-cq"], ["light-gpu", "heavy"], [])),
        ({"namespace": "team-a", "policy": "heavy"}, (["gpu-cq", "cpu-cq"], ["heavy"], [])),
    ],
)
def test_filters_keep_what_has_their_text_in_its_name(asked, wanted):
    assert names(page.narrowed(WORLD, page.read(asked))) == wanted


def test_queues_are_found_by_the_cluster_that_they_are_in():
    queues = views.queue("a", cluster="worker-1"), views.queue("a"), views.queue("worker-2")

    found = page.narrowed(views.view(queues=queues), Filters(queue="worker"))

    assert [(queue.name, queue.cluster) for queue in found.queues] == [
        ("a", "worker-1"),
        ("worker-2", ""),
    ]


def test_parameters_are_trimmed_cut_and_the_rest_passed_over():
    read = page.read({"queue": "  gpu ", "policy": "x" * 1000, "color": "red"})

    assert read == Filters(queue="gpu", policy="x" * 253)


def test_an_address_says_what_was_asked():
    asked = Filters(namespace="a&b", queue="gpu lq")

    assert page.address(asked, before="id7") == "?namespace=a%26b&queue=gpu+lq&before=id7"
    assert page.address(page.NONE) == "?"


def test_decisions_are_listed_fifty_at_a_time():
    decisions = tuple(views.decision(number) for number in range(120))

    first = page.page(decisions, page.NONE)
    second = page.page(decisions, Filters(before="id49"))
    last = page.page(decisions, Filters(before="id99"))

    assert (first.first, len(first.decisions), first.newer, first.older) == (
        *(1, 50, None),
        "?before=id49",
    )
    assert (second.first, len(second.decisions), second.newer, second.older) == (
        *(51, 50, "?"),
        "?before=id99",
    )
    assert (last.first, len(last.decisions), last.newer, last.older) == (101, 20, "?", None)


def test_a_page_stays_when_new_decisions_arrive():
    decisions = tuple(views.decision(number) for number in range(120))
    asked = Filters(before="id49")

    before = page.page(decisions[1:], asked)
    after = page.page(decisions, asked)

    assert after.decisions == before.decisions


def test_a_page_that_is_forgotten_shows_the_latest():
    decisions = tuple(views.decision(number) for number in range(3))

    assert page.page(decisions, Filters(before="gone")).decisions == decisions
