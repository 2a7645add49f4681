"""What is asked of the API server, and that nobody overwrites what another has written."""

import base64

import pytest

from certs.secret import RETIRED_AT, ROTATE, State
from certs.store import Conflict, Store
from tests.certs.authorities import NOW, authority, certificate
from tests.certs.fake_cluster import CONFIGURATION, SECRET, SECRETS, FakeCluster

A, B = certificate("a"), certificate("b")
STATE = State(signing=authority("a"), old=(B,), retired_at=NOW)


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture
def store(cluster):
    return Store(
        cluster, namespace="ours", name="kueue-fallback-ca", configuration="kueue-fallback"
    )


def test_the_bundle_is_read_before_the_secret(cluster, store):
    store.read()

    assert cluster.calls == [("GET", CONFIGURATION), ("GET", SECRET)]


def test_what_is_written_is_read_again_and_what_others_wrote_stays(cluster, store):
    cluster.put_secret({"theirs": "eA=="}, {"their": "note", ROTATE: "now"})

    store.write(store.read()[1], STATE)

    assert store.read()[1].certificates == (A, B)
    assert cluster.data["theirs"] == "eA=="
    assert cluster.annotations == {"their": "note", RETIRED_AT: "2026-03-01T12:00:00.000+00:00"}
    assert cluster.objects[SECRET]["metadata"]["labels"] == {"theirs": "kept"}


def test_what_is_no_more_is_taken_out_of_the_secret(cluster, store):
    store.write(store.read()[1], STATE)

    store.write(store.read()[1], State(signing=authority("a")))

    assert sorted(cluster.data) == ["ca.crt", "ca.key"]
    assert cluster.annotations == {}


def test_a_deleted_secret_is_made_anew(cluster, store):
    cluster.delete_secret()

    store.write(store.read()[1], STATE)

    assert cluster.calls[-1] == ("POST", SECRETS)
    assert store.read()[1].certificates == (A, B)


@pytest.mark.parametrize("between", ["put_secret", "delete_secret"])
def test_who_is_second_at_the_secret_must_read_again(cluster, store, between):
    _, kept = store.read()
    getattr(cluster, between)()

    with pytest.raises(Conflict):
        store.write(kept, STATE)


def test_of_two_who_make_the_secret_one_must_read_again(cluster, store):
    cluster.delete_secret()
    _, kept = store.read()
    cluster.put_secret()

    with pytest.raises(Conflict):
        store.write(kept, STATE)


def test_who_is_second_at_the_bundle_must_read_again(cluster, store):
    published, _ = store.read()
    cluster.reset()

    with pytest.raises(Conflict):
        store.publish(published, (A,))


def test_what_is_no_certificate_in_a_bundle_is_noticed(cluster, store):
    webhooks = cluster.objects[CONFIGURATION]["webhooks"]
    webhooks[0]["clientConfig"]["caBundle"] = base64.b64encode(b"what is that").decode()
    webhooks[1]["clientConfig"]["caBundle"] = "%"

    published, _ = store.read()

    assert (published.webhooks, published.clean) == (((), ()), False)
