"""What the Secret holds, read and written; what is broken is a stated fault."""

import base64

import pytest

from certs.secret import RETIRED_AT, ROTATE, State, read_state, write_state
from tests.certs.authorities import NOW, authority, certificate

FULL = State(signing=authority("a"), next=authority("b"), old=(certificate("c"),), retired_at=NOW)


def test_what_is_written_is_read_again():
    data, annotations = write_state(FULL)

    found = read_state(data, annotations)

    assert found.certificates == (certificate("a"), certificate("b"), certificate("c"))
    assert found.signing.key_pem == authority("a").key_pem
    assert (found.old, found.retired_at, found.faults) == (FULL.old, NOW, ())


def test_a_rotation_is_asked_for_by_an_annotation():
    assert read_state({}, {ROTATE: ""}).rotation_asked


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ca.crt": b"?"}, "ca.crt: not a certificate"),
        ({"ca.key": b"?"}, "ca.key: not a private key"),
        ({"ca.key": None}, "ca.key: missing"),
        ({"ca.crt": None}, "ca.crt: missing"),
        ({"ca.key": authority("b").key_pem}, "ca.key: not the certificate's"),
        ({"next.crt": b"?"}, "next.crt: not a certificate"),
        ({"old.crt": b"?"}, "old.crt: not only certificates of authorities"),
    ],
)
def test_what_is_broken_is_named(change, fault):
    data, annotations = write_state(FULL)
    for key, value in change.items():
        data[key] = base64.b64encode(value).decode() if value is not None else ""

    assert read_state(data, annotations).faults == (fault,)


def test_a_broken_next_authority_is_still_wanted():
    data, annotations = write_state(FULL)

    assert read_state({**data, "next.key": ""}, annotations).rotation_asked


@pytest.mark.parametrize("annotations", [{}, {RETIRED_AT: "yesterday"}])
def test_old_authorities_of_unknown_age_are_a_fault(annotations):
    data, _ = write_state(FULL)

    found = read_state(data, annotations)

    assert found.faults == (f"annotation {RETIRED_AT}: missing or not a time",)


def test_values_of_a_wrong_type_are_faults():
    found = read_state({"ca.crt": 7, "old.crt": ["x"]}, {RETIRED_AT: 7})

    assert found.retired_at is None
    assert found.faults[:2] == ("ca.crt: not base64", "old.crt: not base64")
