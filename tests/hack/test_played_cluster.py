"""A played API server, as the project's own client sees it."""

import threading

import pytest

from hack import paper
from hack.played_cluster import Mood, PlayedCluster
from webhook.api.client import Client
from webhook.api.kubernetes_api import Gone, NotServed, Unreachable

QUEUES = "/apis/kueue.x-k8s.io/v1beta2/localqueues"
FIRST = paper.local_queue("first", "team", cluster_queue="gpu-cq")
SECOND = paper.local_queue("second", "team", cluster_queue="gpu-cq")


@pytest.fixture
def played():
    with PlayedCluster([FIRST]) as found:
        yield found


def watch(client, version, seconds="5"):
    params = {"resourceVersion": version, "timeoutSeconds": seconds}
    return client.watch(QUEUES, params, read_seconds=10.0)


def test_what_it_was_given_is_listed_and_got_by_name(played):
    client = Client(played.kubeconfig())

    assert client.kueue_version() == "v1beta2"
    assert client.get(QUEUES) == {"items": [FIRST], "metadata": {"resourceVersion": "1"}}
    assert client.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/first") == FIRST
    assert client.get(QUEUES, {"fieldSelector": "metadata.name=second"})["items"] == []
    with pytest.raises(NotServed):
        client.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/second")


def test_what_changes_is_watched_from_the_list_on(played):
    events = watch(Client(played.kubeconfig()), "1")
    played.apply({"kind": "Namespace", "metadata": {"name": "team"}})
    played.apply(SECOND)
    played.delete(FIRST)

    found = [next(events) for _ in range(2)]

    assert [(each["type"], each["object"]["metadata"]["name"]) for each in found] == [
        ("ADDED", "second"),
        ("DELETED", "first"),
    ]


def test_a_watch_ends_when_its_time_is_over(played):
    assert list(watch(Client(played.kubeconfig()), "1", "0.1")) == []


def test_a_silent_one_answers_nothing_until_it_is_prompt_again(played):
    played.mood = Mood.SILENT
    with pytest.raises(Unreachable):
        Client(played.kubeconfig(), answer_seconds=0.2).get(QUEUES)

    waiting = threading.Timer(0.2, lambda: setattr(played, "mood", Mood.PROMPT))
    waiting.start()

    assert Client(played.kubeconfig()).get(QUEUES)["items"] == [FIRST]


@pytest.mark.parametrize("mood", [Mood.LATE, Mood.DRIPPING])
def test_a_slow_one_answers_in_the_end(played, mood):
    played.mood = mood

    assert Client(played.kubeconfig()).get("/api/v1/namespaces")["items"] == []


def test_a_list_comes_page_by_page(played):
    client = Client(played.kubeconfig())
    played.apply(SECOND)

    first = client.get(QUEUES, {"limit": "1"})
    token = first["metadata"].pop("continue")
    last = client.get(QUEUES, {"limit": "1", "continue": token})

    version = {"resourceVersion": "2"}
    assert first == {"items": [FIRST], "metadata": version}
    assert last == {"items": [SECOND], "metadata": version}


def test_who_watches_one_that_has_forgotten_lists_again(played):
    client = Client(played.kubeconfig())
    open_watch = watch(client, "1")

    played.forget()

    assert list(open_watch) == []
    with pytest.raises(Gone):
        watch(client, "1")
    version = client.get(QUEUES)["metadata"]["resourceVersion"]
    played.apply(SECOND)
    (event,) = watch(client, version, "0.2")
    assert event["object"]["metadata"]["name"] == "second"


def test_one_that_gives_way_serves_all_the_same():
    with PlayedCluster([FIRST], gives_way=True) as played:
        assert Client(played.kubeconfig()).get(QUEUES)["items"] == [FIRST]
