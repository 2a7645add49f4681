"""The TLS context in force, from files that change or from certificates that the observer sends.

A context is built as a whole and swapped by one reference: changing a live one in place is not
atomic (certificate first, then key) and loses handshakes. It knows no connections.
"""

from __future__ import annotations

import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cryptography.x509 import load_pem_x509_certificate

CHECK_SECONDS = 5.0
"""How often the files are checked; a kubelet takes longer to show a new Secret."""
_Signature = tuple[tuple[str, int, int], ...]
_MARGIN_SECONDS = 3600.0
"""A certificate valid for less may be refused soon, as clocks differ."""


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


class Source(Protocol):
    """A source of TLS contexts.

    Call it for the context of a new connection; None: there is no certificate yet.
    """

    on_reload: Callable[[str], None]

    def __call__(self) -> ssl.SSLContext | None: ...

    def take(self, certificates: Certificates) -> None: ...

    def not_ready(self) -> str: ...

    def notice(self) -> str: ...

    def expirations(self) -> Mapping[str, float]: ...


class LiveContext:
    """Contexts from files that another program renews: there always is one."""

    def __init__(
        self,
        certificate: str,
        key: str,
        *,
        client_ca: str = "",
        on_error: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._on_error = on_error
        self.on_reload: Callable[[str], None] = lambda _: None
        self._clock, self._now = clock, now
        self._signature = self._sign()
        self._context = self._build()
        self._checked = clock()
        self._read: tuple[object, dict[str, Validity]] | None = None

    def __call__(self) -> ssl.SSLContext:
        if self._clock() - self._checked >= CHECK_SECONDS:
            self._checked = self._clock()
            self._reload()
        return self._context

    def take(self, certificates: Certificates) -> None:
        """Ignore them: the files are in force."""

    def not_ready(self) -> str:
        leaf = self._validities().get("leaf")
        return leaf.fault(self._now()) if leaf else ""

    def notice(self) -> str:
        return ""

    def expirations(self) -> Mapping[str, float]:
        """Return the expiry of each certificate by kind (leaf, ca), in seconds since 1970."""
        return {kind: validity.ends for kind, validity in self._validities().items()}

    def _validities(self) -> Mapping[str, Validity]:
        if self._read is None or self._read[0] is not self._context:
            context, validities = self._context, {}
            certificate, _ = self._paths()
            for kind, path in (("leaf", certificate), ("ca", certificate.parent / "ca.crt")):
                with suppress(OSError, ValueError):
                    validities[kind] = _validity(path)
            self._read = context, validities
        return self._read[1]

    def _reload(self) -> None:
        try:
            signature = self._sign()
            if signature == self._signature:
                return
            self._context = self._build()
            self._signature = signature
            self.on_reload("success")
        except OSError as error:  # ssl.SSLError is one
            self.on_reload("failure")
            self._on_error(f"keeping the certificate in force: {error}")

    def _paths(self) -> tuple[Path, Path]:
        # Both from one resolved folder: a volume's swap between two reads must not mix pairs.
        folder = Path(os.path.realpath(self._certificate)).parent
        key = Path(self._key)
        beside = folder / key.name
        return folder / Path(os.path.realpath(self._certificate)).name, (
            beside if beside.exists() else key
        )

    def _sign(self) -> _Signature:
        return _signature(*self._paths(), self._client_ca)

    def _build(self) -> ssl.SSLContext:
        return _context(*self._paths(), client_ca=self._client_ca)


class SentContext:
    """Contexts from certificates that the observer makes; None until the first one arrives."""

    def __init__(
        self,
        *,
        client_ca: str = "",
        on_error: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client_ca = client_ca
        self._clients: _Signature = ()
        self._checked = -math.inf
        self._on_error = on_error
        self.on_reload: Callable[[str], None] = lambda _: None
        self._clock, self._now = clock, now
        self._lock = threading.Lock()
        self._reported = Certificates()
        self._served: Served | None = None
        self._context: ssl.SSLContext | None = None
        self._waiting: Served | None = None

    def __call__(self) -> ssl.SSLContext | None:
        if self._waiting is not None:
            self._swap()
        if self._client_ca and self._clock() - self._checked >= CHECK_SECONDS:
            self._checked = self._clock()
            self._renew_clients()
        return self._context

    def take(self, certificates: Certificates) -> None:
        with self._lock:
            self._reported = certificates
            self._waiting = certificates.served
        self._swap()

    def not_ready(self) -> str:
        served = self._served
        if served is None:
            return f"no certificate yet{self._reported.notice and ': '}{self._reported.notice}"
        return Validity(begins=served.made, ends=served.expires).fault(self._now())

    def notice(self) -> str:
        return self._reported.notice

    def expirations(self) -> Mapping[str, float]:
        """Return the expiry of each certificate by kind (leaf, ca), in seconds since 1970."""
        leaf = self._served.expires if self._served else None
        ends = {"leaf": leaf, "ca": self._reported.authority_expires}
        return {kind: at for kind, at in ends.items() if at is not None}

    def _swap(self) -> None:
        with self._lock:
            served, self._waiting = self._waiting, None
            if served is None or served == self._served:
                return
            if not is_time_for(served, self._served, now=self._now(), clock=self._clock()):
                self._waiting = served
                return
            if not self._put_in_force(served):
                return
        self.on_reload("success")

    def _renew_clients(self) -> None:
        """Build the context again if the file of the clients' authorities has changed."""
        with self._lock:
            served = self._served
            if served is None or not self._has_other_clients() or not self._put_in_force(served):
                return
        self.on_reload("success")

    def _has_other_clients(self) -> bool:
        try:
            return _signature(self._client_ca) != self._clients
        except OSError as error:
            self._on_error(f"keeping the clients' authorities in force: {error}")
            return False

    def _put_in_force(self, served: Served) -> bool:
        try:
            clients = _signature(self._client_ca)
            self._context = _context_of(served.pem, client_ca=self._client_ca)
        except OSError as error:  # ssl.SSLError is one
            self.on_reload("failure")
            self._on_error(f"keeping the certificate in force: {error}")
            return False
        self._served, self._clients = served, clients
        return True


def is_time_for(offered: Served, served: Served | None, *, now: float, clock: float) -> bool:
    """Return whether to switch to *offered* now.

    A certificate that every API server trusts is kept, while it is valid, until all trust the new
    authority. *now* is in seconds since 1970, *clock* monotonic.
    """
    if served is None or served.authority == offered.authority:
        return True
    margin = (served.expires - served.made) / 12
    return clock >= offered.trusted_at or now >= served.expires - margin


def _signature(*paths: str | Path) -> _Signature:
    """Return what changes whenever a file does: path, mtime and inode of each.

    Empty paths are skipped.
    """
    stats = ((str(path), Path(path).stat()) for path in paths if path)
    return tuple((name, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)


def _context(certificate: str | Path, key: str | Path, *, client_ca: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # No API server resumes a session; the tickets for it cost a seventh of a handshake.
    context.num_tickets = 0
    context.load_cert_chain(certificate, key)
    if client_ca:
        # Without a certificate of theirs the handshake fails, before a byte of a review is read.
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context_of(pem: bytes, *, client_ca: str) -> ssl.SSLContext:
    """Build a context without a file on disk: OpenSSL wants a path, so it gets one in memory."""
    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, pem)
        path = f"/proc/self/fd/{file}"
        return _context(path, path, client_ca=client_ca)
    finally:
        os.close(file)


def _validity(path: Path) -> Validity:
    """Read when the first certificate of a file is valid.

    Raises:
        OSError, ValueError: the file cannot be read, or holds no certificate.

    """
    certificate = load_pem_x509_certificate(path.read_bytes())
    return Validity(
        begins=certificate.not_valid_before_utc.timestamp(),
        ends=certificate.not_valid_after_utc.timestamp(),
    )


def names_of(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the names (common and alternative) in a client's certificate, as ``ssl`` reads it.

    Empty without one.
    """
    read = certificate or {}
    named = (pair for pairs in read.get("subject", ()) for pair in pairs)
    common = (value for kind, value in named if kind == "commonName")
    alternatives = read.get("subjectAltName", ())
    return frozenset((*common, *(name for kind, name in alternatives if kind in ("DNS", "URI"))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A certificate to serve with; times are seconds since 1970 unless noted otherwise."""

    pem: bytes = field(repr=False)
    """Certificate and key; kept in memory only, and never logged."""
    authority: bytes
    """Fingerprint of the certificate that signed it."""
    made: float
    expires: float
    trusted_at: float
    """Monotonic clock: until then some API servers may not know the authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What the observer reports of its certificates."""

    served: Served | None = None
    authority_expires: float | None = None
    notice: str = ""
    """What is wrong with the authority; empty: nothing."""
