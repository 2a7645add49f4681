"""Bytes of one connection in, whole HTTP/1.1 messages out; it knows no sockets."""

from __future__ import annotations

import re

_HEADERS_MAX = 64 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CONTINUE = re.compile(rb"\r\nexpect:[ \t]*100-continue[ \t]*(?=\r\n)", re.IGNORECASE)


class Refused(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """The message cannot be taken; ``status`` is the HTTP status line's text that says why."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Inbox:
    """Collects what a client sends until a whole message is there."""

    __slots__ = ("_buffer", "_max_body", "_needed", "wants_continue")

    def __init__(self, max_body: int) -> None:
        self._buffer = bytearray()
        self._max_body = max_body
        self._needed = 0
        self.wants_continue = False

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> bytes | None:
        """Hand out the next whole message, head and body; None: more bytes are needed.

        Raises:
            Refused: too large, or of a length that is not said beforehand.

        """
        if not self._needed and not self._read_head():
            return None
        if len(self._buffer) < self._needed:
            return None
        message = bytes(self._buffer[: self._needed])
        del self._buffer[: self._needed]
        self._needed, self.wants_continue = 0, False
        return message

    def _read_head(self) -> bool:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > _HEADERS_MAX:
                raise Refused("431 Request Header Fields Too Large")
            return False
        head = self._without_expect(bytes(self._buffer[: end + len(_END)]))
        if _CHUNKED.search(head):
            raise Refused("411 Length Required")
        lengths = {int(match) for match in _LENGTH.findall(head)}
        if len(lengths) > 1:
            raise Refused("400 Bad Request")
        length = lengths.pop() if lengths else 0
        if length > self._max_body:
            raise Refused("413 Content Too Large")
        self._needed = len(head) + length
        return True

    def _without_expect(self, head: bytes) -> bytes:
        """Answering ``Expect`` is the poller's part: gunicorn would give leave a second time."""
        shorter = _CONTINUE.sub(b"", head)
        if shorter != head:
            self.wants_continue = True
            self._buffer[: len(head)] = shorter
        return shorter
