"""Certificates in files that somebody else renews."""

import subprocess
import sys
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


def test_the_first_certificate_of_a_file_is_read_though_clients_must_show_one(tmp_path, clocks):
    signer, other = authority(), new_authority("other", now=NOW, lifetime=DAY)
    write(tmp_path, signer)
    for name, following in (("tls.crt", signer), ("ca.crt", other)):
        with (tmp_path / name).open("ab") as file:
            file.write(b"# of the same kind\n" + following.certificate_pem)
    clocks.seconds = DAY.total_seconds()

    source = LiveContext(
        str(tmp_path / "tls.crt"),
        str(tmp_path / "tls.key"),
        client_ca=str(tmp_path / "ca.crt"),
        on_error=print,
        now=clocks.now,
    )

    assert source.not_ready() == "the certificate has expired"
    assert source.expirations() == {
        "leaf": (NOW + DAY).timestamp(),
        "ca": (NOW + 365 * DAY).timestamp(),
    }


def test_what_is_no_authority_does_not_keep_files_from_being_served(files, tmp_path):
    (tmp_path / "ca.crt").write_bytes((tmp_path / "tls.crt").read_bytes())

    assert files.not_ready() == ""
    assert files.expirations() == {"leaf": (NOW + DAY).timestamp()}


def test_no_library_of_certificates_stays_in_the_server(files, tmp_path):
    read = (
        "import sys; from webhook.server.tls import LiveContext\n"
        f"print(LiveContext(*{[str(tmp_path / name) for name in ('tls.crt', 'tls.key')]},"
        " on_error=print).expirations().keys(), 'cryptography' in sys.modules)"
    )

    ran = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)

    assert ran.stdout == "dict_keys(['leaf', 'ca']) False\n"


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
