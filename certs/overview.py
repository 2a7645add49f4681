"""What an admin wants to know of the certificates, as rows, a table or JSON. Pure."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from rich.console import Console
from rich.table import Table

from certs.plan import Bundle, expired
from certs.secret import State

_WIDTH: Final = 1_000
"""Nothing in the table is as wide, so nothing is wrapped."""
_HEAD: Final = ("AUTHORITY", "FINGERPRINT", "VALID UNTIL", "LEFT", "IN caBundle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One authority, by the part it plays."""

    part: str
    certificate: x509.Certificate
    webhooks: int
    """How many webhooks' caBundle carry it."""


def rows_of(published: Bundle, state: State) -> tuple[Row, ...]:
    """Return all authorities that are in the Secret, then those that are in caBundle alone."""
    pairs = (("signing", state.signing), ("next", state.next))
    parts = [
        *((part, each.certificate) for part, each in pairs if each is not None),
        *(("old", each) for each in state.old),
        *(("unknown", each) for each in published.certificates if each not in state.certificates),
    ]
    return tuple(
        Row(
            part=part,
            certificate=certificate,
            webhooks=sum(certificate in each for each in published.webhooks),
        )
        for part, certificate in parts
    )


def to_text(published: Bundle, state: State, *, now: datetime) -> str:
    webhooks = len(published.webhooks)
    table = Table(*_HEAD, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows_of(published, state):
        ends = row.certificate.not_valid_after_utc
        where = "yes" if row.webhooks == webhooks else f"{row.webhooks} of {webhooks}"
        until = ends.strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(row.part, fingerprint(row.certificate), until, _left(ends - now), where)
    console = Console(file=io.StringIO(), width=_WIDTH)
    with console.capture() as shown:
        console.print(table)
    lines = [line.rstrip() for line in shown.get().splitlines()]
    asked = ("A rotation is asked for.",) if state.rotation_asked else ()
    faults = (f"Fault: {fault}" for fault in faults_of(published, state, now=now))
    return "\n".join((*lines, *asked, *faults))


def to_json(published: Bundle, state: State, *, now: datetime) -> Mapping[str, Any]:
    return {
        "authorities": [
            {
                "part": row.part,
                "fingerprint": fingerprint(row.certificate),
                "notBefore": row.certificate.not_valid_before_utc.isoformat(),
                "notAfter": row.certificate.not_valid_after_utc.isoformat(),
                "webhooks": row.webhooks,
            }
            for row in rows_of(published, state)
        ],
        "webhooks": len(published.webhooks),
        "rotationAsked": state.rotation_asked,
        "faults": list(faults_of(published, state, now=now)),
    }


def fingerprint(certificate: x509.Certificate) -> str:
    """Return enough of it to tell authorities apart."""
    return certificate.fingerprint(hashes.SHA256()).hex()[:16]


def faults_of(published: Bundle, state: State, *, now: datetime) -> Iterator[str]:
    """Yield what is not as it should be; nothing: all is well."""
    yield from state.faults
    if state.signing is None:
        yield "no authority can sign"
    elif expired(state.signing.certificate, now):
        yield "the signing authority has expired"
    if not published.webhooks:
        yield "there is no webhook configuration, or it has no webhooks"
    for row in rows_of(published, state):
        if row.part != "unknown" and row.webhooks < len(published.webhooks):
            yield f"{row.part} {fingerprint(row.certificate)} is not in every caBundle"


def _left(left: timedelta) -> str:
    seconds = int(left.total_seconds())
    if seconds <= 0:
        return "expired"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
