"""Parses the bytes of one connection into complete HTTP/1.1 messages; it knows no sockets.

Strict, since only an API server is expected: what RFC 9112 lets a server reject is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_HEAD_MAX = 64 << 10
_HEADERS_MAX = 100
_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_BAD = "400 Bad Request"


class BadMessage(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """The message cannot be accepted; ``status`` is the status line's text to answer with."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpMessage:
    method: str
    path: str
    """As sent, still percent-encoded."""
    query: str
    headers: Mapping[str, str]
    """By name in lower case; values of the same name are joined by commas."""
    body: bytes
    closing: bool
    """The client reads no second answer on this connection."""


class MessageReader:
    """Collects what a client sends until a message is complete."""

    __slots__ = ("_buffer", "_head", "_max_body", "_seen", "wants_continue")

    def __init__(self, max_body: int) -> None:
        self._buffer = bytearray()
        self._max_body = max_body
        self._head: _Head | None = None
        self._seen = 0
        self.wants_continue = False
        """The client waits for ``100 Continue`` before its body; the caller resets this."""

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def clear(self) -> None:
        self._buffer.clear()

    def take(self) -> HttpMessage | None:
        """Remove and return the next complete message; None: more bytes are needed.

        Raises:
            BadMessage: malformed, too large, or without a length that is known beforehand.

        """
        head = self._head or self._read_head()
        if head is None or len(self._buffer) < head.end + head.length:
            return None
        whole = head.end + head.length
        body = bytes(memoryview(self._buffer)[head.end : whole])
        del self._buffer[:whole]
        self._head, self._seen, self.wants_continue = None, 0, False
        return HttpMessage(
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.headers,
            body=body,
            closing=head.closing,
        )

    def _read_head(self) -> _Head | None:
        # A head that arrives byte by byte is not searched from its start each time.
        end = self._buffer.find(_END, max(0, self._seen - len(_END)))
        self._seen = len(self._buffer)
        if max(end, self._seen if end < 0 else 0) > _HEAD_MAX:
            raise BadMessage("431 Request Header Fields Too Large")
        if end < 0:
            return None
        head = _parse(bytes(memoryview(self._buffer)[:end]), self._max_body)
        expects = head.headers.get("expect")
        if expects is not None and expects.lower() != "100-continue":
            raise BadMessage("417 Expectation Failed")
        self.wants_continue = expects is not None and len(self._buffer) < head.end + head.length
        self._head = head
        return head


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    closing: bool
    end: int
    """Bytes before the body."""
    length: int
    """Bytes of the body."""


def _parse(text: bytes, max_body: int) -> _Head:
    first, *lines = text.split(b"\r\n")
    if (line := _REQUEST_LINE.fullmatch(first)) is None:
        raise BadMessage(_BAD)
    if len(lines) > _HEADERS_MAX:
        raise BadMessage("431 Request Header Fields Too Large")
    headers = _headers(lines)
    path, _, query = line[2].decode("ascii").partition("?")
    options = headers.get("connection", "").lower()
    return _Head(
        method=line[1].decode("ascii"),
        path=path,
        query=query,
        headers=headers,
        # No keep-alive for HTTP/1.0, where it was never specified well.
        closing=line[3] == b"0" or "close" in options,
        end=len(text) + len(_END),
        length=_length(headers, max_body),
    )


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        if (header := _HEADER.fullmatch(line)) is None:
            raise BadMessage(_BAD)
        name, value = header[1].decode("ascii").lower(), header[2].decode("latin-1").rstrip(" \t")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _length(headers: Mapping[str, str], max_body: int) -> int:
    if "transfer-encoding" in headers:
        raise BadMessage("411 Length Required")
    text = headers.get("content-length", "0")
    # Other parsers might read a repeated length, a sign or non-ASCII digits differently.
    if not (text.isascii() and text.isdigit()):
        raise BadMessage(_BAD)
    if len(text) > len(str(max_body)) or int(text) > max_body:
        raise BadMessage("413 Content Too Large")
    return int(text)
