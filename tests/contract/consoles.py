"""The console served on a port of loopback, and how tests ask it."""

import contextlib
import http.client
import json

from hack.waiting import WAIT_SECONDS
from tests.servers import running
from webhook.console.access import Everybody
from webhook.console.console import console_server
from webhook.console.routes import LOOPBACK, ConsoleSources, create_app


@contextlib.contextmanager
def served(view, *, rights_of=lambda *_: Everybody(), context=None, **rest):
    """Serve the console on a port of loopback."""
    bugs = []
    sources = ConsoleSources(view=view, **rest)
    app = create_app(sources, rights_of, hosts=LOOPBACK, on_error=bugs.append)
    server = console_server("127.0.0.1:0", lambda: app, context)
    server.on_error = bugs.append
    with running(server) as port:
        yield port
    assert bugs == []


def connection_to(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)


def ask(port, path, method="GET", **headers):
    with contextlib.closing(connection_to(port)) as client:
        client.request(method, path, headers=headers)
        response = client.getresponse()
        return response, response.read()


def send(port, path, body, content_type="application/json"):
    with contextlib.closing(connection_to(port)) as client:
        client.request("POST", path, body=body, headers={"Content-Type": content_type})
        response = client.getresponse()
        return response.status, json.loads(response.read())


def read(port, path):
    response, body = ask(port, path)
    return response.status, json.loads(body)
