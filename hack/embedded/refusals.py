"""What an API server answers where it refuses: errors that are Kubernetes' ``Status`` objects."""

import http
from collections.abc import Sequence
from typing import Any, Final

from hack.api import Object
from hack.embedded.served_kinds import ServedKind

MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class RefusedCall(Exception):  # noqa: N818 - Kubernetes calls it a Status
    """The call is answered with this ``Status``."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def _of(kind: ServedKind, name: str) -> dict[str, str]:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: ServedKind, name: str) -> RefusedCall:
    message = f'{kind.full_name} "{name}" not found'
    return RefusedCall(http.HTTPStatus.NOT_FOUND, "NotFound", message, **_of(kind, name))


def no_such_path() -> RefusedCall:
    message = "the server could not find the requested resource"
    return RefusedCall(http.HTTPStatus.NOT_FOUND, "NotFound", message)


def already_exists(kind: ServedKind, name: str) -> RefusedCall:
    message = f'{kind.full_name} "{name}" already exists'
    return RefusedCall(http.HTTPStatus.CONFLICT, "AlreadyExists", message, **_of(kind, name))


def conflict(kind: ServedKind, name: str, why: str = "") -> RefusedCall:
    why = why or MODIFIED
    message = f'Operation cannot be fulfilled on {kind.full_name} "{name}": {why}'
    return RefusedCall(http.HTTPStatus.CONFLICT, "Conflict", message, **_of(kind, name))


def expired(message: str) -> RefusedCall:
    return RefusedCall(http.HTTPStatus.GONE, "Expired", message)


def invalid(kind: ServedKind, name: str, causes: Sequence[tuple[str, str]]) -> RefusedCall:
    """Refuse an object for (field, message) of each cause."""
    texts = ", ".join(f"{field}: Invalid value: {message}" for field, message in causes)
    message = f'{kind.kind}{"." if kind.group else ""}{kind.group} "{name}" is invalid: {texts}'
    listed = [
        {"reason": "FieldValueInvalid", "message": f"Invalid value: {message}", "field": field}
        for field, message in causes
    ]
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": listed}
    return RefusedCall(http.HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, **details)


def bad_request(message: str) -> RefusedCall:
    return RefusedCall(http.HTTPStatus.BAD_REQUEST, "BadRequest", message)


def forbidden(message: str) -> RefusedCall:
    return RefusedCall(http.HTTPStatus.FORBIDDEN, "Forbidden", message)


def failed(message: str) -> RefusedCall:
    return RefusedCall(http.HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message)
