import gc
import weakref

from webhook.model.job import PodSet, PodSets, of_pod_sets
from webhook.model.pods import PodTemplate

TEMPLATE = PodTemplate()


def pod_sets():
    return PodSets((PodSet(name="main", count=1, template=TEMPLATE),))


def test_work_is_done_once_for_the_same_objects():
    found, calls, key = pod_sets(), [], object()

    results = [found.recall((key,), lambda: calls.append(1) or len(calls)) for _ in range(3)]

    assert results == [1, 1, 1]


def test_what_came_to_nothing_is_remembered_too():
    found, calls, key = pod_sets(), [], object()

    results = [found.recall((key,), lambda: calls.append(1)) for _ in range(3)]

    assert (results, calls) == ([None] * 3, [1])


def test_equal_objects_are_other_objects():
    found, calls = pod_sets(), []
    keys = [["a"], ["a"]]

    for key in keys:
        found.recall((key,), lambda: calls.append(1))

    assert calls == [1, 1]


def test_no_new_object_passes_for_one_that_is_gone():
    found = pod_sets()

    results = [found.recall(([number],), lambda number=number: number) for number in range(60)]

    assert results == list(range(60))


def test_it_remembers_a_bounded_number():
    found = pod_sets()

    for number in range(1000):
        found.recall(([number],), lambda: None)

    assert len(found.__dict__["_known"]) <= 64


def test_a_plain_tuple_remembers_nothing():
    calls = []

    for _ in range(2):
        of_pod_sets(lambda given, other: calls.append((given, other)), (), "other")

    assert calls == [((), "other"), ((), "other")]


def test_with_the_pod_sets_goes_what_was_worked_out():
    class Outcome:
        pass

    found = pod_sets()
    outcome = weakref.ref(of_pod_sets(lambda *_: Outcome(), found, found, "another"))
    assert outcome() is not None

    gc.disable()
    try:
        del found
        assert outcome() is None
    finally:
        gc.enable()
