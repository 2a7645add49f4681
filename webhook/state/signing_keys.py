"""The Secret with the keys that decisions are signed with, read and written.

``data.keys`` is JSON: ``since``, ``signing`` (an id) and ``keys``, each with id, made and secret.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

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
        found = json.loads(b64decode(text, validate=True))
        keys = tuple(
            SigningKey(
                id=str(each["id"]),
                made=int(each["made"]),
                secret=b64decode(each["secret"], validate=True),
            )
            for each in found["keys"]
        )
        since, signing = int(found["since"]), str(found["signing"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise FieldError(_PATH, "expected signing keys as they were written") from None
    if not keys or any(len(key.secret) < _SHORTEST_SECRET for key in keys):
        raise FieldError(_PATH, f"expected keys of at least {_SHORTEST_SECRET} bytes")
    return SigningKeys(keys=keys, signing=signing, since=since)


def to_secret(keys: SigningKeys) -> Mapping[str, str]:
    """Write ``data`` of the Secret."""
    found = {
        "since": keys.since,
        "signing": keys.signing,
        "keys": [
            {"id": each.id, "made": each.made, "secret": b64encode(each.secret).decode()}
            for each in keys.keys
        ],
    }
    return {"keys": b64encode(json.dumps(found).encode()).decode()}
