"""CustomResourceDefinitions: made smaller for the API server, and whether it serves them."""

from collections.abc import Iterable
from typing import Any, Protocol

from hack.api import Answer, ApiError, Object


class Asking(Protocol):
    """What is needed of ``hack.api.ApiClient``."""

    def send(self, method: str, path: str) -> Answer: ...

    def path_of(self, item: Object) -> str: ...


def without_texts(definition: Object) -> Object:
    """Return a copy without descriptions.

    They are most of it, and the API server takes each of them in again with every definition.
    """
    return dict(_without_texts(definition))


def _without_texts(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_texts(each) for each in part]
    if not isinstance(part, dict):
        return part
    # A field that is called so has a schema, no text.
    return {
        key: _without_texts(value)
        for key, value in part.items()
        if key != "description" or not isinstance(value, str)
    }


def are_served(client: Asking, definitions: Iterable[Object]) -> bool:
    """Tell whether objects of all of them could be written now.

    A definition is established a moment before its version is found under its group.
    """
    return all(_is_established(client, one) and _is_found(client, one) for one in definitions)


def _is_established(client: Asking, definition: Object) -> bool:
    status = client.send("GET", client.path_of(definition)).json().get("status", {})
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )


def _is_found(client: Asking, definition: Object) -> bool:
    spec = definition["spec"]
    return all(
        _serves(client, f"{spec['group']}/{version['name']}", spec["names"]["plural"])
        for version in spec["versions"]
        if version["served"]
    )


def _serves(client: Asking, group_version: str, plural: str) -> bool:
    try:
        found = client.send("GET", f"/apis/{group_version}").json()["resources"]
    except ApiError:
        return False
    return plural in {resource["name"] for resource in found}
