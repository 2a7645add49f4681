"""The one protocol for reading and writing objects of an API server, and the errors of its calls.

``Client`` implements it. Errors are distinguished by what the caller has to do about them. Which
API server is meant, and as whom it is asked, is what kubectl's connection flags say.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Protocol


class KubernetesApi(Protocol):
    """Objects are parsed JSON; each call raises a ``ClusterError`` if it fails."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]: ...

    def post(self, path: str, body: object) -> Mapping[str, Any]: ...

    def put(self, path: str, body: object) -> Mapping[str, Any]: ...

    def patch(self, path: str, body: object) -> Mapping[str, Any]: ...

    def apply(self, path: str, body: object, *, manager: str) -> Mapping[str, Any]:
        """Apply fields for a field manager, also those that others have."""

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Mapping[str, Any]: ...

    def watch(
        self, path: str, params: Mapping[str, str], *, read_seconds: float
    ) -> Iterator[Mapping[str, Any]]:
        """Yield watch events until the server ends the watch.

        After *read_seconds* without data ``Unreachable`` is raised.
        """

    def kueue_version(self) -> str | None:
        """Return the served version of Kueue's API, as ``v1beta2``.

        None: none that is understood.
        """

    def forget_versions(self) -> None:
        """Discover Kueue's version again at the next call."""


_NO_RIGHT = re.compile(r' is forbidden: User "[^"]*" cannot ')


class ClusterError(Exception):
    """Base of all errors of calls to an API server."""

    is_conflict = False
    """The object has changed meanwhile, or one of its name is there already."""


class Unreachable(ClusterError):  # noqa: N818 - names a condition of the cluster
    """No answer, an answer that says to try again later, or no configuration to connect with."""

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


class TooLarge(ClusterError):  # noqa: N818
    """The page of a list has more bytes than are read at once; ask for fewer objects."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"too large a page: {self.resource}"


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
        self.is_conflict = status == HTTPStatus.CONFLICT

    @property
    def keeps_template(self) -> bool:
        """Return whether the Job's pod template may not change at all, not even its resources.

        Where resources may change, Kubernetes names ``spec.template.spec`` for the other fields:
        ``validatePodTemplateUpdate`` in its ``pkg/apis/batch/validation``.
        """
        return Cause("spec.template", "FieldValueInvalid") in self.causes

    def __str__(self) -> str:
        return f"{self.message} ({self.status})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """A context of a kubeconfig, and a user to impersonate; empty: what kubectl takes then."""

    kubeconfig: str = ""
    """One file, or several as in KUBECONFIG."""
    context: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()

    def as_oneself(self) -> ClusterAccess:
        """Return the same cluster without impersonation."""
        return replace(self, user="", groups=())

    def impersonation(self) -> Iterator[tuple[str, str]]:
        """Yield the headers that impersonate: one for each group."""
        if self.user:
            yield "Impersonate-User", self.user
        for group in self.groups:
            yield "Impersonate-Group", group
