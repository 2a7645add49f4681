"""A whole message through a WSGI application, and its answer as bytes."""

import re

import pytest

from webhook.server.gunicorn_app import WAITED, failure, respond
from webhook.server.http1 import HttpMessage


def message(**changed):
    given = {
        "method": "POST",
        "path": "/mutate",
        "query": "timeout=2s",
        "headers": {"host": "a.b.svc", "content-type": "application/json", "x-one": "1"},
        "body": b"hello",
        "closing": False,
    }
    return HttpMessage(**given | changed)


def answer(application, sent=None, *, close=False):
    answered = respond(application, sent or message(), waited_seconds=0.5, close=close)
    return re.sub(rb"Date: [^\r]+ GMT\r\n", b"", answered)


def constant(status, headers, *chunks):
    def application(_environ, start_response):
        start_response(status, headers)
        return chunks

    return application


def test_the_application_gets_the_message_as_wsgi_says():
    seen = {}

    def application(environ, start_response):
        seen.update(environ)
        start_response("200 OK", [])
        return [environ["wsgi.input"].read()]

    answered = answer(application, message(path="/a%20b"))

    assert answered == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    expected = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/a b",
        "QUERY_STRING": "timeout=2s",
        "CONTENT_LENGTH": "5",
        "CONTENT_TYPE": "application/json",
        "HTTP_HOST": "a.b.svc",
        "HTTP_X_ONE": "1",
        WAITED: 0.5,
    }
    assert {key: seen[key] for key in expected} == expected


def test_a_name_with_an_underscore_passes_for_no_other():
    seen = {}

    def application(environ, start_response):
        seen.update(environ)
        start_response("200 OK", [])
        return ()

    answer(application, message(headers={"x_one": "2", "x-one": "1"}))

    assert seen["HTTP_X_ONE"] == "1"


def test_length_and_connection_are_ours_to_say():
    headers = [("Content-Length", "99"), ("Connection", "keep-alive"), ("A", "b")]

    answered = answer(constant("200 OK", headers, b"one ", b"two"), close=True)

    assert answered == (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nA: b\r\nContent-Length: 7\r\n\r\none two"
    )


def test_a_head_gets_no_body():
    answered = answer(constant("200 OK", [], b"body"), message(method="HEAD"))

    assert answered == b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


def test_the_answer_is_dated():
    answered = respond(constant("200 OK", []), message(), waited_seconds=0, close=False)

    assert re.search(
        rb"\r\nDate: [A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [0-9:]{8} GMT\r\n", answered
    )


def test_what_the_application_opened_is_closed_even_when_it_fails():
    closed = []

    class Body:
        def __iter__(self):
            raise ZeroDivisionError

        def close(self):
            closed.append(True)

    def application(_environ, start_response):
        start_response("200 OK", [])
        return Body()

    with pytest.raises(ZeroDivisionError):
        answer(application)

    assert closed == [True]


def test_a_failure_says_its_status_and_no_more():
    answered = re.sub(rb"Date: [^\r]+\r\n", b"", failure("400 Bad Request"))

    assert answered == b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
