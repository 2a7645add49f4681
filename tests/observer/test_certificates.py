"""What the keeper of certificates says, as the pipe carries it."""

from datetime import UTC, datetime, timedelta

from certs.issue import new_authority, new_leaf
from certs.keeper import Report
from certs.leaf import Leaf
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
    issued = new_leaf(authority, ("x.svc",), now=NOW, lifetime=DAY)
    leaf = Leaf(issued=issued, authority=authority.certificate, made=NOW)
    ends = authority.certificate.not_valid_after_utc
    return Report(leaf=leaf, trusted_at=7.0, authority_expires=ends, notice="not well")


def test_the_pipe_carries_certificate_key_and_times():
    given = report()

    found = through(Update(certificates=carried(given))).certificates

    issued = given.leaf.issued
    assert found.served.pem == issued.certificate_pem + issued.key_pem
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
    certifier = Certifier(Settings(), lines.append, failures)
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
    certifier = Certifier(Settings(kubeconfig=str(path)), lines.append, failures)

    certifier.step()

    assert certifier.news().notice.startswith(f"{path}: Invalid kube-config file.")
    assert failures.counts == {}
