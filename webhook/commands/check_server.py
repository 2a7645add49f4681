"""A policy as the API server judges it, by a dry run, in the API server's own words."""

from __future__ import annotations

import http
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from webhook.api.errors import Forbidden, NotServed, Refused, Unreachable
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import GROUP, KIND, PLURAL, VERSION

if TYPE_CHECKING:
    from webhook.api.client import Client

_PATH: Final = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
_DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
_ROOT: Final = "<nil>"
"""How the API server writes the path of the whole object."""
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')


def refusals(client: Client, policy: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return each mistake that the API server names; empty: it would take the policy.

    Raises:
        ClusterError: it cannot be asked.

    """
    try:
        _create_or_update(client, policy)
    except Refused as error:
        return tuple(_mistakes(error))
    except Forbidden as error:
        if error.is_lack_of_rights:
            raise
        return (FieldError("", str(error)),)
    return ()


def _create_or_update(client: Client, policy: Mapping[str, Any]) -> None:
    try:
        client.post(_PATH, policy, _DRY_RUN)
    except NotServed:
        raise Unreachable(f"the cluster has no {KIND}: its CRD is not installed") from None
    except Refused as error:
        if error.status != http.HTTPStatus.CONFLICT:
            raise
        metadata = policy["metadata"]
        path = f"{_PATH}/{quote(metadata['name'], safe='')}"
        version = client.get(path)["metadata"]["resourceVersion"]
        update = {**policy, "metadata": {**metadata, "resourceVersion": version}}
        client.put(path, update, _DRY_RUN)


def _mistakes(error: Refused) -> Iterator[FieldError]:
    for cause in error.causes:
        yield FieldError("" if cause.field == _ROOT else cause.field, cause.message)
    if not error.causes:
        unknown = _UNKNOWN_FIELD.findall(error.message)
        yield from (FieldError(path, "unknown field") for path in unknown)
        if not unknown:
            yield FieldError("", error.message)
