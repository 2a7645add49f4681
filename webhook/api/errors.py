"""Errors of calls to the API server, distinguished by what the caller has to do about them."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

_NO_RIGHT = re.compile(r' is forbidden: User "[^"]*" cannot ')


class ClusterError(Exception):
    """Base of all errors of calls to an API server."""


class Unreachable(ClusterError):  # noqa: N818 - names a condition of the cluster
    """No answer, or one that says to try again later; also: no configuration to connect with."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class Forbidden(ClusterError):  # noqa: N818
    """403: the user lacks a right, or admission refuses the object."""

    def __init__(self, resource: str, detail: str = "") -> None:
        super().__init__(resource, detail)
        self.resource = resource
        self.detail = detail

    def __str__(self) -> str:
        return self.detail or self.resource

    @property
    def is_lack_of_rights(self) -> bool:
        return _NO_RIGHT.search(str(self)) is not None


class NotServed(ClusterError):  # noqa: N818
    """404: the API server has no such resource, or no such object."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"not found: {self.resource}"


class Gone(ClusterError):  # noqa: N818
    """410: the resourceVersion or the continue token is too old; list again."""

    def __str__(self) -> str:
        return "the resourceVersion is too old"


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the causes in a Status: which field is wrong, and why."""

    field: str
    reason: str
    message: str = dataclasses.field(default="", compare=False)


class Refused(ClusterError):  # noqa: N818
    """The API server rejected the call (conflict, invalid, ...)."""

    def __init__(self, status: int, message: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.causes = causes

    @property
    def keeps_template(self) -> bool:
        """Return whether the Job's pod template may not change at all, not even its resources.

        Where resources may change, Kubernetes names ``spec.template.spec`` for the other fields:
        ``validatePodTemplateUpdate`` in its ``pkg/apis/batch/validation``.
        """
        return Cause("spec.template", "FieldValueInvalid") in self.causes

    def __str__(self) -> str:
        return f"{self.message} ({self.status})"
