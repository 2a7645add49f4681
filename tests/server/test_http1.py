"""Whole messages out of bytes that come as they like."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.server.http1 import BadMessage, HttpMessage, MessageReader

BYTES = b"POST /mutate?timeout=2s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
MESSAGE = HttpMessage(
    method="POST",
    path="/mutate",
    query="timeout=2s",
    headers={"host": "x", "content-length": "5"},
    body=b"hello",
    closing=False,
)


def filled(data):
    inbox = MessageReader(max_body=100)
    inbox.feed(data)
    return inbox


def test_a_message_is_handed_out_once_its_last_byte_is_there():
    inbox = filled(BYTES[:-1])

    early = inbox.take()
    inbox.feed(BYTES[-1:])

    assert (early, inbox.take(), inbox.take()) == (None, MESSAGE, None)


@given(cuts=st.lists(st.integers(0, 2 * len(BYTES)), max_size=8))
def test_two_messages_come_out_whole_however_their_bytes_are_cut(cuts):
    stream = BYTES + BYTES
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut <= len(stream))})
    inbox, found = MessageReader(max_body=100), []

    for start, end in itertools.pairwise(edges):
        inbox.feed(stream[start:end])
        while (message := inbox.take()) is not None:
            found.append(message)

    assert (found, len(inbox)) == ([MESSAGE, MESSAGE], 0)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Transfer-Encoding: chunked", "411 Length Required"),
        (b"Transfer-Encoding: identity\r\nContent-Length: 5", "411 Length Required"),
        (b"Content-Length: 101", "413 Content Too Large"),
        (b"Content-Length: " + b"9" * 60, "413 Content Too Large"),
        (b"Content-Length: 1\r\nContent-Length: 2", "400 Bad Request"),
        (b"Content-Length: 5, 5", "400 Bad Request"),
        (b"Content-Length: +5", "400 Bad Request"),
        (b"Content-Length: 5x", "400 Bad Request"),
        (b"Content-Length: \xb2", "400 Bad Request"),
        (b"Content-Length:", "400 Bad Request"),
        (b"Content-Length : 5", "400 Bad Request"),
        (b"A: b\r\n folded", "400 Bad Request"),
        (b"A: b\nContent-Length: 5", "400 Bad Request"),
        (b"A: \0", "400 Bad Request"),
        (b": b", "400 Bad Request"),
        (b"Expect: tea", "417 Expectation Failed"),
        (b"\r\n".join([b"A: b"] * 101), "431 Request Header Fields Too Large"),
        (b"X: " + b"x" * 70_000, "431 Request Header Fields Too Large"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_status(head, status):
    inbox = filled(b"POST / HTTP/1.1\r\n" + head + b"\r\n\r\n")

    with pytest.raises(BadMessage) as refused:
        inbox.take()

    assert refused.value.status == status


def test_a_head_that_never_ends_is_refused():
    inbox = filled(b"POST / HTTP/1.1\r\nX: " + b"x" * 70_000)

    with pytest.raises(BadMessage, match="431 Request Header Fields Too Large"):
        inbox.take()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"POST /mutate",
        b"POST /mutate HTTP/2.0",
        b"PRI * HTTP/2.0",
        b"post /mutate HTTP/1.1",
        b"POST  /mutate HTTP/1.1",
        b"POST http://x/mutate HTTP/1.1",
        b"POST /mut\xe4te HTTP/1.1",
        b"POST /mutate HTTP/1.1 ",
    ],
)
def test_a_request_line_that_no_api_server_sends_is_refused(line):
    with pytest.raises(BadMessage, match="400 Bad Request"):
        filled(line + b"\r\nHost: x\r\n\r\n").take()


@given(data=st.binary(max_size=200))
def test_whatever_comes_is_a_message_or_refused_or_too_short(data):
    inbox = filled(data + b"\r\n\r\n")
    body = b""

    with contextlib.suppress(BadMessage):
        message = inbox.take()
        body = message.body if message else b""

    assert len(body) <= 100


@pytest.mark.parametrize(
    ("rest", "closing"),
    [
        (b"HTTP/1.1\r\n\r\n", False),
        (b"HTTP/1.1\r\nConnection: keep-alive, Close\r\n\r\n", True),
        (b"HTTP/1.0\r\n\r\n", True),
        (b"HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_a_client_says_whether_it_wants_a_second_answer(rest, closing):
    assert filled(b"GET / " + rest).take().closing is closing


def test_values_of_one_name_are_joined():
    message = filled(b"GET / HTTP/1.1\r\nA: 1 \r\nB:\t2\r\na: 3\r\n\r\n").take()

    assert message.headers == {"a": "1,3", "b": "2"}


def test_a_client_that_waits_for_leave_is_noticed():
    inbox = filled(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")

    first = inbox.take()

    assert (first, inbox.wants_continue) == (None, True)


def test_a_client_that_has_sent_all_waits_for_no_leave():
    inbox = filled(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")

    message = inbox.take()

    assert (message.body, inbox.wants_continue) == (b"abc", False)
