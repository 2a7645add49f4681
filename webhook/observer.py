"""The child process that watches the cluster and publishes what has changed over a pipe.

``python -m webhook.observer SETTINGS`` (JSON of ``Settings``; else KUEUE_FALLBACK_SETTINGS) writes
``Update`` frames to its standard output, log lines to standard error, and ends when its standard
input or output closes.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO, NoReturn

from webhook.cluster.client import Client
from webhook.cluster.feed import Feed
from webhook.cluster.pipe import Certificates, write_update
from webhook.cluster.resources import watched
from webhook.cluster.shards import Reader
from webhook.cluster.watch import Follower, Message
from webhook.decide.settle import Settler
from webhook.foresight import Foreseen, Foresight
from webhook.settings import Settings

COALESCE_SECONDS = 0.005
"""Changes that come together are published together."""
HEARTBEAT_SECONDS = 0.5
NICENESS = 5
"""Where there is too little CPU for all, the server answers first and the state gets older."""


def main() -> NoReturn:
    settings = Settings.model_validate_json(
        sys.argv[1] if len(sys.argv) > 1 else os.environ.get("KUEUE_FALLBACK_SETTINGS", "{}")
    )
    os.nice(NICENESS)
    frames = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Nothing else may end up between two frames.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.excepthook = _end_with
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.setswitchinterval(0.0005)
    observe(settings, frames)


def observe(settings: Settings, frames: BinaryIO) -> NoReturn:
    """Follow everything and publish, until the pipe closes."""
    resources = watched(namespace=settings.namespace, kueue_namespace=settings.kueue_namespace)
    messages: queue.SimpleQueue[Message | Foreseen] = queue.SimpleQueue()
    client = Client(settings.kubeconfig)
    for resource in resources:
        follower = Follower(
            resource,
            client,
            messages.put,
            clock=time.monotonic,
            sleep=time.sleep,
            uniform=random.uniform,
        )
        threading.Thread(target=follower.run, name=resource.kind, daemon=True).start()
    records = Reader(
        settings.namespace,
        client,
        messages.put,
        clock=time.monotonic,
        sleep=time.sleep,
        uniform=random.uniform,
    )
    threading.Thread(target=records.run, name="run times", daemon=True).start()
    feed = Feed(resources, time.monotonic(), settle=Settler())
    foresight = Foresight(messages.put)
    foresight.start()
    try:
        _publish(feed, messages, frames, foresight, certificates=_certificates(settings))
    except BrokenPipeError:
        os._exit(0)


def _certificates(settings: Settings) -> Callable[[], Certificates | None]:
    """Start looking after certificates, where that is ours; return what asks for news of them."""
    if settings.certificates == "files":
        return lambda: None
    from webhook.certify import Certifier  # noqa: PLC0415 - cryptography for those who need it

    certifier = Certifier(settings, _log)
    certifier.start()
    return certifier.news


def _publish(
    feed: Feed,
    messages: queue.SimpleQueue[Message | Foreseen],
    frames: BinaryIO,
    foresight: Foresight,
    *,
    certificates: Callable[[], Certificates | None],
) -> NoReturn:
    frozen = False
    while True:
        _gather(feed, messages, foresight)
        now, unix = time.monotonic(), time.time()
        update = feed.update(now, unix)
        foresight.offer(feed, unix)
        forecasts_as_of = foresight.as_of(now)
        update = replace(update, forecasts_as_of=forecasts_as_of, certificates=certificates())
        write_update(frames, update)
        if feed.synced and not frozen:
            _settle()
            frozen = True


def _gather(
    feed: Feed, messages: queue.SimpleQueue[Message | Foreseen], foresight: Foresight
) -> None:
    """Take all messages of the next few milliseconds; none: return for a heartbeat."""
    wait = HEARTBEAT_SECONDS
    until = time.monotonic() + wait
    while wait > 0:
        try:
            message = messages.get(timeout=wait)
        except queue.Empty:
            return
        if isinstance(message, Foreseen):
            foresight.take(message, feed)
            return
        for line in feed.take(message):
            _log(line)
        if message.entries is not None or message.event is not None:
            until = min(until, time.monotonic() + COALESCE_SECONDS)
        wait = until - time.monotonic()


def _settle() -> None:
    """Take what the first sync has built out of the collector's sight: it stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _log(text: str) -> None:
    line = json.dumps({"ts": round(time.time(), 3), "process": "observer", "msg": text})
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the server passes it on


def _end_with(failure: threading.ExceptHookArgs) -> None:
    """Let the server start us anew rather than go on with one resource unwatched."""
    threading.__excepthook__(failure)
    os._exit(70)


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
