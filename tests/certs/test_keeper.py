"""What one replica does about its certificates, and what it says of them."""

import base64

import pytest

from certs.secret import REVOKE, REVOKED, digest, write_certificates
from certs.store import Unavailable
from tests.certs.authorities import certificate
from tests.certs.fake_cluster import CONFIGURATION, SECRET
from tests.certs.world import LEAF, SETTLE, World


@pytest.fixture
def world():
    return World(replicas=1)


@pytest.fixture
def replica(world):
    return world.replicas[0]


def notice(replica):
    return replica.keeper.step().notice


def test_the_first_look_makes_publishes_and_signs(world, replica):
    report = replica.keeper.step()

    assert world.cluster.bundles == [(report.leaf.authority,)] * 2
    assert sorted(world.cluster.data) == ["ca.crt", "ca.key"]
    assert (report.notice, report.trusted_at) == ("", SETTLE)


def test_a_quiet_look_only_reads(world, replica):
    replica.step()
    world.cluster.calls.clear()

    replica.step()

    assert [method for method, _ in world.cluster.calls] == ["GET", "GET"]


def test_while_nothing_can_be_reached_the_leaf_goes_on_and_is_renewed_late(world, replica):
    first = replica.keeper.step().leaf
    replica.wire.is_cut = True
    world.pass_time(LEAF * 0.8)
    kept = replica.keeper.step()
    world.pass_time(LEAF * 0.1)

    renewed = replica.keeper.step()

    assert (kept.leaf, kept.notice) == (first, "no route")
    assert renewed.leaf.expires > first.expires


def test_a_broken_secret_is_told_until_what_replaces_it_is_settled(world, replica):
    first = replica.keeper.step()
    world.cluster.corrupt("ca.key")

    told = replica.keeper.step()
    world.pass_time(SETTLE - 1)
    still = replica.keeper.step()
    world.pass_time(1)
    healed = replica.keeper.step()

    text = "the authority's Secret cannot be read (ca.key: not a private key)"
    assert [told.notice, still.notice, healed.notice] == [text, text, ""]
    assert told.leaf == still.leaf == first.leaf
    assert healed.leaf.authority != first.leaf.authority
    assert first.leaf.authority in world.cluster.bundles[0]


def test_a_secret_that_may_not_be_written_is_told_and_the_leaf_goes_on(world, replica):
    first = replica.keeper.step()
    world.cluster.corrupt("ca.key")

    def refuse(*_):
        raise Unavailable("secrets is forbidden", reached=True)

    world.cluster.put = refuse
    report = replica.keeper.step()

    assert report.leaf == first.leaf
    assert report.notice == (
        "the authority's Secret cannot be read (ca.key: not a private key); secrets is forbidden"
    )


def test_without_a_webhook_configuration_there_is_no_leaf_and_it_says_why(world, replica):
    world.cluster.objects.pop(next(path for path in world.cluster.objects if "webhook" in path))

    report = replica.keeper.step()

    assert report.leaf is None
    assert report.notice == "there is no webhook configuration to publish the authority in"


def test_a_rotation_that_is_asked_for_ends_with_leaves_of_the_new_authority(world, replica):
    first = replica.keeper.step()
    world.cluster.ask_for_rotation()

    replica.keeper.step()
    between = world.cluster.bundles[0]
    world.pass_time(SETTLE)
    promoted = replica.keeper.step()

    assert len(between) == 2
    assert promoted.leaf.authority in between
    assert promoted.leaf.authority != first.leaf.authority
    assert world.cluster.annotations.keys() == {"kueue-fallback.dev/retired-at"}


def test_a_new_leaf_is_told_before_the_api_server_is_waited_for(world, replica):
    told = []
    replica.keeper.on_leaf = told.append
    replica.keeper.step()
    replica.wire.is_cut = True
    world.pass_time(LEAF * 0.9)
    world.between = lambda _: told.append("asked")

    replica.keeper.step()

    (first, second, asked) = told
    assert (first.leaf != second.leaf, asked) == (True, "asked")


def revoke(world):
    secret = world.cluster.objects[SECRET]
    annotations = {**secret["metadata"].get("annotations", {}), REVOKE: "now"}
    data = world.cluster.data
    world.cluster.put_secret(data, annotations)


def test_a_revoked_authority_leaves_every_bundle_and_every_replica_at_once():
    world = World(replicas=2)
    (leaked,) = {replica.keeper.step().leaf.authority for replica in world.replicas}
    revoke(world)

    leaves = [replica.keeper.step() for replica in world.replicas]

    (signing,) = {report.leaf.authority for report in leaves}
    assert world.cluster.bundles == [(signing,)] * 2
    assert signing != leaked
    # Taken into use at once: what is served until then is refused.
    assert [report.trusted_at for report in leaves] == [world.time] * 2
    assert sorted(world.cluster.data) == ["ca.crt", "ca.key"]
    assert world.cluster.annotations == {REVOKED: digest(leaked)}


def test_a_revoked_authority_is_not_adopted_again_when_the_secret_is_deleted(world, replica):
    leaked = replica.keeper.step().leaf.authority
    revoke(world)
    successor = replica.keeper.step().leaf.authority
    world.pass_time(SETTLE)

    world.cluster.delete_secret()
    replica.keeper.step()

    assert leaked not in world.cluster.bundles[0]
    assert successor in world.cluster.bundles[0]
    assert world.cluster.annotations[REVOKED] == digest(leaked)


@pytest.mark.parametrize("restored", ["the Secret", "the configuration", "both"])
def test_a_revoked_authority_that_is_put_back_from_a_backup_is_taken_out_again(
    world, replica, restored
):
    leaked = replica.keeper.step().leaf.authority
    secret, configuration = (world.cluster.objects[path] for path in (SECRET, CONFIGURATION))
    revoke(world)
    replica.keeper.step()

    if restored != "the configuration":
        world.cluster.put_secret(secret["data"])
    if restored != "the Secret":
        version = {"resourceVersion": "of a backup"}
        world.cluster.objects[CONFIGURATION] = {
            **configuration,
            "metadata": {**configuration["metadata"], **version},
        }
    replica.keeper.step()

    assert all(leaked not in bundle for bundle in world.cluster.bundles)
    assert replica.keeper.step().leaf.authority in world.cluster.bundles[0]


def test_an_authority_that_nobody_knows_is_revoked_with_the_others(world, replica):
    replica.step()
    unknown = certificate("unknown")
    bundle = base64.b64encode(write_certificates(unknown for _ in range(1))).decode()
    for each in world.cluster.objects[CONFIGURATION]["webhooks"]:
        each["clientConfig"]["caBundle"] = bundle
    world.cluster.objects[CONFIGURATION]["metadata"]["resourceVersion"] = "theirs"
    revoke(world)

    signing = replica.keeper.step().leaf.authority

    assert world.cluster.bundles == [(signing,)] * 2


def test_revoking_goes_on_where_a_replica_stopped_half_way():
    world = World(replicas=2)
    first, second = world.replicas
    (leaked,) = {replica.keeper.step().leaf.authority for replica in world.replicas}
    revoke(world)
    publish = world.cluster.patch

    def fail(*_):
        raise Unavailable("no route")

    world.cluster.patch = fail
    first.keeper.step()
    assert leaked in world.cluster.bundles[0]
    world.cluster.patch = publish
    second.keeper.step()

    assert leaked not in world.cluster.bundles[0]
