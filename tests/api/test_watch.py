"""List-then-watch on a scripted API server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.script import COHORTS, Script
from webhook.api.kubernetes_api import Forbidden, Gone, NotServed, TooLarge, Unreachable
from webhook.api.watch import PAGE, list_pages


def namespace(name, version="7"):
    return {"metadata": {"name": name, "labels": {}, "resourceVersion": version}}


def page(*names, version="5", more=""):
    metadata = {"resourceVersion": version} | ({"continue": more} if more else {})
    return {"metadata": metadata, "items": [namespace(name) for name in names]}


def event(event_type, name="a", version="7"):
    return {"type": event_type, "object": namespace(name, version)}


def changes(script):
    """Tell the messages that carry something: listed keys, or a change."""
    found = []
    for message in script.messages:
        if message.entries is not None:
            found.append([entry.key[1] for entry in message.entries])
        if message.event is not None:
            found.append((message.event[0], message.event[1].key[1]))
    return found


def test_pages_are_listed_and_watched_from_their_resource_version():
    script = Script(page("a", more="t1"), page("b", version="5"), [10.0]).steps(1)

    assert script.asked == [
        ("list", "/api/v1/namespaces", {"limit": "500"}),
        ("list", "/api/v1/namespaces", {"limit": "500", "continue": "t1"}),
        (
            "watch",
            "/api/v1/namespaces",
            {
                "allowWatchBookmarks": "true",
                "resourceVersion": "5",
                "timeoutSeconds": "2",
                "read_seconds": 4.0,
            },
        ),
    ]
    assert changes(script) == [["a", "b"]]


def test_a_watch_that_ends_is_resumed_from_the_last_event_without_a_wait():
    script = Script(page("a"), [event("ADDED", "b", "8"), 10.0], [10.0]).steps(2)

    assert script.kinds_of_calls() == ["list", "watch", "watch"]
    assert script.asked[2][2]["resourceVersion"] == "8"
    assert script.slept == []
    assert changes(script) == [["a"], ("ADDED", "b")]


def test_a_bookmark_moves_the_resource_version_and_changes_nothing():
    script = Script(page("a"), [event("BOOKMARK", "", "9"), 10.0], [10.0]).steps(2)

    assert script.asked[2][2]["resourceVersion"] == "9"
    assert changes(script) == [["a"]]


@pytest.mark.parametrize(
    "answer",
    [{"items": 5}, {"items": ["a"]}, {"items": [{"metadata": "a"}]}, {"metadata": "a"}],
)
def test_what_is_no_list_of_objects_is_a_failure_like_any_other(answer):
    script = Script(answer, page("a"), [10.0]).steps(2)

    assert script.messages[0].error == "an answer that is no list of objects"
    assert changes(script) == [["a"]]


@pytest.mark.parametrize("found", ["a", ["a"], {"metadata": "a"}])
def test_an_event_without_an_object_is_a_failure_like_any_other(found):
    script = Script(page("a"), [{"type": "ADDED", "object": found}], [10.0]).steps(2)

    assert [each.error for each in script.messages if each.error] == ["an event without an object"]
    assert changes(script) == [["a"]]


def test_watches_are_longer_while_all_goes_well():
    script = Script(page("a"), [2.0], [9.0], Unreachable("x"), [2.0], [9.0]).steps(5)

    lengths = [params.get("timeoutSeconds") for _, _, params in script.asked]
    assert lengths == [None, "2", "9", "9", "2", "9"]


def test_an_opened_watch_that_says_it_is_too_late_is_no_sign_of_life():
    gone = [{"type": "ERROR", "object": {"code": 410}}]
    script = Script(page("a"), [10.0], gone).steps(2)

    assert [message.at for message in script.messages] == [100.0, 110.0]


@pytest.mark.parametrize(
    "gone",
    [
        Gone(),
        [{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}],
    ],
    ids=["as an answer", "as an event"],
)
def test_a_version_too_old_leads_to_a_new_list(gone):
    script = Script(page("a"), gone, page("b", version="20"), [10.0]).steps(2)

    assert script.kinds_of_calls() == ["list", "watch", "list", "watch"]
    assert script.asked[3][2]["resourceVersion"] == "20"
    assert changes(script) == [["a"], ["b"]]
    assert script.slept == [0.1]


def test_an_api_server_that_is_gone_is_tried_ever_more_slowly_and_then_resumed():
    down = [Unreachable("refused")] * 7
    script = Script(page("a"), *down, [event("ADDED", "b"), 10.0]).steps(8)

    assert script.kinds_of_calls() == ["list"] + ["watch"] * 8
    assert script.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0])
    assert changes(script) == [["a"], ("ADDED", "b")]
    assert [m.error for m in script.messages if m.error] == ["refused"] * 7


def test_after_many_failures_everything_is_listed_anew():
    script = Script(page("a"), *[Unreachable("x")] * 9, page("b"), [10.0]).steps(10)

    assert script.kinds_of_calls() == ["list"] + ["watch"] * 9 + ["list", "watch"]


def test_a_watch_that_breaks_off_keeps_what_it_has_told():
    broken = [event("ADDED", "b", "8"), Unreachable("reset")]
    script = Script(page("a"), broken, [10.0]).steps(2)

    assert script.asked[2][2]["resourceVersion"] == "8"
    assert script.slept == [0.1]


def test_watches_that_end_at_once_are_not_opened_in_a_loop():
    script = Script(page("a"), [], [], [10.0], []).steps(4)

    assert script.slept == pytest.approx([0.1, 0.2, 0.1])


def test_what_is_not_served_is_empty_and_looked_for_again():
    script = Script(NotServed("cohorts"), page("a"), [10.0]).steps(2, COHORTS)

    assert changes(script) == [[], ["a"]]
    assert [m.served for m in script.messages if m.entries is not None] == [False, True]
    assert script.slept == [8.0]
    assert script.forgotten == 1


def test_what_was_served_is_believed_gone_only_when_said_twice():
    script = Script(page("a"), NotServed("x"), NotServed("x")).steps(2)

    assert changes(script) == [["a"], []]
    assert script.slept == [0.1, 8.0]


def test_what_may_not_be_read_is_said_and_tried_again():
    script = Script(Forbidden("namespaces", "no"), page("a"), [10.0]).steps(2)

    first = script.messages[0]
    assert (first.error, first.unreadable, script.slept) == ("no", True, [8.0])
    assert changes(script) == [["a"]]


class Large:
    """Lists objects of some sizes; no answer has more than a hundred in all, unless of one."""

    def __init__(self, sizes):
        self.sizes, self.limits = sizes, []

    def get(self, path, params):
        limit, start = int(params["limit"]), int(params.get("continue", 0))
        self.limits.append(limit)
        page = self.sizes[start : start + limit]
        if sum(page) > 100 and limit > 1:
            raise TooLarge(path)
        end = start + len(page)
        rest = {"continue": str(end)} if end < len(self.sizes) else {}
        return {"items": [{"size": size} for size in page], "metadata": rest}


@given(st.lists(st.sampled_from([0, 1, 30, 99, 101, 500]), max_size=300))
def test_all_objects_are_listed_once_in_pages_that_can_be_held(sizes):
    for most in (PAGE, 20):
        large = Large(sizes)

        pages = list(list_pages(large, "/jobs", most=most))

        assert [item["size"] for page in pages for item in page["items"]] == sizes
        assert large.limits[0] == most
        assert max(large.limits) <= most
