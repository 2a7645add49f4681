"""The addresses and paths that settings give, read before there is a server."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address
from pathlib import Path

PATH = "/mutate"
_SEGMENT = re.compile(r"([A-Za-z0-9_-]{24,64})?")


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``; an empty host is all addresses.

    Raises:
        ValueError: *address* is not of that form.

    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"expected host:port, got {address!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what an empty host means


def is_loopback(host: str) -> bool:
    """Return whether only this machine (or pod) can reach *host*; False for names but localhost."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def read_paths(file: str) -> tuple[bytes, ...]:
    """Read the webhook's URL paths from a JSON *file* of last segments; no file: ``/mutate`` alone.

    Raises:
        OSError, ValueError: it cannot be read, or is not a list of segments.

    """
    segments = json.loads(Path(file).read_bytes()) if file else [""]
    if not isinstance(segments, list) or not segments:
        raise ValueError("must be a list of at least one segment")
    for segment in segments:
        if not isinstance(segment, str) or not _SEGMENT.fullmatch(segment):
            # The segment is secret and this text is printed, so it is not quoted.
            raise ValueError("a segment must be 24 to 64 letters, digits, - or _; or empty")
    return tuple((f"{PATH}/{segment}" if segment else PATH).encode() for segment in segments)
