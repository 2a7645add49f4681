"""A small HTTP server in the API server's place: it answers from a function and remembers."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml


@contextlib.contextmanager
def serving(answer, tmp_path, *, heard=None, **context):
    """Serve `answer(method, path, body) -> (status, headers, object)`; yield a kubeconfig.

    The headers of each call are appended to *heard*, if there is one.
    """

    class Handler(BaseHTTPRequestHandler):
        def respond(self):
            if heard is not None:
                heard.append(self.headers)
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            status, headers, found = answer(self.command, self.path, body)
            content = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond  # noqa: N815 - the base class calls them so

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield _kubeconfig(tmp_path / "kubeconfig", server.server_port, context)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _kubeconfig(path, port, context):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)
