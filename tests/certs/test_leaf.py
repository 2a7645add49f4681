"""When a leaf is signed anew, and with which authority."""

from datetime import timedelta

import pytest

from certs.issue import new_leaf
from certs.plan import lifetime, signer
from certs.secret import State
from tests.certs.authorities import (
    DAY,
    HOUR,
    LIFETIMES,
    NOW,
    authority,
    bundle,
    certificate,
)

A, B = certificate("a"), certificate("b")
SIGNING = State(signing=authority("a"))


def leaf(name="a", *, age=timedelta()):
    return new_leaf(authority(name), ("x.svc",), now=NOW - age, lifetime=DAY)


def sign(found, state=SIGNING, seen=None, **more):
    return signer(found, state, seen or bundle(A), now=NOW, lifetimes=LIFETIMES, **more)


@pytest.mark.parametrize(("hours", "signs"), [(15.9, False), (16, True)])
def test_a_leaf_is_renewed_at_two_thirds_of_its_life(hours, signs):
    found = sign(leaf(age=timedelta(hours=hours)))

    assert (found is not None) == signs


def test_the_first_leaf_is_signed_as_soon_as_the_bundle_carries_the_authority():
    assert sign(None, seen=bundle()) is None
    assert sign(None, seen=bundle(A, carried_for=timedelta())) == authority("a")


def test_a_leaf_of_a_retired_authority_is_renewed_once_the_new_one_is_settled():
    state = State(signing=authority("b"), old=(A,), retired_at=NOW)

    assert sign(leaf(), state, bundle(B, A)) == authority("b")
    assert sign(leaf(), state, bundle(B, A, carried_for=timedelta(seconds=59))) is None


def test_what_was_read_long_ago_signs_nothing_that_can_wait():
    assert sign(leaf(age=timedelta(hours=17)), is_fresh=False) is None
    assert sign(leaf(age=timedelta(hours=20)), is_fresh=False) == authority("a")


def test_a_leaf_that_nobody_trusts_any_more_is_replaced_at_once():
    state = State(signing=authority("b"))

    assert sign(leaf(), state, bundle(B, carried_for=timedelta())) == authority("b")


def test_nothing_is_signed_without_an_authority_or_with_an_expired_one():
    assert sign(None, State()) is None
    old = authority("expired", age=DAY * 400)
    assert sign(None, State(signing=old), bundle(old.certificate)) is None


def test_a_leaf_does_not_outlive_its_authority():
    short = authority("short", lifetime=HOUR)

    assert lifetime(short, now=NOW, lifetimes=LIFETIMES) == HOUR
    assert lifetime(authority("a"), now=NOW, lifetimes=LIFETIMES) == DAY
