"""Authorities and lifetimes for the tests of what is planned."""

import functools
from datetime import UTC, datetime, timedelta

from certs.issue import new_authority
from certs.plan import Bundle, Lifetimes

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
YEAR, DAY, HOUR, MINUTE = (
    timedelta(days=365),
    timedelta(days=1),
    timedelta(hours=1),
    timedelta(0, 60),
)
LIFETIMES = Lifetimes(ca=YEAR, leaf=DAY, settle=MINUTE)


@functools.cache
def authority(name, *, age=timedelta(), lifetime=YEAR):
    """Return one authority for each name, made *age* ago."""
    return new_authority(name, now=NOW - age, lifetime=lifetime)


def certificate(name, **more):
    return authority(name, **more).certificate


def bundle(*certificates, carried_for=HOUR, clean=True):
    """Return the same caBundle for both webhooks."""
    ages = dict.fromkeys(certificates, carried_for)
    return Bundle(webhooks=(certificates, certificates), carried_for=ages, clean=clean)
