"""The Secret with the keys that decisions are signed with: made, rotated, and read.

``data.keys`` is JSON: ``since``, ``signing`` (an id) and ``keys``, each with id, made and secret. A
new key signs only after every server has had time to read it, and an old one goes on verifying, so
that no decision is lost when the key changes. Deleting the Secret revokes all keys.
"""

from __future__ import annotations

import json
import secrets
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.resources import SIGNING_KEYS, ReadObject
from webhook.api.watch import WatchUpdate
from webhook.model import fields
from webhook.model.faults import Attention
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
        if not self._known.is_set():
            self._known.wait(_WAIT_SECONDS)
        return self._keys

    def reading(
        self, read_with: Callable[[str, Mapping[str, Any], SigningKeys | None], ReadObject]
    ) -> Callable[[str, Mapping[str, Any]], ReadObject]:
        """Return a reader of objects that uses the keys current at each read."""
        return lambda kind, source: read_with(kind, source, self.keys())


KEEP_SECONDS: Final = 30.0
"""Between two reads of the Secret."""
RENEW_SECONDS: Final = 90 * 86_400
OVERLAP_SECONDS: Final = 120
"""From the publication of a key until it signs; and for so long after the first key unsigned
decisions are accepted, as a server may have decided before it knew the key."""
MOST_KEYS: Final = 5
"""Beyond, the oldest is dropped, and what it signed a year ago does not count any more."""
_SECRET_BYTES: Final = 32


def new_key(unix: float) -> SigningKey:
    return SigningKey(
        id=secrets.token_hex(4), made=int(unix), secret=secrets.token_bytes(_SECRET_BYTES)
    )


def renewed(
    keys: SigningKeys | None, unix: float, make: Callable[[float], SigningKey] = new_key
) -> SigningKeys:
    """Return the keys as they should be now; the very same object if nothing is due.

    *unix* is the current time in seconds since 1970.
    """
    if keys is None:
        first = make(unix)
        return SigningKeys(keys=(first,), signing=first.id, since=int(unix) + OVERLAP_SECONDS)
    newest = keys.keys[-1]
    if newest.made + RENEW_SECONDS <= unix:
        return replace(keys, keys=(*keys.keys, make(unix))[-MOST_KEYS:])
    if keys.signing != newest.id and newest.made + OVERLAP_SECONDS <= unix:
        return replace(keys, signing=newest.id)
    return keys


class KeyKeeper:
    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        is_leader: Callable[[], bool],
        unix: Callable[[], float],
    ) -> None:
        """Keep the Secret in *namespace*; *is_leader* is called before each write."""
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/secrets"
        self._is_leader = is_leader
        self._unix = unix
        self._next = 0.0
        self._said = ""

    def step(self, now: float) -> tuple[str, ...]:
        """Rotate keys that are due, if we lead; return the lines to log. *now* is monotonic."""
        if now < self._next or not self._is_leader():
            return ()
        self._next = now + KEEP_SECONDS
        try:
            line = self._keep()
        except ClusterError as error:
            line = Attention(f"signing keys: {error}")
        said, self._said = self._said, line
        return (line,) if line and line != said else ()

    def _keep(self) -> str:
        damage = change = ""

        def rotate(source: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
            nonlocal damage, change
            before, damage = None, ""
            try:
                before = read_keys(source or {})
            except FieldError as error:
                damage = Attention(f"signing keys: {error}; new ones are made")
            after = renewed(before, self._unix())
            if after is before:
                return None
            change = f"signing keys: {_change(before, after)}"
            made = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"} if not source else {}
            return {**made, "metadata": {"name": SIGNING_KEYS}, "data": to_secret(after)}

        is_written = published.update(
            self._transport, self._path, SIGNING_KEYS, rotate, may_write=self._is_leader
        )
        return damage or (change if is_written else "")


def _change(before: SigningKeys | None, after: SigningKeys) -> str:
    if before is None:
        return f"made key {after.signing}; decisions without a signature are no longer believed"
    if after.signing != before.signing:
        return f"key {after.signing} signs from now on"
    return f"made key {after.keys[-1].id}, which will sign in {OVERLAP_SECONDS} s"
