"""What comes to no answer of the application is counted by what went wrong."""

import json

from tests.contract.conftest import receive_all

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


def counts(server):
    status, body = server.post(b"unanswered")
    assert status == 200
    return json.loads(body)


def test_each_kind_of_failure_is_counted_once(server):
    before = counts(server)
    plain = server.dial()
    plain.sendall(HEAD + b"\r\n")
    receive_all(plain)
    for message in (
        HEAD + b"Content-Length: 4000000\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Content-Length: 10\r\n\r\nhalf",
    ):
        connection = server.connect()
        connection.sendall(message)
        receive_all(connection)
    server.post(b"fail on purpose")

    after = counts(server)

    new = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    expected = {"handshake": 1, "413": 1, "411": 1, "unfinished": 1, "500": 1}
    assert {reason: count for reason, count in new.items() if count} == expected
