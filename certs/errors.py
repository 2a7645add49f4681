"""What can go wrong with the API server, told apart by what is to be done about it."""

from __future__ import annotations


class StoreError(Exception):
    """Any of the below."""


class Conflict(StoreError):  # noqa: N818 - names a condition of the cluster
    """Somebody else was faster; read again."""


class Missing(StoreError):  # noqa: N818
    """There is no such object."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}: not found"


class Unavailable(StoreError):  # noqa: N818
    """No answer, or one that says no: nothing can be done but to ask again later."""

    def __init__(self, detail: str, *, reached: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reached = reached
        """The API server did answer."""

    def __str__(self) -> str:
        return self.detail
