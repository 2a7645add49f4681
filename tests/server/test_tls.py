"""Certificates that are sent: which one is served, and what is said about it."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.issue import new_authority, new_leaf
from tests.server.conftest import NOW
from webhook.server.tls import Certificates, SentContext, Served

DAY = timedelta(days=1)
NAME = "kueue-fallback.ours.svc"


@pytest.fixture
def sent(clocks, told):
    source = SentContext(on_error=told.append, clock=clocks.monotonic, now=clocks.now)
    source.on_reload = told.append
    return source


def authority():
    return new_authority("ours", now=NOW, lifetime=365 * DAY)


def served(signer, *, at=NOW, authority=b"one", trusted_at=0.0, pem=None):
    leaf = new_leaf(signer, (NAME,), now=at, lifetime=DAY)
    return Served(
        pem=leaf.certificate_pem + leaf.key_pem if pem is None else pem,
        authority=authority,
        made=at.timestamp(),
        expires=(at + DAY).timestamp(),
        trusted_at=trusted_at,
    )


def test_before_the_first_certificate_there_is_none_and_readiness_says_why(sent):
    assert sent() is None
    assert sent.not_ready() == "no certificate yet"

    sent.take(Certificates(notice="secrets is forbidden"))

    assert sent.not_ready() == "no certificate yet: secrets is forbidden"


def test_a_client_that_trusts_the_authority_gets_through(sent):
    signer = authority()
    now = datetime.now(UTC)
    sent.take(Certificates(served=served(signer, at=now)))
    client = ssl.create_default_context(cadata=signer.certificate_pem.decode())

    assert _peer(client, sent())["subject"] == ((("commonName", NAME),),)


def _peer(client, server):
    """Shake hands in memory; return the certificate that the client has verified."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=NAME)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for step in (one, other, one, other):
        try:
            step.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return one.getpeercert()


def test_no_key_is_left_in_a_file(sent):
    before = set(Path("/proc/self/fd").iterdir())

    sent.take(Certificates(served=served(authority())))

    assert set(Path("/proc/self/fd").iterdir()) == before


def test_one_of_the_same_authority_replaces_it_at_once(sent):
    signer = authority()
    sent.take(Certificates(served=served(signer)))
    before = sent()

    sent.take(Certificates(served=served(signer, trusted_at=60.0)))

    assert sent() is not before


def test_one_of_an_authority_that_is_not_known_everywhere_waits(sent, clocks):
    sent.take(Certificates(served=served(authority())))
    before = sent()
    sent.take(Certificates(served=served(authority(), authority=b"two", trusted_at=60.0)))

    waiting = sent()
    clocks.seconds = 60.0

    assert waiting is before
    assert sent() is not before


def test_it_does_not_wait_until_there_is_none_that_is_valid(sent, clocks):
    sent.take(Certificates(served=served(authority())))
    before = sent()
    offered = served(authority(), authority=b"two", trusted_at=1e9)
    sent.take(Certificates(served=offered))

    clocks.seconds = DAY.total_seconds() * 11 / 12

    assert sent() is not before


def test_one_that_cannot_be_used_is_told_and_the_one_in_force_stays(sent, told):
    sent.take(Certificates(served=served(authority())))
    before = sent()

    sent.take(Certificates(served=served(authority(), pem=b"broken")))

    assert sent() is before
    assert told[:2] == ["success", "failure"]
    assert told[2].startswith("keeping the certificate in force: [SSL]")


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (timedelta(hours=1), ""),
        (timedelta(minutes=59), "the certificate is valid for only 3540 s more"),
        (timedelta(0), "the certificate has expired"),
    ],
)
def test_readiness_ends_an_hour_before_the_certificate(sent, clocks, left, said):
    sent.take(Certificates(served=served(authority())))

    clocks.seconds = (DAY - left).total_seconds()

    assert sent.not_ready() == said


def test_clients_need_a_certificate_where_their_authority_is_sent(sent):
    clients, leaf = authority().certificate_pem, served(authority())
    sent.take(Certificates(served=leaf, clients=clients))
    before = sent()

    sent.take(Certificates(served=leaf, clients=clients + authority().certificate_pem))

    assert before.verify_mode is ssl.CERT_REQUIRED
    assert [len(each.get_ca_certs()) for each in (before, sent())] == [1, 2]


@pytest.mark.parametrize("clients", [b"", b"nothing"])
def test_authorities_of_clients_that_cannot_be_read_leave_those_before(sent, told, clients):
    leaf = served(authority())
    sent.take(Certificates(served=leaf, clients=authority().certificate_pem))
    before = sent()

    sent.take(Certificates(served=leaf, clients=clients))

    assert sent() is before
    assert "in force" in told[-1]
