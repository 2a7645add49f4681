"""The TLS context in force: built whole from the files, swapped by one reference when they change.

Changing a live context in place is not atomic (certificate first, then key) and loses handshakes.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

CHECK_SECONDS = 5.0
"""How often the files are looked at; a kubelet takes longer to show a new Secret."""


class LiveContext:
    """Call it for the context of a new connection."""

    def __init__(
        self,
        certificate: str,
        key: str,
        *,
        on_error: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._certificate, self._key = certificate, key
        self._on_error = on_error
        self._clock = clock
        self._signature = self._sign()
        self._context = self._build()
        self._checked = clock()

    def __call__(self) -> ssl.SSLContext:
        if self._clock() - self._checked >= CHECK_SECONDS:
            self._checked = self._clock()
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            signature = self._sign()
            if signature != self._signature:
                self._context = self._build()
                self._signature = signature
        except OSError as error:  # ssl.SSLError is one
            self._on_error(f"keeping the certificate in force: {error}")

    def _paths(self) -> tuple[Path, Path]:
        # Both from one resolved folder: a volume's swap between two reads must not mix pairs.
        folder = Path(os.path.realpath(self._certificate)).parent
        key = Path(self._key)
        beside = folder / key.name
        return folder / Path(os.path.realpath(self._certificate)).name, (
            beside if beside.exists() else key
        )

    def _sign(self) -> tuple[tuple[str, int, int], ...]:
        found = ((str(path), path.stat()) for path in self._paths())
        return tuple((name, stat.st_mtime_ns, stat.st_ino) for name, stat in found)

    def _build(self) -> ssl.SSLContext:
        certificate, key = self._paths()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        return context
