"""Runs the keeper of certificates in a thread of the observer, and turns its reports into updates.

How certificates are made and stored is the keeper's, not known here.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes

from certs.client import Client
from certs.errors import Unavailable
from certs.keeper import Keeper, Report, Trouble
from certs.leaf import Leaf
from certs.plan import Lifetimes
from certs.store import Store
from webhook.api.connection import connection
from webhook.api.kubernetes_api import Unreachable
from webhook.model.faults import CERTIFICATES, Attention, Failures
from webhook.server.tls import Certificates, Served
from webhook.settings import Settings

if TYPE_CHECKING:
    from kubernetes.client import ApiClient


class Certifier:
    """Keeps certificates in its own thread; ``news`` returns them once after each change."""

    def __init__(self, settings: Settings, log: Callable[[str], None], failures: Failures) -> None:
        self._keeper = keeper(settings, log)
        self._failures = failures
        self._keeper.on_leaf = self._take
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
        while True:
            self.step()
            # Replicas that started together must not stay in step.
            time.sleep(self._keeper.wait.total_seconds() * random.uniform(0.8, 1.0))  # noqa: S311

    def step(self) -> None:
        """Run the keeper once; if that fails, everything stays as it is until the next run."""
        report, _ = self._failures.survive(CERTIFICATES, self._keeper.step)
        if report is not None:
            self._take(report)

    def _take(self, report: Report) -> None:
        certificates = carried(report)
        if certificates != self._reported:
            self._reported = certificates
            with self._lock:
                self._news = certificates


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


def _served(leaf: Leaf, trusted_at: float) -> Served:
    return Served(
        pem=leaf.issued.certificate_pem + leaf.issued.key_pem,
        authority=leaf.authority.fingerprint(hashes.SHA256()),
        made=leaf.made.timestamp(),
        expires=leaf.expires.timestamp(),
        trusted_at=trusted_at,
    )
