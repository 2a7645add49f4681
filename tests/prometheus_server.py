"""A Prometheus that answers as a test says."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

MODEL = "NVIDIA A100-SXM4-80GB"


def vector(*series):
    """Return an answer with (labels, value) each."""
    found = [{"metric": labels, "value": [0, str(value)]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": found}}


def labels(pod, *, namespace="team", model=MODEL, part=""):
    return {"namespace": namespace, "pod": pod, "modelName": model, "GPU_I_PROFILE": part}


class Played:
    def __init__(self):
        self.queries = []
        self.headers = []
        self.answer = lambda query: vector()
        self.url = ""


@contextmanager
def prometheus():
    """Serve on loopback; ``answer`` takes a query, and returns JSON, bytes or (status, bytes)."""
    played = Played()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            played.queries.append(query)
            played.headers.append(dict(self.headers))
            content = played.answer(query)
            if callable(content):
                content(self)
                return
            status, content = content if isinstance(content, tuple) else (200, content)
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    played.url = f"http://127.0.0.1:{server.server_port}/prefix"
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
