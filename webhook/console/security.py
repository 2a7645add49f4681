"""What the page's HTTP headers forbid: everything but its own inline style and script."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

_DIRECTIVES = (
    "default-src 'none'",
    "style-src 'nonce-{nonce}'",
    "script-src 'nonce-{nonce}'",
    "img-src data:",
    "connect-src 'self'",
    "base-uri 'none'",
    # The filters are a form that is sent by GET where there is no script.
    "form-action 'self'",
    "frame-ancestors 'none'",
)


def new_nonce() -> str:
    """Make a nonce; each response needs its own."""
    return secrets.token_urlsafe(16)


def content_security_policy(nonce: str) -> str:
    return "; ".join(_DIRECTIVES).format(nonce=nonce)


def headers(nonce: str) -> Mapping[str, str]:
    """Return all headers that the page is to be served with."""
    return {
        "Content-Security-Policy": content_security_policy(nonce),
        "Content-Type": "text/html; charset=utf-8",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
