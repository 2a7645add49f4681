"""Strategies: what may come to the webhook's port, from the API server or from anyone else."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.objects import hostile_jobs
from tests.fuzz.values import anything, dumped, mutated, odd_json
from tests.reviews import light_job, review

LARGE: Final = 3_000_000
"""Bytes of a body that the API server might still send."""
_HEADS: Final = (
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: \xc2\xb2\r\n\r\n",
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /mutate?timeout=" + b"9" * 5_000 + b"s HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /%6dutate HTTP/1.0\r\n\r\n",
    b"POST /mutate HTTP/1.1\nContent-Length: 0\n\n",
    b"POST /mutate HTTP/1.1\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    b"POST /mutate HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
    b"POST /mutate HTTP/1.1\r\n" + b"A: a\r\n" * 500 + b"\r\n",
    b"GET / HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
    b"TRACE * HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\xff\xff" + b"\x00" * 100,
    b"\x00" * 10_000,
    b"\r\n" * 1_000,
    b"POST /mutate",
    b"",
)
_SHAPES: Final = (
    lambda count: b"[" + b"[]," * (count // 3) + b"[]]",
    lambda count: b"[" + (b"[" * 120 + b"]" * 120 + b",") * (count // 241) + b"1]",
    lambda count: b"[" + b"1," * (count // 2) + b"1]",
    lambda count: b"[" + (b"9" * 4_300 + b",") * (count // 4_301) + b"1]",
    lambda count: b'"' + b"{[" * (count // 2) + b'"',
    lambda count: b'"' + b"\\u0041" * (count // 6) + b'"',
    lambda count: b"{" + b",".join(b'"%d":1' % n for n in range(count // 12)) + b"}",
    lambda count: b'{"a":' * (count // 6) + b"1" + b"}" * (count // 6),
    lambda count: b"9" * count,
)


@st.composite
def _reviews(draw: st.DrawFn) -> bytes:
    """Draw a review that says something else in a few places."""
    operation = draw(st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]))
    job = draw(hostile_jobs() | st.just(light_job()))
    old = draw(st.none() | hostile_jobs())
    sent = review(job, operation=operation, old=old, namespace="tenant", dry_run=True)
    return dumped(draw(mutated(sent, anything | odd_json))).encode(errors="surrogatepass")


@st.composite
def _shaped(draw: st.DrawFn) -> bytes:
    """Draw a valid review but for one value of a hostile shape, up to as large as there may be."""
    value = draw(st.sampled_from(_SHAPES))(draw(st.sampled_from([1_000, 100_000, LARGE])))
    place = draw(st.sampled_from(["object", "oldObject", "x"]))
    sent: dict[str, Any] = review(light_job(), dry_run=True)
    sent["request"][place] = {"x": "@"} if draw(st.booleans()) else "@"
    return json.dumps(sent).encode().replace(b'"@"', value, 1)


@st.composite
def _cut(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    body = draw(bodies)
    return body[: draw(st.integers(0, len(body)))]


_bodies = st.one_of(
    _reviews(),
    _reviews(),
    _shaped(),
    _cut(_reviews()),
    st.binary(max_size=200),
    anything.map(lambda value: dumped(value).encode(errors="surrogatepass")),
)


@st.composite
def _posts(draw: st.DrawFn) -> bytes:
    body = draw(_bodies)
    path = draw(st.sampled_from([b"/mutate", b"/mutate", b"/mutate?timeout=2s", b"/other"]))
    wrong = draw(st.sampled_from([0, 0, 0, 0, 5, -1]))
    length = b"%d" % max(0, len(body) + wrong)
    return (
        b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n" + body
    )


messages = st.one_of(_posts(), _posts(), _posts(), st.sampled_from(_HEADS))
"""All that is sent over one connection."""
