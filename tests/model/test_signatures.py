"""Signatures: what one installation has signed it believes, and nothing else."""

import json

from hypothesis import given
from hypothesis import strategies as st

from webhook.model.signatures import (
    SigningKey,
    SigningKeys,
    are_own_marks,
    is_own_record,
    own_words,
    signed_id,
    signed_record,
    signed_words,
    unsigned_id,
)
from webhook.state.signing_keys import OVERLAP_SECONDS, RENEW_SECONDS, renewed

NOW = 1_800_000_000
KEYS = SigningKeys(
    keys=(SigningKey(id="a", made=NOW, secret=b"1" * 32),), signing="a", since=NOW + 120
)
OTHERS = SigningKeys(
    keys=(SigningKey(id="a", made=NOW, secret=b"2" * 32),), signing="a", since=NOW + 120
)
LATER = NOW + 1000.0
RECORDS = st.dictionaries(st.text(), st.text() | st.integers(), min_size=1).map(
    lambda found: json.dumps(found, separators=(",", ":"))
)


@given(RECORDS, st.text(max_size=20))
def test_a_signed_record_is_believed_in_its_namespace_alone(text, namespace):
    signed = signed_record(text, namespace, KEYS)

    assert is_own_record(signed, namespace, KEYS, created=LATER)
    assert not is_own_record(signed, f"{namespace}2", KEYS, created=LATER)
    assert not is_own_record(signed, namespace, OTHERS, created=LATER)
    assert not is_own_record(text, namespace, KEYS, created=LATER)
    assert {**json.loads(signed), "signature": ""} == {**json.loads(text), "signature": ""}


@given(RECORDS, st.data())
def test_a_record_with_one_other_character_is_nobodys(text, data):
    signed = signed_record(text, "team", KEYS)
    place = data.draw(st.integers(0, len(signed) - 1))
    other = data.draw(st.characters().filter(lambda found: found != signed[place]))

    changed = signed[:place] + other + signed[place + 1 :]

    assert not is_own_record(changed, "team", KEYS, created=LATER)


@given(st.text())
def test_any_text_can_be_asked_about(text):
    assert not is_own_record(text, "team", KEYS, created=LATER)
    assert not are_own_marks(text, "team", ("p", "o", "c"), KEYS, created=LATER)


@given(st.text(), st.text(max_size=20))
def test_signed_words_are_given_back_in_their_namespace_alone(text, namespace):
    signed = signed_words(text, namespace, KEYS)

    assert own_words(signed, namespace, KEYS, created=LATER) == text
    assert own_words(signed, f"{namespace}2", KEYS, created=LATER) is None
    assert own_words(signed, namespace, OTHERS, created=LATER) is None
    assert own_words(text, namespace, KEYS, created=LATER) is None
    assert own_words(text, namespace, KEYS, created=NOW) == text
    assert own_words(signed_words(text, namespace, None), namespace, None, created=LATER) == text


def test_what_was_created_before_there_were_signatures_is_believed_without_one():
    assert is_own_record("{}", "team", KEYS, created=NOW)
    assert are_own_marks("1-a", "team", ("p", "o", "c"), KEYS, created=NOW)
    assert not is_own_record("{}", "team", KEYS, created=LATER)


def test_without_keys_everything_is_believed_and_nothing_signed():
    assert signed_record("{}", "team", None) == "{}"
    assert is_own_record("{}", "team", None, created=LATER)
    assert are_own_marks("", "team", ("", "", ""), None, created=LATER)


def test_marks_are_believed_as_they_were_signed_together():
    marks = ("light-gpu", "cpu", "c ~c 1")
    found = signed_id("1a-2b", "team", marks, KEYS)

    assert unsigned_id(found) == "1a-2b"
    assert signed_id(found, "team", marks, KEYS) == found
    assert are_own_marks(found, "team", marks, KEYS, created=LATER)
    for other in (("another", "cpu", "c ~c 1"), ("light-gpu", "gpu", "c ~c 1"), ("", "", "")):
        assert not are_own_marks(found, "team", other, KEYS, created=LATER)
    assert not are_own_marks(found, "another-team", marks, KEYS, created=LATER)
    assert not are_own_marks(f"x{found}", "team", marks, KEYS, created=LATER)


def test_keys_are_made_once_renewed_and_sign_only_when_everybody_knows_them():
    first = renewed(None, NOW)
    assert renewed(first, NOW + RENEW_SECONDS - 1) is first

    due = NOW + RENEW_SECONDS
    second = renewed(first, due)
    assert second.signing == first.signing
    assert len(second.keys) == 2
    assert renewed(second, due + OVERLAP_SECONDS - 1) is second
    third = renewed(second, due + OVERLAP_SECONDS)

    assert third.signing == second.keys[1].id
    assert third.since == first.since
    old, new = (signed_record("{}", "team", keys) for keys in (first, third))
    assert old != new
    assert all(is_own_record(text, "team", third, created=due + 1000) for text in (old, new))
    assert is_own_record(new, "team", second, created=due + 1000)


def test_of_many_keys_the_oldest_goes():
    keys, unix = renewed(None, NOW), NOW
    first = signed_record("{}", "team", keys)
    for _ in range(5):
        unix += RENEW_SECONDS
        keys = renewed(renewed(keys, unix), unix + OVERLAP_SECONDS)

    assert len(keys.keys) == 5
    assert not is_own_record(first, "team", keys, created=float(unix))


def test_no_key_is_shown():
    assert "1" * 32 not in repr(KEYS)
    assert "secret" not in repr(KEYS)
