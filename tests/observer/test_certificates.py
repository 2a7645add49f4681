"""What the keeper of certificates says, as the pipe carries it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.issue import new_authority, new_leaf
from certs.keeper import Report
from tests.state.frames import through
from webhook.model.faults import Failures
from webhook.observer.certificates import Certifier, carried
from webhook.server.tls import Certificates
from webhook.settings import Settings
from webhook.state.pipe import Update

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def report():
    authority = new_authority("ours", now=NOW, lifetime=365 * DAY)
    leaf = new_leaf(authority, ("x.svc",), now=NOW, lifetime=DAY)
    ends = authority.certificate.not_valid_after_utc
    return Report(leaf=leaf, trusted_at=7.0, authority_expires=ends, notice="not well")


def test_the_pipe_carries_certificate_key_and_times():
    given = report()

    found = through(Update(certificates=carried(given))).certificates

    assert found.served.pem == given.leaf.certificate_pem + given.leaf.key_pem
    assert found.served.made == NOW.timestamp()
    assert found.served.expires == (NOW + DAY).timestamp()
    assert found.served.trusted_at == 7.0
    assert found.authority_expires == (NOW + 365 * DAY).timestamp()
    assert found.notice == "not well"


def test_before_the_first_leaf_there_is_only_what_is_amiss():
    assert carried(Report(notice="nobody there")) == Certificates(notice="nobody there")


def test_the_key_is_in_no_text():
    assert "PRIVATE" not in repr(carried(report()))


def test_a_look_that_fails_is_counted_and_told_and_the_next_is_taken(monkeypatch):
    lines, looks = [], [RuntimeError("s3cret"), None]
    failures = Failures(lines.append)
    certifier = Certifier(Settings(certificates="self-managed"), lines.append, failures)
    monkeypatch.setattr("certs.keeper.Keeper.step", lambda _: _raised(looks.pop(0)))

    certifier.step()
    failed = certifier.news()
    certifier.step()

    assert (failed, certifier.news()) == (None, carried(Report()))
    assert failures.counts == {"certificates": 1}
    assert lines[0].startswith("certificates: RuntimeError at ")


def _raised(error):
    if error is not None:
        raise error
    return Report()


def test_a_kubeconfig_that_is_not_there_is_said_and_looked_for_again(tmp_path):
    lines, failures, path = [], Failures([].append), tmp_path / "none"
    certifier = Certifier(
        Settings(certificates="self-managed", kubeconfig=str(path)), lines.append, failures
    )

    certifier.step()

    assert certifier.news().notice.startswith(f"{path}: Invalid kube-config file.")
    assert failures.counts == {}


@pytest.fixture
def files(tmp_path):
    """Write an authority and a certificate of it; return where, what reads them, and its log."""
    write(tmp_path)
    (tmp_path / "clients.crt").write_bytes(b"clients")
    settings = Settings(
        certificates="files",
        tls_cert=str(tmp_path / "tls.crt"),
        tls_key=str(tmp_path / "tls.key"),
        client_ca=str(tmp_path / "clients.crt"),
    )
    lines = []
    return tmp_path, Certifier(settings, lines.append, Failures(lines.append)), lines


def write(folder, *, at=NOW):
    signer = new_authority("theirs", now=NOW, lifetime=365 * DAY)
    leaf = new_leaf(signer, ("x.svc",), now=at, lifetime=DAY)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "ca.crt").write_bytes(signer.certificate_pem)


def looked(certifier):
    certifier.step()
    return certifier.news()


def test_files_are_sent_with_their_end_their_authoritys_and_the_clients_authorities(files):
    found = looked(files[1])

    assert found.served.expires == (NOW + DAY).timestamp()
    assert found.authority_expires == (NOW + 365 * DAY).timestamp()
    assert found.clients == b"clients"


def test_files_are_sent_again_once_they_have_changed(files):
    folder, certifier, _ = files
    looked(certifier)

    same = looked(certifier)
    write(folder, at=NOW + DAY)

    assert same is None
    assert looked(certifier).served.expires == (NOW + 2 * DAY).timestamp()


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "clients.crt"])
def test_a_file_that_is_gone_changes_nothing_and_is_told(files, name):
    folder, certifier, lines = files
    looked(certifier)

    (folder / name).unlink()

    assert looked(certifier) is None
    assert name in lines[0]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_nobody_is_served_before_the_clients_authorities_are_known(files, spoil):
    folder, certifier, _ = files
    spoil(folder / "clients.crt")

    found = looked(certifier)

    assert found.served is None
    assert found.notice.endswith("clients.crt: there are no authorities of clients")
