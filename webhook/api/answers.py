"""What the API server answers: bytes of a response to objects, events, warnings and messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import urllib3

from webhook.api.errors import Cause, Unreachable
from webhook.model.fields import DEEPEST

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')
"""Texts, and what nests."""


def parse(content: bytes) -> Mapping[str, Any]:
    try:
        found = _loaded(content)
    except ValueError as error:
        raise Unreachable(f"an answer that is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreachable("an answer that is not an object")
    return found


def _loaded(content: bytes) -> Any:
    """Read JSON; what is nested deeper than anything we read becomes null.

    Whoever may create a Job may nest its ``managedFields`` thousands deep.
    """
    try:
        return json.loads(content)
    except RecursionError:
        return json.loads(b"".join(_shallow(content)))


def _shallow(content: bytes) -> Iterator[bytes]:
    depth = kept = 0
    for token in _TOKENS.finditer(content):
        if token[0] in b"{[":
            depth += 1
            if depth == DEEPEST + 1:
                yield content[kept : token.start()] + b"null"
        elif token[0] in b"}]":
            if depth == DEEPEST + 1:
                kept = token.end()
            depth -= 1
    yield content[kept:]


def events(response: urllib3.BaseHTTPResponse) -> Iterator[Mapping[str, Any]]:
    tail = b""
    try:
        for chunk in response.stream(1 << 16):
            *lines, tail = (tail + chunk).split(b"\n") if b"\n" in chunk else (tail + chunk,)
            for line in lines:
                if line.strip():
                    yield parse(line)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(str(error)) from error
    finally:
        # A watch that was left early still has bytes under way: not to be used again.
        response.close()


def warnings(response: urllib3.BaseHTTPResponse) -> tuple[str, ...]:
    """List what admission and the API server warn of."""
    return tuple(map(_text, response.headers.getlist("Warning")))


def refusal(response: urllib3.BaseHTTPResponse) -> tuple[str, tuple[Cause, ...]]:
    """Read the Status that says no: its message, and which fields are to blame for what."""
    try:
        found = json.loads(response.read())
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        found = None
    finally:
        response.release_conn()
    if not isinstance(found, dict):
        return str(response.reason), ()
    return str(found.get("message") or response.reason), tuple(_causes(found))


def _causes(status: Mapping[str, Any]) -> Iterator[Cause]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict):
            yield Cause(str(cause.get("field", "")), str(cause.get("reason", "")))


def _text(header: str) -> str:
    """Take the text out of ``299 - "text"``."""
    _, _, quoted = header.partition('"')
    return re.sub(r"\\(.)", r"\1", quoted.removesuffix('"'))
