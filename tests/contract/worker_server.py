"""Serves one constant answer under the worker, for the tests of the worker."""

import runpy
import sys

from gunicorn.app.base import BaseApplication

from webhook.tls import LiveContext


def answer(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


class Server(BaseApplication):
    def __init__(self, port, certificate, key):
        self.port, self.certificate, self.key = port, certificate, key
        self.live = LiveContext(certificate, key, on_error=print)
        super().__init__()

    def load_config(self):
        for name, value in runpy.run_path("webhook/gunicorn.conf.py").items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)
        self.cfg.set("bind", f"127.0.0.1:{self.port}")
        self.cfg.set("threads", 2)
        self.cfg.set("keepalive", 120)
        self.cfg.set("certfile", self.certificate)
        self.cfg.set("keyfile", self.key)
        self.cfg.set("ssl_context", lambda _conf, _default: self.live())

    def load(self):
        return answer


if __name__ == "__main__":
    Server(*sys.argv[1:]).run()
