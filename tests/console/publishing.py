"""An observer's own thread, as far as the console has to do with it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OFTEN_SECONDS = 0.005


@contextmanager
def publishing(publish: Callable[[], object]) -> Iterator[None]:
    """Publish again and again, in a thread of its own."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(OFTEN_SECONDS):
            publish()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
