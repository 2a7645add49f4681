"""When a certificate is valid, read from its PEM.

A server needs no more of X.509, whose library would take it five megabytes and a tenth of a second.
Whether the certificate is a sound one is for TLS to say, which has loaded it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

_MARGIN_SECONDS = 3600.0
"""A certificate valid for less may be refused soon, as clocks differ."""
_VERSION = 0xA0
_UTC_TIME = 0x17
"""With a year of two digits, until 2049: https://datatracker.ietf.org/doc/html/rfc5280#section-4.1.2.5"""
_LONG = 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """When a certificate is valid, in seconds since 1970."""

    begins: float
    ends: float

    def fault(self, now: float) -> str:
        """Return why the certificate cannot be relied on; empty if it can."""
        if now >= self.ends:
            return "the certificate has expired"
        margin = min(_MARGIN_SECONDS, (self.ends - self.begins) / 10)
        if self.ends - now < margin:
            return f"the certificate is valid for only {self.ends - now:.0f} s more"
        return ""


def read(pem: bytes) -> Validity:
    """Return the validity of the first certificate of a chain.

    Raises:
        ValueError: there is none.

    """
    text = pem.decode("ascii", "replace")
    begin = text.index(ssl.PEM_HEADER)
    end = text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)
    ((_, certificate),) = _elements(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    (_, signed), *_ = _elements(certificate)
    fields = [content for tag, content in _elements(signed) if tag != _VERSION]
    _serial, _algorithm, _issuer, period, *_ = fields
    begins, ends = (_seconds(*each) for each in _elements(period))
    return Validity(begins=begins, ends=ends)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of what follows one another in DER."""
    while der:
        (tag, length), der = der[:2], der[2:]
        if length >= _LONG:
            size = length - _LONG
            length, der = int.from_bytes(der[:size], "big"), der[size:]
        yield tag, der[:length]
        der = der[length:]


def _seconds(tag: int, content: bytes) -> float:
    year = "%y" if tag == _UTC_TIME else "%Y"
    return datetime.strptime(content.decode("ascii"), f"{year}%m%d%H%M%S%z").timestamp()
