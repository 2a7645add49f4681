"""Replicas, Kueue and etcd die under load: creations go on, and decisions with those who live."""

import contextlib
import json
import re
import ssl
import threading
import urllib.request

import pytest

from hack import bodies, load, paper
from hack.api import ApiError
from hack.install import WAITED_FOR, Installation
from hack.waiting import wait_for
from tests import reviews
from tests.conftest import FULL
from tests.e2e.decisions import applied_policy, decision_of, fill, probe, queue_of

NAMES = paper.names_with("die", namespace="default")
RATE = 100 if FULL else 25
SECONDS = 30 if FULL else 8
WITHOUT_ETCD = "30s" if FULL else "5s"
"""For how long a write is tried; by itself the API server gives up after half a minute."""
KUEUES_OWN = re.compile(r"[mv]job\.kb\.io")
"""Kueue's webhooks fail creates where they are not answered in time: on a machine too busy."""
CREATES = re.compile(r'_reviews_total\{[^}]*operation="CREATE"[^}]*\} (\S+)')


@pytest.fixture(scope="module")
def installed(own_plane):
    """Two replicas behind one address; a light Job is sent to CPU."""
    own_plane.client.apply_all(paper.queues(NAMES))
    with (
        Installation(
            own_plane, replicas=2, balanced="connections", chart_values=WAITED_FOR
        ) as found,
        applied_policy(own_plane.client, paper.policy(NAMES), NAMES),
    ):
        fill(own_plane, NAMES, gpu=14)
        wait_until_decided(found)
        yield found


@pytest.fixture(scope="module")
def api_server(own_plane, tmp_path_factory):
    path = tmp_path_factory.mktemp("load") / "jobs.json"
    path.write_text(json.dumps(bodies.job(NAMES)) + "\n")
    return load.ApiServer(
        port=own_plane.api_port,
        authority=own_plane.pki.certificate("ca"),
        certificate=own_plane.pki.certificate("admin"),
        key=own_plane.pki.key("admin"),
        namespace=NAMES.namespace,
        bodies=path,
    )


def create(api_server, *, seconds=SECONDS):
    """Create Jobs by dry run, which takes the whole way but leaves the queues as they are."""
    found = load.jobs(api_server, f"-rate={RATE}", f"-seconds={seconds}", "-dry-run")
    print({name: found[name] for name in ("calls", "errors", "notes", "latency", "dials")})
    return found


@contextlib.contextmanager
def creating(api_server):
    """Create Jobs meanwhile; the list has the result afterwards."""
    found = []
    thread = threading.Thread(target=lambda: found.append(create(api_server)))
    thread.start()
    try:
        yield found
    finally:
        thread.join()


def failed(result):
    """Leave out, but for the full run, what another webhook is to blame for."""
    errors = result["errors"]
    return {text: n for text, n in errors.items() if FULL or not KUEUES_OWN.search(text)}


def reviews_of(replica):
    url = f"http://127.0.0.1:{replica.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return sum(map(float, CREATES.findall(answer.read().decode())))


def wait_until_decided(installed):
    for replica in installed.replicas:
        wait_for(replica.is_ready, f"{replica.name} is ready")
    wait_for(
        lambda: (probe(installed.plane.client, NAMES) or {}).get("option") == "cpu",
        "decided again",
    )


def test_one_of_two_replicas_killed_fails_no_create_and_decisions_go_on(installed, api_server):
    before = [reviews_of(replica) for replica in installed.replicas]

    def asked():
        counts = zip(installed.replicas, before, strict=True)
        return [reviews_of(replica) - count for replica, count in counts]

    with creating(api_server) as found:
        wait_for(lambda: sum(asked()) > 2 * RATE, "some were reviewed")
        # The API server may keep to one connection, and so to one replica: that one dies.
        killed = 0 if asked()[0] > asked()[1] else 1
        living = installed.replicas[1 - killed]
        installed.kill(killed)
        reviewed = reviews_of(living)
        wait_for(lambda: reviews_of(living) > reviewed + RATE, "the other one decides")
    (result,) = found

    assert failed(result) == {}
    assert result["calls"] + sum(result["errors"].values()) == RATE * SECONDS
    # Each decision brings a warning; what was on its way to the dead one passed as submitted.
    assert result["notes"]["warned"] >= 0.5 * result["calls"]
    assert probe(installed.plane.client, NAMES)["option"] == "cpu"
    installed.start(killed)
    wait_until_decided(installed)


def test_with_both_replicas_dead_every_job_is_created_as_submitted(installed, api_server):
    installed.kill(0)
    installed.kill(1)
    result = create(api_server, seconds=3)
    job = installed.plane.client.create(paper.light_job("alone", NAMES), dry_run=True)
    installed.start(0)
    installed.start(1)

    assert failed(result) == {}
    assert result["calls"] > 0
    assert "warned" not in result["notes"]
    assert queue_of(job) == NAMES.gpu_queue
    assert decision_of(job) is None
    wait_until_decided(installed)


def test_after_kueue_was_down_both_replicas_decide_again(installed):
    installed.plane.kill("kueue")
    installed.plane.start("kueue")

    wait_until_decided(installed)
    assert ask_both(installed) == ["cpu", "cpu"]


def test_after_etcd_was_down_both_replicas_decide_again(installed, api_server):
    installed.plane.kill("etcd")
    wait_for(lambda: not can_write(installed.plane), "nothing can be written")
    installed.plane.start("etcd")

    wait_until_decided(installed)
    assert ask_both(installed) == ["cpu", "cpu"]
    assert failed(create(api_server, seconds=2)) == {}


def can_write(plane):
    path = plane.client.path("v1", "ConfigMap", namespace="default")
    written = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "written-"}}
    try:
        plane.client.send("POST", path, written, query={"timeout": WITHOUT_ETCD})
    except ApiError:
        return False
    return True


def ask_both(installed):
    """Ask each replica itself; returns the options that they decide on."""
    tls = ssl.create_default_context(cafile=str(installed.ca_certificate))
    job, found = paper.light_job("ask", NAMES), []
    review = reviews.review(job, namespace=NAMES.namespace, dry_run=True)
    for replica in installed.replicas:
        url = f"https://localhost:{replica.listen}/mutate"
        body, headers = json.dumps(review).encode(), {"Content-Type": "application/json"}
        called = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(called, context=tls, timeout=60) as answer:
            admitted = reviews.admitted(answer.read(), job)
        found.append((decision_of(admitted) or {}).get("option"))
    return found
