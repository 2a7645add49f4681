"""Looks at what is ours: policies, the off switch, the leader, certificates, and Kueue itself."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from webhook.api import lease
from webhook.api.errors import Forbidden, NotServed
from webhook.api.resources import KUEUE_DEPLOYMENT, OFF_SWITCH, kueue_path
from webhook.commands.connect import pages
from webhook.commands.look import Part
from webhook.commands.recorded import unix_of
from webhook.commands.switch import off_of
from webhook.model.kueue_support import KueueTested
from webhook.state.kueue_deployment import read_kueue_manager

if TYPE_CHECKING:
    from webhook.api.client import Client

_POLICIES = "/apis/kueue-fallback.dev/v1alpha1/fallbackpolicies"
_KUEUES_DEPLOYMENT = "/apis/apps/v1/namespaces/{}/deployments/kueue-controller-manager"


def policies(client: Client) -> Part:
    try:
        found = [_policy(item) for item in _listed(client, _POLICIES)]
    except NotServed:
        return Part(shown=[], trouble=("the definition of FallbackPolicy is not installed",))
    trouble = [
        f"policy {each['name']} is not ready: {each['message']}"
        for each in found
        if each["ready"] is False
    ]
    return Part(shown=found, trouble=tuple(trouble))


def _policy(source: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec = source["metadata"], source.get("spec") or {}
    conditions = (source.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    tested: Mapping[str, Any] = next(
        (each for each in conditions if each.get("type") == "KueueTested"), {}
    )
    found = {
        "name": metadata["name"],
        "mode": spec.get("mode", "Observe"),
        "strategy": (spec.get("strategy") or {}).get("type", "FinishTime"),
        "options": [
            option.get("name") or option.get("queue") or option.get("clusterQueue")
            for option in spec.get("options") or ()
        ],
        "ready": None,
        "message": "the controller has not judged it yet",
        "kueueTested": {"True": True, "False": False}.get(tested.get("status", "")),
        "kueueMessage": tested.get("message", ""),
    }
    is_of_now = ready and ready.get("observedGeneration", 0) >= metadata.get("generation", 0)
    if ready and is_of_now:
        found |= {"ready": ready.get("status") == "True", "message": ready.get("message", "")}
    return found


def switch(client: Client, namespace: str) -> Part:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{OFF_SWITCH}"
    try:
        found = off_of(client.get(path))
    except NotServed:
        found = None
    return Part(shown={"off": found is not None, "namespaces": sorted(found or ())})


def leader(client: Client, namespace: str, unix: float) -> Part:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease.NAME}"
    try:
        source = client.get(path)
    except NotServed:
        why = f"no controller leads: there is no Lease {lease.NAME} in namespace {namespace}"
        return Part(shown={"holder": "", "leads": False}, trouble=(why,))
    record = lease.read(source)
    renewed = unix_of(str((source.get("spec") or {}).get("renewTime") or ""))
    age = None if renewed is None else max(0.0, unix - renewed)
    leads = bool(record.holder) and age is not None and age <= record.seconds
    shown = {"holder": record.holder, "leads": leads, "renewedSecondsAgo": _rounded(age)}
    if leads:
        return Part(shown=shown)
    why = (
        f"{record.holder} has not renewed its Lease" if record.holder else "nobody holds the Lease"
    )
    return Part(shown=shown, trouble=(f"no controller leads: {why}",))


def certificates(found: Sequence[Mapping[str, Any]], unix: float) -> Part:
    """Tell how long the API server's trust lasts: what it believes, by the ``caBundle``."""
    if not found:
        return Part(shown=[], trouble=("the API server calls no webhook: it is not configured",))
    bundles = {
        hook["clientConfig"].get("caBundle") or "" for item in found for hook in item["webhooks"]
    }
    shown = sorted((each for bundle in bundles for each in _authorities(bundle, unix)), key=_when)
    if "" in bundles:
        return Part(
            shown=shown, trouble=("a webhook has no caBundle: the API server trusts nobody",)
        )
    if not shown:
        return Part(unknown="the caBundle holds no certificate that can be read")
    trouble = (
        () if shown[-1]["secondsLeft"] > 0 else ("every certificate in the caBundle is expired",)
    )
    return Part(shown=shown, trouble=trouble)


def _authorities(bundle: str, unix: float) -> Iterator[dict[str, Any]]:
    from cryptography import x509

    try:
        read = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except (ValueError, binascii.Error):
        return
    for certificate in read:
        end = certificate.not_valid_after_utc
        yield {
            "subject": certificate.subject.rfc4514_string(),
            "notAfter": end.isoformat().replace("+00:00", "Z"),
            "secondsLeft": round(end.timestamp() - unix),
        }


def _when(found: Mapping[str, Any]) -> str:
    return str(found["notAfter"])


def kueue(client: Client, namespace: str, kubernetes: str) -> Part:
    served = client.kueue_version()
    shown = {"kubernetes": kubernetes, "api": served, "version": _kueues_image(client, namespace)}
    if served is None:
        return Part(shown=shown, trouble=("Kueue is not installed",))
    return Part(shown=shown)


def untested(told: Part, policies: Part, replicas: Part) -> Part:
    """Add to what is told of Kueue why it is untested: as policies say, else the servers."""
    judged = [each for each in policies.shown or () if each["kueueMessage"]]
    messages = {each["kueueMessage"] for each in judged if not each["kueueTested"]}
    if not judged:
        reasons = {name for each in replicas.shown or () for name in each["kueueUntested"]}
        messages = {each.meaning for each in KueueTested if each in reasons}
    found = sorted(messages)
    trouble = (*told.trouble, *(f"Kueue is untested: {each}" for each in found))
    shown = {**told.shown, "untested": found} if told.shown is not None else None
    return replace(told, shown=shown, trouble=trouble)


def clusters(client: Client) -> Part:
    """List the worker clusters behind MultiKueue, and whether Kueue reaches them.

    Raises:
        Forbidden: the user may not list them.

    """
    try:
        path = kueue_path(client.kueue_version(), "multikueueclusters")
        found = [_cluster(item) for item in _listed(client, path)]
    except NotServed:
        return Part(shown=[])
    trouble = [
        f"cluster {each['name']} is not active: {each['message']}"
        for each in found
        if each["active"] is False
    ]
    return Part(shown=found, trouble=tuple(trouble))


def _cluster(source: Mapping[str, Any]) -> dict[str, Any]:
    conditions = (source.get("status") or {}).get("conditions") or ()
    active: Mapping[str, Any] = next(
        (each for each in conditions if each.get("type") == "Active"), {}
    )
    return {
        "name": source["metadata"]["name"],
        "active": {"True": True, "False": False}.get(str(active.get("status"))),
        "message": active.get("message", "") if active else "Kueue has not judged it yet",
    }


def _kueues_image(client: Client, namespace: str) -> str | None:
    """Tell Kueue's version by the tag of its image; None: it is not told."""
    try:
        found = client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{KUEUE_DEPLOYMENT}")
    except (NotServed, Forbidden):
        return None
    return read_kueue_manager(found).version or None


def _listed(client: Client, path: str) -> Iterator[Mapping[str, Any]]:
    for page in pages(client, path):
        yield from page.get("items") or ()


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
