"""What can go wrong between us and the API server, told apart by what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass


class ClusterError(Exception):
    """Any of the below."""


class Unreachable(ClusterError):  # noqa: N818 - names a condition of the cluster
    """No answer, or one that asks to try again later; also: nowhere to connect to."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class Forbidden(ClusterError):  # noqa: N818
    def __init__(self, resource: str, detail: str = "") -> None:
        super().__init__(resource, detail)
        self.resource = resource
        self.detail = detail

    def __str__(self) -> str:
        return self.detail or self.resource


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
    """What is wrong with one field, of the causes in a Status."""

    field: str
    reason: str


class Refused(ClusterError):  # noqa: N818
    """The API server understood and said no (conflict, invalid, ...)."""

    def __init__(self, status: int, message: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.causes = causes

    @property
    def keeps_template(self) -> bool:
        """Tell whether a Job's pod template may not change at all, not even what pods ask for.

        Where it may, Kubernetes names ``spec.template.spec`` for what else would change:
        ``validatePodTemplateUpdate`` in its ``pkg/apis/batch/validation``.
        """
        return Cause("spec.template", "FieldValueInvalid") in self.causes

    def __str__(self) -> str:
        return f"{self.message} ({self.status})"
