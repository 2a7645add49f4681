"""An embedded API server as the project's own client sees it, and what it does on demand."""

import http
import threading

import pytest

from hack import paper
from hack.embedded.api_server import EmbeddedServer
from hack.embedded.faults import Mood
from webhook.api.client import Client
from webhook.api.kubernetes_api import Gone, NotServed, Refused, Unreachable

QUEUES = "/apis/kueue.x-k8s.io/v1beta2/localqueues"
PLACE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues"
FIRST = paper.local_queue("first", "team", cluster_queue="gpu-cq")
SECOND = paper.local_queue("second", "team", cluster_queue="gpu-cq")


@pytest.fixture
def served():
    with EmbeddedServer([FIRST]) as found:
        yield found


@pytest.fixture
def client(served):
    return Client(served.kubeconfig())


def watch(client, version, seconds="300"):
    params = {"resourceVersion": version, "timeoutSeconds": seconds}
    return client.watch(QUEUES, params, read_seconds=400.0)


def names_in(items):
    return [item["metadata"]["name"] for item in items]


def test_what_it_was_given_is_listed_and_got_by_name(client):
    known = {**FIRST, "metadata": {**FIRST["metadata"], "resourceVersion": "1"}}

    assert client.kueue_version() == "v1beta2"
    assert client.get(QUEUES)["items"] == [known]
    assert client.get(f"{PLACE}/first") == known
    assert client.get(QUEUES, {"fieldSelector": "metadata.name=second"})["items"] == []
    with pytest.raises(NotServed):
        client.get(f"{PLACE}/second")


def test_what_changes_is_watched_from_the_list_on(served, client):
    events = watch(client, "1")
    served.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    served.apply(SECOND)
    served.delete(FIRST)

    found = [next(events) for _ in range(2)]

    assert [(each["type"], each["object"]["metadata"]["name"]) for each in found] == [
        ("ADDED", "second"),
        ("DELETED", "first"),
    ]


def test_a_watch_ends_when_its_time_is_over(client):
    assert list(watch(client, "1", "0.1")) == []


def test_a_silent_one_answers_nothing_until_it_is_prompt_again(served, client):
    served.faults.mood = Mood.SILENT
    with pytest.raises(Unreachable):
        Client(served.kubeconfig(), answer_seconds=0.2).get(QUEUES)

    threading.Timer(0.2, lambda: setattr(served.faults, "mood", Mood.PROMPT)).start()

    assert names_in(client.get(QUEUES)["items"]) == ["first"]


@pytest.mark.parametrize("mood", [Mood.LATE, Mood.DRIPPING])
def test_a_slow_one_answers_in_the_end(served, client, mood):
    served.faults.mood = mood

    assert client.get("/api/v1/namespaces")["items"] == []


def test_the_pages_of_a_list_are_of_the_version_of_the_first(served, client):
    served.apply(SECOND)

    first = client.get(QUEUES, {"limit": "1"})
    served.delete(SECOND)
    last = client.get(QUEUES, {"limit": "1", "continue": first["metadata"]["continue"]})

    assert names_in(first["items"] + last["items"]) == ["first", "second"]
    assert last["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    with pytest.raises(Gone):
        client.get(QUEUES, {"limit": "1", "continue": "unknown"})


def test_who_watches_one_that_has_forgotten_lists_again(served, client):
    events = watch(client, "1")

    served.forget()

    (error,) = events
    assert (error["type"], error["object"]["code"]) == ("ERROR", http.HTTPStatus.GONE)
    version = client.get(QUEUES)["metadata"]["resourceVersion"]
    served.apply(SECOND)
    (event,) = watch(client, version, "1")
    assert event["object"]["metadata"]["name"] == "second"


def test_watches_that_are_dropped_end_without_their_ends(served, client):
    events = watch(client, "1")
    served.apply(SECOND)
    assert next(events)["type"] == "ADDED"

    served.drop_watches()

    with pytest.raises(Unreachable):
        next(events)


def test_one_that_is_killed_refuses_connections_until_it_starts_again_on_its_port(served, client):
    events = watch(client, "1")

    served.kill()

    with pytest.raises(Unreachable):
        next(events)
    with pytest.raises(Unreachable):
        client.get(QUEUES)
    served.start()
    assert names_in(client.get(QUEUES)["items"]) == ["first"]


def test_the_next_calls_are_refused_and_noted(served, client):
    def writes(method, *_):
        return method != "GET"

    served.faults.refuse(http.HTTPStatus.CONFLICT, times=1, wanted=writes)
    served.faults.refuse(http.HTTPStatus.GONE, times=1)

    with pytest.raises(Gone):
        client.get(QUEUES)
    with pytest.raises(Refused) as refused:
        client.patch(f"{PLACE}/first", {"metadata": {"labels": {"a": "b"}}})
    client.patch(f"{PLACE}/first", {"metadata": {"labels": {"a": "b"}}})

    assert refused.value.is_conflict
    assert [(code, method) for code, method, _ in served.faults.refused] == [
        (http.HTTPStatus.GONE, "GET"),
        (http.HTTPStatus.CONFLICT, "PATCH"),
    ]
    assert served.faults.left == 0


def test_one_that_gives_way_serves_all_the_same():
    with EmbeddedServer([FIRST], gives_way=True) as served:
        found = Client(served.kubeconfig()).get(QUEUES)["items"]

    assert names_in(found) == ["first"]
