"""Keeps certificates in a thread of the observer: reads files, or runs the keeper of our own.

How the keeper makes and stores certificates is not known here.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes
from cryptography.x509 import load_pem_x509_certificate

from certs.client import Client
from certs.issue import Issued
from certs.keeper import Keeper, Report, Trouble
from certs.plan import Lifetimes
from certs.store import Store, Unavailable
from webhook.api.connection import connection
from webhook.api.kubernetes_api import Unreachable
from webhook.model.faults import CERTIFICATES, Attention, Failures
from webhook.server.tls import Certificates, Served
from webhook.settings import Settings

if TYPE_CHECKING:
    from kubernetes.client import ApiClient


_FILES_SECONDS = 5.0
"""How often files are read; a kubelet takes longer to show a new Secret."""


class Certifier:
    """Keeps certificates in its own thread; ``news`` returns them once after each change."""

    def __init__(self, settings: Settings, log: Callable[[str], None], failures: Failures) -> None:
        self._settings, self._failures = settings, failures
        self._keeper = keeper(settings, log) if settings.certificates == "self-managed" else None
        self._clients: bytes | None = None
        self._reported: Certificates | None = None
        self._news: Certificates | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, name="certificates", daemon=True).start()

    def news(self) -> Certificates | None:
        with self._lock:
            news, self._news = self._news, None
        return news

    def _run(self) -> None:
        seconds = self._keeper.wait.total_seconds() if self._keeper else _FILES_SECONDS
        while True:
            self.step()
            # Replicas that started together must not stay in step.
            time.sleep(seconds * random.uniform(0.8, 1.0))  # noqa: S311

    def step(self) -> None:
        """Look once; what fails stays as it is until the next time."""
        if file := self._settings.client_ca:
            read, _ = self._failures.survive(CERTIFICATES, Path(file).read_bytes, OSError)
            self._clients = read or self._clients
            if not self._clients:
                # Nobody is served whose certificate cannot be verified.
                self._take(Certificates(notice=f"{file}: there are no authorities of clients"))
                return
        found, _ = self._failures.survive(CERTIFICATES, self._found, OSError, ValueError)
        if found is not None:
            self._take(found)

    def _found(self) -> Certificates:
        if self._keeper is None:
            return read_files(self._settings.tls_cert, self._settings.tls_key)
        self._keeper.on_leaf = lambda report: self._take(carried(report))
        return carried(self._keeper.step())

    def _take(self, found: Certificates) -> None:
        certificates = replace(found, clients=self._clients)
        if certificates != self._reported:
            self._reported = certificates
            with self._lock:
                self._news = certificates


def read_files(certificate: str, key: str) -> Certificates:
    """Read a certificate and its key, which another program renews, and the authority beside them.

    Raises:
        OSError, ValueError: they cannot be read.

    """
    chain, authority = Path(certificate).read_bytes(), Path(certificate).with_name("ca.crt")
    leaf = load_pem_x509_certificate(chain)
    expires = None
    if authority.exists():
        expires = load_pem_x509_certificate(authority.read_bytes()).not_valid_after_utc.timestamp()
    return Certificates(
        served=Served(
            pem=chain + b"\n" + Path(key).read_bytes(),
            made=leaf.not_valid_before_utc.timestamp(),
            expires=leaf.not_valid_after_utc.timestamp(),
        ),
        authority_expires=expires,
    )


def _named(text: str) -> str:
    line = f"certificates: {text}"
    return Attention(line) if isinstance(text, Trouble) else line


def keeper(settings: Settings, log: Callable[[str], None]) -> Keeper:
    service = f"{settings.service}.{settings.namespace}.svc"
    return Keeper(
        Store(
            Client(settings.kubeconfig, _connected),
            namespace=settings.namespace,
            name=settings.ca_secret,
            configuration=settings.webhook_configuration,
        ),
        names=(service, f"{service}.cluster.local"),
        lifetimes=Lifetimes(
            ca=timedelta(seconds=settings.ca_lifetime),
            leaf=timedelta(seconds=settings.leaf_lifetime),
            settle=timedelta(seconds=settings.ca_settle),
        ),
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        log=lambda text: log(_named(text)),
    )


def _connected(kubeconfig: str) -> ApiClient:
    """Connect as the observer itself does, which leaves no key in a file."""
    try:
        return connection(kubeconfig)
    except Unreachable as error:
        raise Unavailable(str(error)) from error


def carried(report: Report) -> Certificates:
    ends = report.authority_expires
    return Certificates(
        served=None if report.leaf is None else _served(report.leaf, report.trusted_at),
        authority_expires=None if ends is None else ends.timestamp(),
        notice=report.notice,
    )


def _served(leaf: Issued, trusted_at: float) -> Served:
    signed_by = leaf.authority or leaf.certificate
    return Served(
        pem=leaf.certificate_pem + leaf.key_pem,
        authority=signed_by.fingerprint(hashes.SHA256()),
        made=leaf.made.timestamp(),
        expires=leaf.expires.timestamp(),
        trusted_at=trusted_at,
    )
