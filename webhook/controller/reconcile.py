"""One look at all policies: reads them, judges each, and writes the statuses that changed.

Who does not lead judges and writes nothing. Writes carry the resourceVersion that was read, and say
the same however often they are made: two controllers at once do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from webhook.api.errors import NotServed, Refused
from webhook.api.kubernetes_api import KubernetesApi
from webhook.controller import policy_status
from webhook.controller.policy_status import Condition
from webhook.model.policy.fallback_policy import (
    GROUP,
    PLURAL,
    VERSION,
    FallbackPolicy,
    PolicyError,
    read_policy,
)
from webhook.model.queues import Snapshot

PATH: Final = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
_PAGE: Final = "200"
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look came to."""

    ready: Mapping[str, bool] = field(default_factory=dict)
    """Every policy, and whether it is."""
    written: tuple[tuple[str, Condition], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    """Policy and what the API server said about the write."""
    again: bool = False
    """A policy changed meanwhile."""


def look(
    transport: KubernetesApi,
    snapshot: Snapshot,
    *,
    own_namespace: str,
    clock: Callable[[], str],
    is_leader: Callable[[], bool],
    changes_resources: bool = True,
) -> Look:
    """Write the condition of every policy whose status does not say it yet.

    *is_leader* is asked before each write; *changes_resources* is as for ``policy_status``.

    Raises:
        ClusterError: the policies cannot be read.

    """
    found = Look()
    judge = partial(
        policy_status.condition,
        own_namespace=own_namespace,
        changes_resources=changes_resources,
    )
    for source in _policies(transport):
        name = source["metadata"]["name"]
        condition = _judge(source, snapshot, judge)
        before = source.get("status") or {}
        status = policy_status.status(condition, snapshot, before, now=clock())
        outcome = Look()
        if status is not None and is_leader():
            outcome = _write(transport, source, name, condition, status)
        found = Look(
            ready={**found.ready, name: condition.ready},
            written=(*found.written, *outcome.written),
            failed=(*found.failed, *outcome.failed),
            again=found.again or outcome.again,
        )
    return found


def _policies(transport: KubernetesApi) -> Iterator[Mapping[str, Any]]:
    params = {"limit": _PAGE}
    while True:
        try:
            page = transport.get(PATH, params)
        except NotServed:
            return
        yield from page.get("items") or ()
        following = (page.get("metadata") or {}).get("continue")
        if not following:
            return
        params = {"limit": _PAGE, "continue": following}


def _judge(
    source: Mapping[str, Any],
    snapshot: Snapshot,
    judge: Callable[[FallbackPolicy, Snapshot], Condition],
) -> Condition:
    # The items of a list carry neither kind nor apiVersion; reading a policy needs neither.
    try:
        policy = read_policy(source)
    except PolicyError as error:
        return policy_status.invalid(error, source["metadata"].get("generation", 0))
    return judge(policy, snapshot)


def _write(
    transport: KubernetesApi,
    source: Mapping[str, Any],
    name: str,
    condition: Condition,
    status: Mapping[str, Any],
) -> Look:
    version = source["metadata"].get("resourceVersion")
    body = {"metadata": {"resourceVersion": version}, "status": status}
    try:
        transport.patch(f"{PATH}/{name}/status", body)
    except NotServed:
        return Look(again=True)
    except Refused as error:
        if error.status == _CONFLICT:
            return Look(again=True)
        return Look(failed=((name, str(error)),))
    return Look(written=((name, condition),))
