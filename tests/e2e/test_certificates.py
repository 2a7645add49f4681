"""Self-managed certificates on the real control plane: no call fails, whatever is done to them."""

import base64
import functools
import os

import pytest

from hack.waiting import wait_for
from tests.conftest import FULL
from tests.e2e import certificates
from tests.e2e.certificates import authorities, certs, readiness
from tests.e2e.probes import Load, probe, probing

LEAVES, ROTATIONS = (40, 3) if FULL else (4, 1)
"""Certificates that the two replicas take into use; new authorities."""
RATE = int(os.environ.get("RATE", "200" if FULL else "50"))
"""Calls a second, through the API server and again to the replicas themselves."""


@pytest.fixture(scope="module")
def installed(own_plane):
    with certificates.install(own_plane) as found:
        yield found


def test_two_replicas_that_start_at_once_make_one_authority(own_plane, installed):
    certificates.wait_until_whole(own_plane, installed)

    logs = [own_plane.processes.log(each.name).read_text() for each in installed.replicas]
    assert sum(text.count("written anew") for text in logs) == 1
    assert list(authorities(own_plane)) == ["signing"]
    assert certificates.bundle(own_plane).count("BEGIN CERTIFICATE") == 1
    assert probe(own_plane, "first")


def test_no_call_fails_while_leaves_and_authorities_are_rotated(own_plane, installed, tmp_path):
    before, leaves = authorities(own_plane), certificates.leaves(installed)
    fail_opens = certificates.fail_opens(own_plane)

    with Load(own_plane, installed, tmp_path, rate=RATE) as load:
        rotations = [certs(own_plane, "rotate", "--wait=120") for _ in range(ROTATIONS)]
        wait_for(
            lambda: certificates.leaves(installed) - leaves >= LEAVES,
            f"{LEAVES} certificates",
        )

    print(
        f"{load.calls()} calls, {certificates.leaves(installed) - leaves:.0f} certificates,"
        f" {ROTATIONS} authorities"
    )
    assert [each.returncode for each in rotations] == [0] * ROTATIONS
    assert load.failures() == {}
    assert certificates.fail_opens(own_plane) == fail_opens
    assert authorities(own_plane)["signing"] != before["signing"]


def test_a_deleted_secret_is_told_and_made_anew_and_no_call_fails(own_plane, installed):
    certificates.wait_until_whole(own_plane, installed)
    signing = authorities(own_plane)["signing"]

    with probing(own_plane) as missed:
        own_plane.client.send("DELETE", _path(own_plane))
        wait_for(lambda: _told(installed, "holds no authority"), "a replica says what is wrong")
        certificates.wait_until_whole(own_plane, installed)

    assert missed == []
    assert authorities(own_plane)["signing"] != signing
    assert signing[0] in authorities(own_plane)["old"]


def test_a_revoked_authority_leaves_the_bundle_at_once_and_for_good(own_plane, installed):
    certificates.wait_until_whole(own_plane, installed)
    (leaked,) = authorities(own_plane)["signing"]

    asked = certs(own_plane, "rotate", "--revoke", "--wait=60")
    after = authorities(own_plane)
    wait_for(lambda: probe(own_plane, "revoked"), "the API server calls again")
    own_plane.client.send("DELETE", _path(own_plane))
    wait_for(lambda: _told(installed, "holds no authority"), "a replica says what is wrong")
    certificates.wait_until_whole(own_plane, installed)

    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert list(after) == ["signing"]
    assert leaked not in after["signing"]
    assert leaked not in [each for part in authorities(own_plane).values() for each in part]


def _path(plane):
    return plane.client.path("v1", "Secret", namespace="kueue-fallback", name=certificates.SECRET)


def _told(installed, text):
    """Say whether a replica tells of it, and whether each is ready all the same."""
    found = [readiness(replica) for replica in installed.replicas]
    assert [status for status, _ in found] == [200] * len(found)
    return any(text in said for _, said in found)


def test_an_upgrade_leaves_the_authority_as_it_is(own_plane, tmp_path):
    release = "kueue-fallback-other"
    secret_of = functools.partial(own_plane.client.get, "v1", "Secret", f"{release}-ca")
    data = {"ca.crt": base64.b64encode(b"ours").decode()}
    note = {"kueue-fallback.dev/retired-at": "2026-03-01T12:00:00Z"}
    certificates.helm(own_plane, tmp_path, "install", release, "--create-namespace")
    certificates.write_authority(own_plane, release, data=data, annotations=note, bundle="b3Vycw==")

    certificates.helm(
        own_plane, tmp_path, "upgrade", release, "--set=webhook.timeoutSeconds=3,replicas=3"
    )

    kept = secret_of(namespace=release)
    configuration = own_plane.client.get(
        certificates.REGISTRATION, "MutatingWebhookConfiguration", release
    )
    certificates.helm(own_plane, tmp_path, "uninstall", release)
    assert kept["data"] == data
    assert note.items() <= kept["metadata"]["annotations"].items()
    assert [
        (each["timeoutSeconds"], each["clientConfig"]["caBundle"])
        for each in configuration["webhooks"]
    ] == [(3, "b3Vycw==")] * 2
    assert own_plane.client.find("v1", "Secret", f"{release}-ca", namespace=release) is None
