"""The TLS context in force, from certificates that the observer reads or makes and sends.

A context is built as a whole and swapped by one reference: changing a live one in place is not
atomic (certificate first, then key) and loses handshakes. It knows no connections and no files.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MARGIN_SECONDS = 3600.0
"""A certificate valid for less may be refused soon, as clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A certificate to serve with; times are seconds since 1970 unless noted otherwise."""

    pem: bytes = field(repr=False)
    """Certificate and key; kept in memory only, and never logged."""
    authority: bytes = b""
    """Fingerprint of the certificate that signed it; empty: another program sees to that."""
    made: float
    expires: float
    trusted_at: float = 0.0
    """Monotonic clock: until then some API servers may not know the authority."""

    def fault(self, now: float) -> str:
        """Return why the certificate cannot be relied on; empty if it can."""
        if now >= self.expires:
            return "the certificate has expired"
        if self.expires - now < min(_MARGIN_SECONDS, (self.expires - self.made) / 10):
            return f"the certificate is valid for only {self.expires - now:.0f} s more"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What the observer reports of its certificates."""

    served: Served | None = None
    clients: bytes | None = None
    """Authorities whose certificates clients must have, PEM; None: they need none."""
    authority_expires: float | None = None
    notice: str = ""
    """What is wrong with the authority; empty: nothing."""


class SentContext:
    """Contexts from the certificates that were sent last.

    Call it for the context of a new connection; None: there is no certificate yet.
    """

    def __init__(
        self,
        *,
        on_error: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._on_error = on_error
        self.on_reload: Callable[[str], None] = lambda _: None
        self._clock, self._now = clock, now
        self._lock = threading.Lock()
        self._sent = Certificates()
        self._is_waiting = False
        """Whether what was sent is yet to be put in force."""
        self._in_force = Certificates()
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> ssl.SSLContext | None:
        if self._is_waiting:
            self._swap()
        return self._context

    def take(self, certificates: Certificates) -> None:
        with self._lock:
            self._sent = certificates
            self._is_waiting = certificates.served is not None
        self._swap()

    def not_ready(self) -> str:
        served = self._in_force.served
        if served is None:
            return f"no certificate yet{self._sent.notice and ': '}{self._sent.notice}"
        return served.fault(self._now())

    def notice(self) -> str:
        return self._sent.notice

    def expirations(self) -> Mapping[str, float]:
        """Return the expiry of each certificate by kind (leaf, ca), in seconds since 1970."""
        served = self._in_force.served
        leaf = served.expires if served is not None else None
        ends = {"leaf": leaf, "ca": self._sent.authority_expires}
        return {kind: at for kind, at in ends.items() if at is not None}

    def _swap(self) -> None:
        with self._lock:
            sent, before = self._sent, self._in_force
            if not self._is_waiting or sent.served is None:
                return
            if not is_time_for(sent.served, before.served, now=self._now(), clock=self._clock()):
                return
            self._is_waiting = False
            if (sent.served, sent.clients) == (before.served, before.clients):
                return
            try:
                self._context = _context(sent.served.pem, sent.clients)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                result, problem = "failure", str(error)
            else:
                self._in_force, result, problem = sent, "success", ""
        self.on_reload(result)
        if problem:
            self._on_error(f"keeping the certificate in force: {problem}")


def is_time_for(offered: Served, served: Served | None, *, now: float, clock: float) -> bool:
    """Return whether to switch to *offered* now.

    A certificate that every API server trusts is kept, while it is valid, until all trust the new
    authority. *now* is in seconds since 1970, *clock* monotonic.
    """
    if served is None or served.authority == offered.authority:
        return True
    margin = (served.expires - served.made) / 12
    return clock >= offered.trusted_at or now >= served.expires - margin


def _context(pem: bytes, clients: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # No API server resumes a session; the tickets for it cost a seventh of a handshake.
    context.num_tickets = 0
    # OpenSSL wants a path, so it gets one in memory.
    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    if clients is not None:
        # Without a certificate of theirs the handshake fails, before a byte of a review is read.
        context.load_verify_locations(cadata=clients.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def names_of(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the names (common and alternative) in a client's certificate, as ``ssl`` reads it.

    Empty without one.
    """
    read = certificate or {}
    named = (pair for pairs in read.get("subject", ()) for pair in pairs)
    common = (value for kind, value in named if kind == "commonName")
    alternatives = read.get("subjectAltName", ())
    return frozenset((*common, *(name for kind, name in alternatives if kind in ("DNS", "URI"))))
