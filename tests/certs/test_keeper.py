"""What one replica does about its certificates, and what it says of them."""

import pytest

from certs.errors import Conflict, Unavailable
from tests.certs.world import CA, LEAF, SETTLE, World


@pytest.fixture
def world():
    return World(replicas=1)


@pytest.fixture
def replica(world):
    return world.replicas[0]


def notice(replica):
    return replica.keeper.look().notice


def test_the_first_look_makes_publishes_and_signs(world, replica):
    report = replica.keeper.look()

    assert world.cluster.bundles == [(report.leaf.authority,)] * 2
    assert sorted(world.cluster.data) == ["ca.crt", "ca.key"]
    assert (report.notice, report.trusted_at) == ("", SETTLE)


def test_a_second_replica_takes_over_what_the_first_has_made():
    world = World(replicas=2)
    one, other = (replica.keeper.look() for replica in world.replicas)

    assert one.leaf.authority == other.leaf.authority
    assert one.leaf.issued != other.leaf.issued


def test_a_quiet_look_only_reads(world, replica):
    replica.look()
    world.cluster.calls.clear()

    replica.look()

    assert [method for method, _ in world.cluster.calls] == ["GET", "GET"]


def test_while_nothing_can_be_reached_the_leaf_goes_on_and_is_renewed_late(world, replica):
    first = replica.keeper.look().leaf
    replica.wire.is_cut = True
    world.pass_time(LEAF * 0.8)
    kept = replica.keeper.look()
    world.pass_time(LEAF * 0.1)

    renewed = replica.keeper.look()

    assert (kept.leaf, kept.notice) == (first, "no route")
    assert renewed.leaf.expires > first.expires


def test_a_broken_secret_is_told_until_what_replaces_it_is_settled(world, replica):
    first = replica.keeper.look()
    world.cluster.corrupt("ca.key")

    told = replica.keeper.look()
    world.pass_time(SETTLE - 1)
    still = replica.keeper.look()
    world.pass_time(1)
    healed = replica.keeper.look()

    text = "the authority's Secret cannot be read (ca.key: not a private key)"
    assert [told.notice, still.notice, healed.notice] == [text, text, ""]
    assert told.leaf == still.leaf == first.leaf
    assert healed.leaf.authority != first.leaf.authority
    assert first.leaf.authority in world.cluster.bundles[0]


def test_a_deleted_secret_is_told_too(world, replica):
    replica.look()
    world.cluster.delete_secret()

    assert notice(replica) == "the authority's Secret holds no authority"


def test_a_secret_that_may_not_be_written_is_told_and_the_leaf_goes_on(world, replica):
    first = replica.keeper.look()
    world.cluster.corrupt("ca.key")

    def refuse(*_):
        raise Unavailable("secrets is forbidden", reached=True)

    world.cluster.put = refuse
    report = replica.keeper.look()

    assert report.leaf == first.leaf
    assert report.notice == (
        "the authority's Secret cannot be read (ca.key: not a private key); secrets is forbidden"
    )


def test_without_a_webhook_configuration_there_is_no_leaf_and_it_says_why(world, replica):
    world.cluster.objects.pop(next(path for path in world.cluster.objects if "webhook" in path))

    report = replica.keeper.look()

    assert report.leaf is None
    assert report.notice == "there is no webhook configuration to publish the authority in"


def test_a_rotation_that_is_asked_for_ends_with_leaves_of_the_new_authority(world, replica):
    first = replica.keeper.look()
    world.cluster.ask_for_rotation()

    replica.keeper.look()
    between = world.cluster.bundles[0]
    world.pass_time(SETTLE)
    promoted = replica.keeper.look()

    assert len(between) == 2
    assert promoted.leaf.authority in between
    assert promoted.leaf.authority != first.leaf.authority
    assert world.cluster.annotations.keys() == {"kueue-fallback.dev/retired-at"}


def test_authorities_follow_one_another_by_themselves(world, replica):
    authorities = set()
    while world.time < 3 * CA:
        replica.look()
        authorities.add(replica.served.authority)
        world.pass_time(10)
        assert world.refusals() == []

    assert len(authorities) == 5
    assert len(world.cluster.bundles[0]) <= 2


def test_a_write_that_is_always_refused_is_given_up_until_the_next_look(world, replica):
    def refuse(*_):
        raise Conflict("the object has been modified")

    world.cluster.put = refuse

    assert notice(replica) == "the object has been modified"


def test_a_new_leaf_is_told_before_the_api_server_is_waited_for(world, replica):
    told = []
    replica.keeper.on_leaf = told.append
    replica.keeper.look()
    replica.wire.is_cut = True
    world.pass_time(LEAF * 0.9)
    world.between = lambda _: told.append("asked")

    replica.keeper.look()

    (first, second, asked) = told
    assert (first.leaf != second.leaf, asked) == (True, "asked")
