"""Certificates as the API server wants them."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.issue import new_authority, new_leaf

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
YEAR = timedelta(days=365)
WEEK = timedelta(days=7)
NAME = "kueue-fallback.kueue-fallback.svc"


@pytest.fixture(scope="module")
def authority():
    return new_authority("kueue-fallback", now=NOW, lifetime=YEAR)


@pytest.fixture(scope="module")
def leaf(authority):
    return new_leaf(authority, (NAME, "localhost", "127.0.0.1"), now=NOW, lifetime=WEEK)


def _verify(leaf, authority, *, at=NOW, name=NAME):
    builder = PolicyBuilder().store(Store([authority.certificate])).time(at)
    return builder.build_server_verifier(x509.DNSName(name)).verify(leaf.certificate, [])


def test_a_leaf_verifies_for_its_names_against_its_authority(leaf, authority):
    assert _verify(leaf, authority) == [leaf.certificate, authority.certificate]
    assert _verify(leaf, authority, name="localhost")


def test_certificates_are_valid_from_an_hour_ago_for_their_lifetime(leaf, authority):
    hour_ago = NOW - timedelta(hours=1)

    assert leaf.certificate.not_valid_before_utc == hour_ago
    assert leaf.certificate.not_valid_after_utc == NOW + WEEK
    assert authority.certificate.not_valid_before_utc == hour_ago
    assert authority.certificate.not_valid_after_utc == NOW + YEAR


def test_names_are_dns_names_or_addresses(leaf):
    names = leaf.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == [NAME, "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_leaf_is_for_servers_alone(leaf):
    extensions = leaf.certificate.extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_are_p256_and_signatures_sha256(leaf, authority):
    for issued in (leaf, authority):
        assert isinstance(issued.key.curve, ec.SECP256R1)
        assert isinstance(issued.certificate.signature_hash_algorithm, hashes.SHA256)


def test_a_leaf_cannot_sign(leaf, authority):
    forged = new_leaf(leaf, ("evil.svc",), now=NOW, lifetime=WEEK)

    with pytest.raises(InvalidSignature):
        authority.key.public_key().verify(
            forged.certificate.signature,
            forged.certificate.tbs_certificate_bytes,
            ec.ECDSA(hashes.SHA256()),
        )
    with pytest.raises(VerificationError):
        _verify(forged, authority, name="evil.svc")


def test_a_name_longer_than_a_common_name_is_kept_whole_as_an_alternative_name(authority):
    name = f"{'a' * 63}.{'b' * 63}.svc"

    leaf = new_leaf(authority, (name,), now=NOW, lifetime=WEEK)

    assert _verify(leaf, authority, name=name)
