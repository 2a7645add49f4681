"""The signing keys as of now, handed to the threads that read Workloads and Jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.api.resources import SIGNING_KEYS, WORKLOADS, Entry, Resource
from webhook.api.watch import Message
from webhook.model.signatures import SigningKeys
from webhook.state import readers

_WAIT_SECONDS: Final = 10.0


def proven(resources: Iterable[Resource], ring: KeyRing) -> tuple[Resource, ...]:
    """Let Workloads be read with the keys of a *ring*."""
    read_with = ring.reading(readers.read)
    return tuple(
        replace(each, read=read_with) if each.kind == WORKLOADS else each for each in resources
    )


class KeyRing:
    """Who reads waits until it is known whether there are keys: marks would else stay unproven."""

    def __init__(self) -> None:
        self._keys: SigningKeys | None = None
        self._known = threading.Event()

    def take(self, message: Message) -> None:
        """Take over what the follower of the Secret has found out; others' messages do nothing."""
        if message.kind != SIGNING_KEYS or (message.error and not message.unreadable):
            return
        entries = message.entries or ()
        if message.event is not None and message.event[0] != "DELETED":
            entries = (message.event[1],)
        if message.entries is not None or message.event is not None or message.unreadable:
            self._keys = next((each.value for each in entries), None)
            self._known.set()

    def keys(self) -> SigningKeys | None:
        """Return the keys; None: there are none, or nobody could be asked for a while."""
        self._known.wait(_WAIT_SECONDS)
        return self._keys

    def reading(
        self, read_with: Callable[[str, Mapping[str, Any], SigningKeys | None], Entry]
    ) -> Callable[[str, Mapping[str, Any]], Entry]:
        """Give a reader of objects the keys as they are when it reads."""
        return lambda kind, source: read_with(kind, source, self.keys())
