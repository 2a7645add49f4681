"""The page as a browser gets it: a server with its headers, and a Chromium to look at it."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from hack import chromium
from hack.waiting import WAIT_SECONDS
from tests.console import views
from webhook.console import page, page_filters, routes

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}


PATIENCE_MILLISECONDS = WAIT_SECONDS * 1000
# The group has one worker run them all, so that one browser starts.
GROUP = pytest.mark.xdist_group("browser")


class Site:
    """Serves whatever `view` is at the time; with `is_down` it answers errors."""

    def __init__(self):
        self.view = views.large()
        self.story = None
        """With one, the page of this Job is all that is served."""
        self.is_down = False
        self.paths = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.paths.append(self.path)
                split = urlsplit(self.path)
                nonce = routes.new_nonce()
                asked = page_filters.read_filters(dict(parse_qsl(split.query)))
                body = (site.job(nonce) or page.render(site.view, nonce, asked)).encode()
                is_there = split.path in ("/", "/job")
                self.send_response(503 if site.is_down else 200 if is_there else 404)
                for name, value in routes.headers(nonce).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_line):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def job(self, nonce):
        return page.render_job(self.view, self.story, nonce) if self.story else ""

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def refreshed(window):
    """Wait until an answer to the page's own asking is shown."""
    shown = window.page.locator("#as-of time").get_attribute("datetime")
    expect(window.page.locator("#as-of time")).not_to_have_attribute("datetime", shown)


class Window:
    """A page in its own context, with all that went wrong and all that it asked for."""

    def __init__(self, context, site):
        self.page = context.new_page()
        self.complaints = []
        self.requests = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(site.address)

    def _heard(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture(scope="package")
def browser():
    try:
        program = chromium.ensure()
    except chromium.NoChromiumError as error:
        pytest.skip(str(error))
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    with sync_playwright() as play:
        started = play.chromium.launch(
            executable_path=program,
            env=chromium.environment(program),
            args=["--disable-dev-shm-usage"],
        )
        yield started
        started.close()


@pytest.fixture
def site():
    running = Site()
    yield running
    running.close()


@pytest.fixture
def open_window(browser, site):
    """Return a function that opens the site in a window with the given traits."""
    contexts = []

    def opened(viewport=DESK, color_scheme="light", **traits):
        context = browser.new_context(viewport=viewport, color_scheme=color_scheme, **traits)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        contexts.append(context)
        return Window(context, site)

    yield opened
    for context in contexts:
        context.close()
