"""Signatures that tell this installation's own decisions and marks from anybody else's.

HMAC-SHA256 (RFC 2104), cut to 128 bits, with keys that servers and controller share. What is
signed names the namespace, so that nothing signed in one is believed in another.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Final

_BYTES: Final = 16
_HEAD: Final = ',"signature":"'
_TAIL: Final = '"}'
_LENGTH: Final = len(urlsafe_b64encode(bytes(_BYTES)).rstrip(b"="))
_ADDED: Final = len(_HEAD) + _LENGTH + len(_TAIL)
_BETWEEN: Final = "\N{INFORMATION SEPARATOR THREE}"
"""No name, class or JSON text has it."""
SEPARATOR: Final = "."
"""Between a decision's id and the signature of the marks that carry it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    id: str
    made: int
    """Seconds since 1970."""
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeys:
    """The keys of an installation; each is good for verifying, one for signing."""

    keys: tuple[SigningKey, ...]
    """The oldest first, at least one."""
    signing: str
    """The id of the one that signs."""
    since: int
    """Seconds since 1970: objects that were created earlier need no signature."""

    @property
    def current(self) -> SigningKey:
        """Return the key that signs; the newest where the one named is not there."""
        named = (key for key in self.keys if key.id == self.signing)
        return next(named, self.keys[-1])


def signed_record(text: str, namespace: str, keys: SigningKeys | None) -> str:
    """Add ``signature`` as the last key of a decision, a JSON object as compact text.

    Without keys it stays unsigned.
    """
    if keys is None:
        return text
    signature = _signature(keys.current, "decision", namespace, text)
    return f"{text[:-1]}{_HEAD}{signature}{_TAIL}"


def is_own_record(text: str, namespace: str, keys: SigningKeys | None, *, created: float) -> bool:
    """Return whether a decision is this installation's own, to be undone and believed.

    *created*: when the object it stands on was created, in seconds since 1970, by the API server;
    infinity while it is being created. Without keys all are believed.
    """
    if keys is None or created < keys.since:
        return True
    if text[-_ADDED : -_ADDED + len(_HEAD)] != _HEAD or not text.endswith(_TAIL):
        return False
    body = f"{text[:-_ADDED]}}}"
    signature = text[-_LENGTH - len(_TAIL) : -len(_TAIL)]
    return _is_signature(signature, keys, "decision", namespace, body)


def signed_words(text: str, namespace: str, keys: SigningKeys | None) -> str:
    """Add a signature as the last word of a text. Without keys it stays unsigned."""
    if keys is None:
        return text
    return f"{text} {_signature(keys.current, 'words', namespace, text)}"


def own_words(text: str, namespace: str, keys: SigningKeys | None, *, created: float) -> str | None:
    """Return what ``signed_words`` was given; None: it is not this installation's own.

    *created* as for ``is_own_record``: of objects as old as that the whole text is returned.
    """
    if keys is None or created < keys.since:
        return text
    words, _, signature = text.rpartition(" ")
    return words if _is_signature(signature, keys, "words", namespace, words) else None


def signed_id(decision_id: str, namespace: str, marks: tuple[str, ...], keys: SigningKeys) -> str:
    """Return a decision's id with a signature of the *marks* that the pod template gets too."""
    plain = unsigned_id(decision_id)
    signature = _signature(keys.current, "marks", namespace, plain, *marks)
    return f"{plain}{SEPARATOR}{signature}"


def unsigned_id(decision_id: str) -> str:
    return decision_id.partition(SEPARATOR)[0]


def are_own_marks(
    decision_id: str,
    namespace: str,
    marks: tuple[str, ...],
    keys: SigningKeys | None,
    *,
    created: float,
) -> bool:
    """Return whether marks on a pod template are this installation's own; see ``is_own_record``."""
    if keys is None or created < keys.since:
        return True
    plain, _, signature = decision_id.partition(SEPARATOR)
    return _is_signature(signature, keys, "marks", namespace, plain, *marks)


def _is_signature(signature: str, keys: SigningKeys, *signed: str) -> bool:
    if len(signature) != _LENGTH or not signature.isascii():
        return False
    # Compared in constant time: who may create Jobs may try any number of signatures. The newest
    # key comes first, as most of what is read was signed by it.
    return any(
        hmac.compare_digest(signature, _signature(key, *signed)) for key in reversed(keys.keys)
    )


def _signature(key: SigningKey, *signed: str) -> str:
    # JSON from the API server may hold half of a surrogate pair, which has no UTF-8.
    message = _BETWEEN.join(signed).encode(errors="surrogatepass")
    digest = hmac.digest(key.secret, message, "sha256")[:_BYTES]
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
