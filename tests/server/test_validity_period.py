"""When a certificate is valid, as X.509's own library reads it, too."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.issue import new_authority, new_leaf
from tests.server.conftest import NOW
from webhook.server import validity_period


@pytest.mark.parametrize("now", [NOW, datetime(2049, 12, 31, 23, 59, tzinfo=UTC)])
def test_a_certificate_begins_and_ends_when_the_library_says(now):
    authority = new_authority("theirs", now=now, lifetime=timedelta(days=365))
    leaf = new_leaf(authority, ("a.b.svc",), now=now, lifetime=timedelta(days=1)).certificate_pem
    loaded = x509.load_pem_x509_certificate(leaf)

    found = validity_period.read(b"Subject: a leaf\n" + leaf + authority.certificate_pem)

    assert found.begins == loaded.not_valid_before_utc.timestamp()
    assert found.ends == loaded.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("content", ["", "!", "MA==", "MAMCAQE=", "MIH/"])
def test_what_is_no_certificate_is_refused(content):
    pem = f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n"

    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        validity_period.read(pem.encode())


@pytest.mark.parametrize("text", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nMA=="])
def test_a_file_without_a_whole_certificate_is_refused(text):
    with pytest.raises(ValueError, match="substring not found"):
        validity_period.read(text)
