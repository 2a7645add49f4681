"""Where this project is installed: by what the API server calls, or as somebody says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webhook.api.errors import Forbidden
from webhook.commands.connect import pages
from webhook.state.readers import OUR_WEBHOOK

if TYPE_CHECKING:
    from webhook.api.client import Client

RELEASE_NAMESPACE = "kueue-fallback"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def configurations(client: Client) -> Sequence[Mapping[str, Any]]:
    """List the configurations by which the API server calls us.

    Raises:
        Forbidden: the user may not list them.

    """
    return [
        item
        for page in pages(client, _WEBHOOKS)
        for item in page.get("items") or ()
        if any(hook.get("name") == OUR_WEBHOOK for hook in item.get("webhooks") or ())
    ]


def namespace_of(found: Sequence[Mapping[str, Any]]) -> str:
    """Name the namespace to whose Service the API server sends reviews; empty: to none."""
    for hook in (hook for item in found for hook in item["webhooks"]):
        service = hook.get("clientConfig", {}).get("service") or {}
        if service.get("namespace"):
            return str(service["namespace"])
    return ""


def release_namespace_of(client: Client, given: str | None) -> str:
    """Name our namespace: the one that is given, else where the API server sends reviews to."""
    if given:
        return given
    try:
        return namespace_of(configurations(client)) or RELEASE_NAMESPACE
    except Forbidden:
        return RELEASE_NAMESPACE
