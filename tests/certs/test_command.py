"""``python -m certs``: what it prints, and how it exits."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from certs import __main__ as command
from certs.keeper import Keeper
from certs.plan import Lifetimes
from certs.store import Store, Unavailable
from tests.certs.fake_cluster import CONFIGURATION, FakeCluster

DAY = timedelta(days=1)
LIFETIMES = Lifetimes(ca=365 * DAY, leaf=DAY, settle=timedelta())


@pytest.fixture
def cluster(monkeypatch):
    found = FakeCluster()
    monkeypatch.setattr("certs.client.Client", lambda _: found)
    return found


@pytest.fixture
def keeper(cluster):
    store = Store(
        cluster, namespace="ours", name="kueue-fallback-ca", configuration="kueue-fallback"
    )
    return Keeper(
        store,
        names=("x.svc",),
        lifetimes=LIFETIMES,
        now=lambda: datetime.now(UTC),
        monotonic=lambda: 0.0,
    )


def run(*arguments):
    return CliRunner().invoke(command.main, [*arguments, "--namespace=ours"])


def test_all_authorities_are_shown_with_the_part_they_play(cluster, keeper):
    keeper.step()
    cluster.ask_for_rotation()
    keeper.step()

    result = run("show")

    head, *rows = result.output.splitlines()
    assert result.exit_code == 0
    assert head.split("  ")[0] == "AUTHORITY"
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("signing", "yes"),
        ("old", "yes"),
    ]
    assert "364 d" in rows[0]


def test_json_has_the_same_for_programs(cluster, keeper):
    keeper.step()

    result = run("show", "-o", "json")

    found = json.loads(result.output)
    (only,) = found.pop("authorities")
    assert found == {"webhooks": 2, "rotationAsked": False, "faults": []}
    assert (only["part"], only["webhooks"]) == ("signing", 2)
    assert sorted(only) == ["fingerprint", "notAfter", "notBefore", "part", "webhooks"]


def test_what_is_amiss_stands_last_and_the_answer_is_no(cluster, keeper):
    keeper.step()
    cluster.corrupt("ca.key")

    result = run("show")

    assert result.exit_code == 1
    assert result.output.splitlines()[-2:] == [
        "Fault: ca.key: not a private key",
        "Fault: no authority can sign",
    ]


def test_an_authority_that_is_not_published_is_a_fault(cluster, keeper):
    keeper.step()
    cluster.reset()

    result = run("show")

    last = result.output.splitlines()[-1]
    assert result.exit_code == 1
    assert last.startswith("Fault: signing ")
    assert last.endswith(" is not in every caBundle")


def test_waiting_tells_how_far_it_is_and_ends_when_the_new_one_signs(cluster, keeper, monkeypatch):
    keeper.step()
    monkeypatch.setattr(command.time, "sleep", lambda _: keeper.step())

    result = run("rotate", "--wait=60")

    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[:2] == [
        "A rotation is asked for.",
        "Waiting for a replica to make the next authority.",
    ]
    assert lines[-1].endswith(" signs; the one before is trusted on.")


def test_waiting_in_vain_is_an_answer_too(cluster, keeper):
    keeper.step()

    result = run("rotate", "--wait=0.01")

    assert result.exit_code == 1
    assert result.output.endswith("Not done in time; it goes on without this command.\n")


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_an_api_server_without_an_answer_is_asked_again_while_there_is_time(
    cluster, keeper, monkeypatch, lost
):
    keeper.step()
    put = cluster.put

    def fail_once(path, body):
        cluster.put = put
        if lost == "answer":
            put(path, body)
        raise Unavailable("read timed out")

    cluster.put = fail_once
    monkeypatch.setattr(command.time, "sleep", lambda _: keeper.step())

    result = run("rotate", "--wait=60")

    assert result.exit_code == 0
    assert result.output.startswith("Waiting: read timed out\nA rotation is asked for.\n")
    parts = [each["part"] for each in json.loads(run("show", "-o", "json").output)["authorities"]]
    assert parts == ["signing", "old"]


def test_where_there_is_no_secret_nothing_can_be_rotated(cluster):
    cluster.delete_secret()

    result = run("rotate")

    assert (result.exit_code, result.output) == (
        1,
        "Error: Secret kueue-fallback-ca: not found\n",
    )


@pytest.mark.parametrize(("reached", "code"), [(False, 3), (True, 1)])
def test_a_cluster_that_does_not_answer_and_one_that_says_no_are_told_apart(cluster, reached, code):
    def refuse(_):
        raise Unavailable("nobody there", reached=reached)

    cluster.get = refuse

    result = run("show")

    assert (result.exit_code, result.output) == (code, "Error: nobody there\n")


def test_a_revocation_is_asked_for_and_waited_for(cluster, keeper, monkeypatch):
    keeper.step()
    leaked = cluster.bundles[0][0]
    monkeypatch.setattr(command.time, "sleep", lambda _: keeper.step())

    result = run("rotate", "--revoke", "--wait=60")

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "A revocation is asked for."
    assert lines[-1].endswith(" signs; none before it is trusted.")
    assert all(leaked not in bundle for bundle in cluster.bundles)


def test_where_jobs_would_be_refused_nothing_is_revoked_unless_it_is_forced(cluster, keeper):
    keeper.step()
    for each in cluster.objects[CONFIGURATION]["webhooks"]:
        each["failurePolicy"] = "Fail"

    refused, forced = run("rotate", "--revoke"), run("rotate", "--revoke", "--force")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "failurePolicy is Fail: until each replica has a new certificate" in refused.stderr
    assert (forced.exit_code, forced.output) == (0, "A revocation is asked for.\n")
    assert run("rotate").exit_code == 0
