"""Objects that tenants write as many of as they like: so many are read, and which is certain."""

from dataclasses import replace

from tests.api.script import NAMESPACES, Script
from webhook.api.resources import Limit, ReadObject

LIMITED = replace(
    NAMESPACES,
    kind="policies",
    limit=Limit(in_namespace=2, in_cluster=3),
    read=lambda _, source: ReadObject(
        (source["metadata"]["namespace"], source["metadata"]["name"]), "read"
    ),
)
ONLY = "only 2 of a namespace and 3 in all are read"


def item(name, version="7"):
    namespace, name = name.split("/")
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": version}}


def page(*names):
    return {"metadata": {"resourceVersion": "5"}, "items": [item(name) for name in names]}


def event(event_type, name):
    return {"type": event_type, "object": item(name)}


def read(script):
    """Tell for each message what it says is read, and the problems."""
    return [
        ["/".join(entry.key) if entry.value else entry.problem for entry in message.entries]
        if message.entries is not None
        else f"{message.event[0]} {message.event[1].problem or '/'.join(message.event[1].key)}"
        for message in script.messages
        if message.entries is not None or message.event is not None
    ]


def test_the_first_of_a_namespace_are_read_and_its_others_are_one_problem():
    script = Script(page("a/1", "a/2", "a/3", "a/4", "b/1"), [10.0]).steps(1, LIMITED)

    assert read(script) == [["a/1", "a/2", "b/1", f"a/*: {ONLY}"]]


def test_so_many_of_a_cluster_are_read():
    script = Script(page("a/1", "b/1", "b/2", "c/1", "c/2"), [10.0]).steps(1, LIMITED)

    assert read(script) == [["a/1", "b/1", "b/2", f"c/*: {ONLY}"]]


def test_one_that_is_added_beyond_the_limit_is_left_out_and_one_that_changes_is_read():
    watch = [event("ADDED", "a/3"), event("MODIFIED", "a/1"), 10.0]
    script = Script(page("a/1", "a/2"), watch).steps(1, LIMITED)

    assert read(script)[1:] == [f"ADDED a/*: {ONLY}", "MODIFIED a/1"]


def test_a_place_that_gets_free_is_filled_by_a_new_list():
    first, watch = page("a/1", "a/2", "a/3"), [event("DELETED", "a/1"), 10.0]
    script = Script(first, watch, page("a/2", "a/3"), [10.0]).steps(2, LIMITED)

    assert read(script)[1:] == ["DELETED a/1", ["a/2", "a/3"]]


def test_one_whose_name_comes_before_those_read_is_read_with_the_next_list():
    first, watch = page("a/1", "a/3"), [event("ADDED", "a/2"), 10.0]
    script = Script(first, watch, page("a/1", "a/2", "a/3"), [10.0]).steps(2, LIMITED)

    assert read(script)[-1] == ["a/1", "a/2", f"a/*: {ONLY}"]
