"""Whole messages out of bytes that come as they like."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.inbox import Inbox, Refused

MESSAGE = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"


def test_a_message_is_handed_out_once_its_last_byte_is_there():
    inbox = Inbox(max_body=100)
    inbox.feed(MESSAGE[:-1])

    early = inbox.take()
    inbox.feed(MESSAGE[-1:])

    assert (early, inbox.take(), inbox.take()) == (None, MESSAGE, None)


@given(cuts=st.lists(st.integers(0, 2 * len(MESSAGE)), max_size=8))
def test_two_messages_come_out_whole_however_their_bytes_are_cut(cuts):
    stream = MESSAGE + MESSAGE
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut <= len(stream))})
    inbox, found = Inbox(max_body=100), []

    for start, end in itertools.pairwise(edges):
        inbox.feed(stream[start:end])
        while (message := inbox.take()) is not None:
            found.append(message)

    assert (found, len(inbox)) == ([MESSAGE, MESSAGE], 0)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Transfer-Encoding: chunked", "411 Length Required"),
        (b"Content-Length: 101", "413 Content Too Large"),
        (b"Content-Length: 1\r\nContent-Length: 2", "400 Bad Request"),
        (b"X: " + b"x" * 70_000, "431 Request Header Fields Too Large"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_status(head, status):
    inbox = Inbox(max_body=100)
    ended = b"" if status.startswith("431") else b"\r\n\r\n"
    inbox.feed(b"POST / HTTP/1.1\r\n" + head + ended)

    with pytest.raises(Refused) as refused:
        inbox.take()

    assert refused.value.status == status


def test_a_client_that_waits_for_leave_is_noticed():
    inbox = Inbox(max_body=100)
    inbox.feed(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")

    first = inbox.take()

    assert (first, inbox.wants_continue) == (None, True)
