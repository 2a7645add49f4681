"""The parts of a status that show whether anything decides at all, or Jobs go by unasked.

A dry run that the webhook must answer, Deployments without pods, handshakes that fail, and policies
that no Job matches.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed
from webhook.api.resources import SAVINGS
from webhook.commands import probe
from webhook.commands.decision_table import unix_of
from webhook.commands.kubectl import listed
from webhook.commands.status_parts import StatusPart, ready_pods
from webhook.hindsight.savings_record import SavingsRecord, read_savings
from webhook.model.fields import FieldError
from webhook.model.pods import read_selector
from webhook.state.readers import OUR_WEBHOOK

if TYPE_CHECKING:
    from webhook.api.client import Client

_LABELS: Final = {"labelSelector": "app.kubernetes.io/name=kueue-fallback"}
_DAY_SECONDS: Final = 86_400.0
_HOUR_SECONDS: Final = 3600.0


def webhook(
    client: Client, configurations: Sequence[Mapping[str, Any]], namespace: str
) -> StatusPart:
    """Tell whether the API server gets the webhook's answer about a new Job in *namespace*.

    Raises:
        Forbidden: the user may not create Jobs there.

    """
    if not _is_sent(client, configurations, namespace):
        return StatusPart(unknown=f"Jobs in namespace {namespace} are not sent to it; name another")
    began = time.monotonic()
    try:
        seen_by = probe.ask(client, namespace)
    except Forbidden:
        raise
    except ClusterError as error:
        return StatusPart(unknown=f"the API server refuses a Job as a dry run: {error}")
    took = round(1000 * (time.monotonic() - began))
    shown = {"answers": bool(seen_by), "namespace": namespace, "by": seen_by, "milliseconds": took}
    why = (
        f"the API server gets no answer about a new Job in namespace {namespace}, so none is "
        "decided: kubectl fallback probe says what to check"
    )
    return StatusPart(shown=shown, trouble=() if seen_by else (why,))


def _is_sent(client: Client, configurations: Sequence[Mapping[str, Any]], namespace: str) -> bool:
    """Return whether the configuration asks for reviews of new Jobs there, as far as is known."""
    selectors = [
        read_selector(hook["namespaceSelector"], "namespaceSelector")
        for configuration in configurations
        for hook in configuration["webhooks"]
        if hook.get("name") == OUR_WEBHOOK and hook.get("namespaceSelector")
    ]
    if not selectors:
        return True
    try:
        labels = client.get(f"/api/v1/namespaces/{namespace}")["metadata"].get("labels") or {}
    except (Forbidden, NotServed):
        return True
    return any(selector.matches(labels) for selector in selectors)


def deployments(client: Client, namespace: str) -> StatusPart:
    """Return how many pods of each Deployment of the release are ready; none is trouble.

    Raises:
        Forbidden: the user may not list Deployments.

    """
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    shown = [
        {"name": source["metadata"]["name"], **pods}
        for source in listed(client, path, _LABELS)
        if (pods := ready_pods(source)) is not None
    ]
    trouble = [
        f"Deployment {each['name']}: none of {each['wanted']} pods is ready"
        for each in shown
        if each["wanted"] and not each["ready"]
    ]
    return StatusPart(shown=shown, trouble=tuple(trouble))


def with_handshakes(replicas: StatusPart, answered: StatusPart) -> StatusPart:
    """Add to the servers how many handshakes failed, where nothing shows that reviews arrive.

    Other clients than the API server use the port, too, so they are no trouble otherwise.
    """
    if answered.shown is not None and answered.shown["answers"]:
        return replicas
    broken = [
        f"{server['name']} counts {server['handshakeFailures']} TLS handshakes that failed: does "
        "the API server trust its certificate?"
        for server in replicas.shown or ()
        if server["handshakeFailures"]
    ]
    return replace(replicas, trouble=(*replicas.trouble, *broken))


def savings(client: Client, namespace: str) -> SavingsRecord | None:
    """Return what the controller last published of the Jobs that ended; None: it is not known."""
    try:
        return read_savings(client.get(f"/api/v1/namespaces/{namespace}/configmaps/{SAVINGS}"))
    except (NotServed, Forbidden, FieldError, ValueError, zlib.error):
        return None


def unmatched(
    policies: StatusPart, replicas: StatusPart, published: SavingsRecord | None, unix: float
) -> StatusPart:
    """Add to the policies which of them have matched no Job for a day, as far as it is known.

    Servers count what was matched since their start, and the journal has the Jobs that ended.
    """
    if published is None and not replicas.shown:
        return policies
    busy = {policy for server in replicas.shown or () for policy in server["matchedPolicies"]}
    since = unix - _DAY_SECONDS
    hours = published.hours if published is not None else ()
    busy |= {hour.policy for hour in hours if hour.since + _HOUR_SECONDS > since}
    quiet = [
        policy["name"]
        for policy in policies.shown or ()
        # What teams write badly is no trouble of who installed this.
        if "/" not in policy["name"]
        and policy["name"] not in busy
        and (unix_of(policy["created"]) or unix) < since
    ]
    trouble = [
        f"policy {name} has matched no Job for a day: kubectl fallback explain -f JOB.yaml says why"
        for name in quiet
    ]
    return replace(policies, trouble=(*policies.trouble, *trouble))
