"""The Secret with the keys that decisions are signed with: read, written, and kept for readers.

``data.keys`` is JSON: ``since``, ``signing`` (an id) and ``keys``, each with id, made and secret.
"""

from __future__ import annotations

import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.api.resources import SIGNING_KEYS, ReadObject
from webhook.api.watch import WatchUpdate
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.signatures import SigningKey, SigningKeys

_PATH: Final = "data.keys"
_SHORTEST_SECRET: Final = 16


def read_keys(source: Mapping[str, Any]) -> SigningKeys | None:
    """Read the keys; None: the Secret is still empty.

    Raises:
        FieldError: what it holds is damaged. The error does not quote it.

    """
    text = fields.text(fields.mapping(source, "data", ""), "keys", "data")
    if not text:
        return None
    try:
        content = json.loads(b64decode(text, validate=True))
        keys = tuple(
            SigningKey(
                id=str(key["id"]),
                made=int(key["made"]),
                secret=b64decode(key["secret"], validate=True),
            )
            for key in content["keys"]
        )
        since, signing = int(content["since"]), str(content["signing"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise FieldError(_PATH, "expected signing keys as they were written") from None
    if not keys or any(len(key.secret) < _SHORTEST_SECRET for key in keys):
        raise FieldError(_PATH, f"expected keys of at least {_SHORTEST_SECRET} bytes")
    return SigningKeys(keys=keys, signing=signing, since=since)


def to_secret(keys: SigningKeys) -> Mapping[str, str]:
    """Return ``data`` of the Secret."""
    content = {
        "since": keys.since,
        "signing": keys.signing,
        "keys": [
            {"id": key.id, "made": key.made, "secret": b64encode(key.secret).decode()}
            for key in keys.keys
        ],
    }
    return {"keys": b64encode(json.dumps(content).encode()).decode()}


_WAIT_SECONDS: Final = 10.0


class KeyRing:
    """The current keys.

    Readers wait until it is known whether there are any, to verify marks by them.
    """

    def __init__(self) -> None:
        self._keys: SigningKeys | None = None
        self._known = threading.Event()

    def take(self, message: WatchUpdate) -> None:
        """Apply a watch update of the Secret; those of other kinds are ignored."""
        if message.kind != SIGNING_KEYS or (message.error and not message.unreadable):
            return
        entries = message.entries or ()
        if message.event is not None and message.event[0] != "DELETED":
            entries = (message.event[1],)
        if message.entries is not None or message.event is not None or message.unreadable:
            self._keys = next((entry.value for entry in entries), None)
            self._known.set()

    def keys(self) -> SigningKeys | None:
        """Return the keys; None: there are none, or none could be read within 10 s."""
        self._known.wait(_WAIT_SECONDS)
        return self._keys

    def reading(
        self, read_with: Callable[[str, Mapping[str, Any], SigningKeys | None], ReadObject]
    ) -> Callable[[str, Mapping[str, Any]], ReadObject]:
        """Return a reader of objects that uses the keys current at each read."""
        return lambda kind, source: read_with(kind, source, self.keys())
