"""The one writer of what is read, compared and written again.

Nothing is written over that has changed since it was read. Who may write is asked right before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi, NotServed, Refused

MOST_TRIES: Final = 3
"""Of one update. Leaders change seldom, and two write the same object for a moment at most."""


def update(
    api: KubernetesApi,
    collection: str,
    name: str,
    change: Callable[[Mapping[str, Any] | None], Mapping[str, Any] | None],
    *,
    may_write: Callable[[], bool],
) -> bool:
    """Read an object, write what *change* makes of it, and again if it has changed meanwhile.

    *change* is given None where there is no such object, which is then created, and returns None
    where nothing is to be written. Return whether it was written.

    Raises:
        ClusterError: it cannot be read or written; a conflict: it has changed at each try.

    """
    for _ in range(MOST_TRIES):
        try:
            source = api.get(f"{collection}/{name}")
        except NotServed:
            source = None
        body = change(source)
        if body is None or not may_write():
            return False
        version = "" if source is None else str(source["metadata"]["resourceVersion"])
        if write(api, collection, body, version=version) is not None:
            return True
    message = f"{collection}/{name} has changed at each of {MOST_TRIES} tries"
    raise Refused(HTTPStatus.CONFLICT, message)


def write(
    api: KubernetesApi, collection: str, body: Mapping[str, Any], *, version: str
) -> Mapping[str, Any] | None:
    """Write an object, as a merge patch, over the *version* that was read; empty: create it.

    Return it as it is now; None: it was created, changed or deleted meanwhile.

    Raises:
        ClusterError: it cannot be written.

    """
    if not version:
        return _unless_conflict(lambda: api.post(collection, body))
    path = f"{collection}/{body['metadata']['name']}"
    metadata = {**body["metadata"], "resourceVersion": version}
    return _patched(api, path, {**body, "metadata": metadata})


def write_status(
    api: KubernetesApi, path: str, source: Mapping[str, Any], status: Mapping[str, Any]
) -> bool:
    """Write the status of an object that was read as *source*; return False if it has changed.

    Raises:
        ClusterError: it cannot be written.

    """
    metadata = {"resourceVersion": source["metadata"].get("resourceVersion")}
    body = {"metadata": metadata, "status": status}
    return _patched(api, f"{path}/status", body) is not None


def overwrite(api: KubernetesApi, collection: str, body: Mapping[str, Any]) -> None:
    """Write the fields of *body* whatever is there, for who alone writes them and knows them all.

    Raises:
        ClusterError: it cannot be written.

    """
    try:
        api.patch(f"{collection}/{body['metadata']['name']}", body)
    except NotServed:
        api.post(collection, body)


def _patched(api: KubernetesApi, path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        return _unless_conflict(lambda: api.patch(path, body))
    except NotServed:
        # It was deleted meanwhile. Where a new one cannot be created, the place is missing.
        return None


def _unless_conflict(send: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
    try:
        return send()
    except ClusterError as error:
        if error.is_conflict:
            return None
        raise
