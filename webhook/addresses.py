"""Addresses as settings have them: ``host:port``."""

from __future__ import annotations

from ipaddress import ip_address


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``.

    Raises:
        ValueError: *address* is not of that form.

    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"expected host:port, got {address!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what an empty host means


def is_loopback(host: str) -> bool:
    """Say whether only this machine (or pod) can reach a host; a name may be anything."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
