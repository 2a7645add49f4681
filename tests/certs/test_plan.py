"""Which step comes next, and what the Secret holds after it."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from certs.plan import Action, Bundle, Step, after, plan
from certs.secret import State
from tests.certs.authorities import (
    DAY,
    HOUR,
    LIFETIMES,
    MINUTE,
    NOW,
    YEAR,
    authority,
    bundle,
    certificate,
)

A, B, C = (certificate(name) for name in "abc")
SIGNING = State(signing=authority("a"))
FOLLOWED = State(signing=authority("a"), next=authority("b"))
RETIRED = State(signing=authority("b"), old=(A,), retired_at=NOW)
PREPARE = Action(step=Step.PREPARE, needs_authority=True)
PROMOTE = Action(step=Step.PROMOTE)
DROP = Action(step=Step.DROP)


def step(state, seen, *, now=NOW, own=None):
    return plan(state, seen, now=now, lifetimes=LIFETIMES, own=own)


def test_an_empty_secret_gets_an_authority():
    mend = step(State(), bundle())

    assert mend == Action(step=Step.MEND, reason="holds no authority", needs_authority=True)
    made = after(State(), mend, now=NOW, lifetimes=LIFETIMES, authority=authority("a"))
    assert made == dataclasses.replace(SIGNING, retired_at=NOW)


@pytest.mark.parametrize(
    "seen",
    [
        Bundle(webhooks=((A,), ())),
        Bundle(webhooks=((A,), (A, B))),
        bundle(A, clean=False),
    ],
    ids=["one webhook lacks it", "one webhook has more", "there is something else in it"],
)
def test_the_bundle_of_every_webhook_is_made_exactly_what_the_secret_says(seen):
    assert step(SIGNING, seen) == Action(step=Step.PUBLISH, certificates=(A,))


@pytest.mark.parametrize(("age", "is_due"), [(YEAR * 0.66, False), (YEAR * 0.67, True)])
def test_the_next_authority_is_made_at_two_thirds_of_the_life_of_the_signing_one(age, is_due):
    old = authority("old", age=age)

    found = step(State(signing=old), bundle(old.certificate))

    assert found == (PREPARE if is_due else None)


def test_the_next_authority_is_made_when_it_is_asked_for():
    asked = dataclasses.replace(SIGNING, rotation_asked=True)

    prepare = step(asked, bundle(A))

    assert prepare == PREPARE
    made = after(asked, prepare, now=NOW, lifetimes=LIFETIMES, authority=authority("b"))
    assert made == FOLLOWED


@pytest.mark.parametrize(("seconds", "promoted"), [(59, False), (60, True)])
def test_the_next_authority_signs_once_every_api_server_knows_it(seconds, promoted):
    seen = bundle(A, B, carried_for=timedelta(seconds=seconds))

    promote = step(FOLLOWED, seen)

    assert promote == (PROMOTE if promoted else None)
    signs = after(FOLLOWED, PROMOTE, now=NOW, lifetimes=LIFETIMES)
    assert signs == State(signing=authority("b"), old=(A,), retired_at=NOW)


@pytest.mark.parametrize(("since", "dropped"), [(DAY + HOUR, False), (DAY + HOUR + MINUTE, True)])
def test_an_old_authority_is_trusted_until_its_last_leaf_is_out_of_validity(since, dropped):
    found = step(RETIRED, bundle(B, A), now=NOW + since)

    assert found == (DROP if dropped else None)
    left = after(RETIRED, DROP, now=NOW + since, lifetimes=LIFETIMES)
    assert left.old == (() if dropped else (A,))


def test_an_emptied_secret_takes_over_as_old_what_the_bundle_trusts():
    mend = step(State(), bundle(A, B), own=C)

    assert mend == Action(
        step=Step.MEND, reason="holds no authority", certificates=(C, A, B), needs_authority=True
    )


def test_a_secret_put_back_from_elsewhere_keeps_what_is_in_use():
    mend = step(State(signing=authority("c")), bundle(A))

    assert mend == Action(
        step=Step.MEND,
        reason="does not know an authority that is in use",
        certificates=(A,),
        needs_authority=False,
    )
    mended = after(State(signing=authority("c")), mend, now=NOW, lifetimes=LIFETIMES)
    assert mended == State(signing=authority("c"), old=(A,), retired_at=NOW)


def test_the_authority_of_our_own_leaf_is_never_taken_away():
    mend = step(SIGNING, bundle(A, B), own=B)

    assert mend.step is Step.MEND
    assert mend.certificates == (B,)


def test_an_authority_that_nobody_uses_is_no_longer_trusted():
    assert step(SIGNING, bundle(A, B), own=A) == Action(step=Step.PUBLISH, certificates=(A,))


def test_where_only_the_signing_one_is_broken_the_next_signs():
    state = State(next=authority("b"), faults=("ca.key: not a private key",))

    mend = step(state, bundle(A, B), own=A)

    assert mend == Action(
        step=Step.MEND,
        reason="cannot be read (ca.key: not a private key)",
        certificates=(A,),
        needs_authority=False,
    )
    mended = after(state, mend, now=NOW, lifetimes=LIFETIMES)
    assert mended == State(signing=authority("b"), old=(A,), retired_at=NOW)


def test_a_broken_next_one_is_made_anew():
    state = dataclasses.replace(SIGNING, faults=("next.crt: ...",), rotation_asked=True)

    mended = after(state, step(state, bundle(A, B)), now=NOW, lifetimes=LIFETIMES)

    assert mended.old == (B,)
    assert step(mended, bundle(A, B)) == PREPARE


def test_an_expired_authority_is_replaced():
    state = State(signing=authority("x", age=YEAR * 2))

    mend = step(state, bundle())

    assert mend == Action(step=Step.MEND, reason="its authority has expired", needs_authority=True)
    mended = after(state, mend, now=NOW, lifetimes=LIFETIMES, authority=authority("a"))
    assert mended.signing == authority("a")


def test_a_clock_that_runs_behind_throws_nothing_away():
    assert step(SIGNING, bundle(A), now=NOW - DAY) is None


def test_of_too_many_old_authorities_the_youngest_are_kept_and_nobody_writes_twice():
    many = tuple(certificate(f"old-{n}", age=timedelta(minutes=n)) for n in range(20))

    state = after(
        State(),
        Action(step=Step.MEND, reason="", certificates=many, needs_authority=True),
        now=NOW,
        lifetimes=LIFETIMES,
        authority=authority("a"),
    )

    assert state.old == many[:16]
    assert step(state, bundle(*many)) == Action(step=Step.PUBLISH, certificates=(A, *many[:16]))


@pytest.mark.parametrize(("year", "due"), [(9999, None), (1, DROP)])
def test_a_time_at_the_end_of_the_calendar_is_compared_and_not_added_to(year, due):
    state = dataclasses.replace(RETIRED, retired_at=datetime(year, 12, 31, tzinfo=UTC))

    assert step(state, bundle(B, A)) == due
