"""Certificates in files that somebody else renews."""

from datetime import timedelta

import pytest

from certs.issue import new_authority, new_leaf
from tests.server.conftest import NOW
from webhook.server.tls import LiveContext

DAY = timedelta(days=1)


def authority():
    return new_authority("theirs", now=NOW, lifetime=365 * DAY)


@pytest.fixture
def files(tmp_path, clocks, told):
    write(tmp_path, authority())
    source = LiveContext(
        str(tmp_path / "tls.crt"),
        str(tmp_path / "tls.key"),
        on_error=told.append,
        clock=clocks.monotonic,
        now=clocks.now,
    )
    source.on_reload = told.append
    return source


def write(folder, signer, *, at=NOW):
    leaf = new_leaf(signer, ("kueue-fallback.ours.svc",), now=at, lifetime=DAY)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "ca.crt").write_bytes(signer.certificate_pem)
    return leaf


def test_files_tell_when_they_end_with_the_authority_beside_them(files):
    assert files.expirations() == {
        "leaf": (NOW + DAY).timestamp(),
        "ca": (NOW + 365 * DAY).timestamp(),
    }


def test_files_that_are_about_to_end_are_not_ready(files, clocks):
    clocks.seconds = DAY.total_seconds()

    assert files.not_ready() == "the certificate has expired"


def test_files_that_have_changed_are_served_and_told(files, clocks, told, tmp_path):
    before = files()
    assert files.not_ready() == ""
    leaf = write(tmp_path, authority(), at=NOW + DAY)

    clocks.seconds = DAY.total_seconds()

    assert files() is not before
    assert told == ["success"]
    assert files.not_ready() == ""
    assert files.expirations()["leaf"] == leaf.certificate.not_valid_after_utc.timestamp()


def test_files_that_do_not_belong_together_are_told_and_not_served(files, clocks, told, tmp_path):
    before = files()
    (tmp_path / "tls.key").write_bytes(authority().key_pem)

    clocks.seconds = 5.0

    assert files() is before
    assert told[0] == "failure"
    assert told[1].startswith("keeping the certificate in force: [X509: KEY_VALUES_MISMATCH]")
