"""The parts of a status, each read from the cluster with the user's rights.

Policies, off switch, leader, certificates, worker clusters, queues, servers and Kueue itself, and
whether anything decides at all, or Jobs go by unasked; how they are shown is not known here.
"""

from __future__ import annotations

import base64
import binascii
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

from webhook.api import lease
from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed
from webhook.api.resources import (
    CONGESTION,
    KUEUE_CONFIG,
    KUEUE_DEPLOYMENT,
    OFF_SWITCH,
    POLICIES,
    SAVINGS,
    TEAM_POLICIES,
    kueue_path,
    our_path,
)
from webhook.commands import probe
from webhook.commands.decision_table import unix_of
from webhook.commands.kubectl import listed
from webhook.commands.switch import off_of
from webhook.hindsight.fragmentation_record import read_fragmentation
from webhook.hindsight.savings_record import SavingsRecord, read_savings
from webhook.kueue.tree_forecast import wait_for
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.job import PLAIN
from webhook.model.kueue_support import KueueTested
from webhook.model.pods import read_selector
from webhook.model.quantity import CPU, FlavorResource, render
from webhook.model.queues import ClusterQueue, Held, StopPolicy
from webhook.state.forecast_input import ForecastInput, ForecastInputs, cluster_queues_of
from webhook.state.kueue_config import read_kueue_config, read_kueue_manager
from webhook.state.published_congestion import read_congestion
from webhook.state.readers import OUR_WEBHOOK
from webhook.state.snapshot import Snapshot
from webhook.state.snapshot_file import fetch_state
from webhook.state.workload import awaiting

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.kueue.tree_forecast import TreeForecast
    from webhook.state.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPart:
    shown: Any = None
    """Objects, lists and plain values, as in JSON output."""
    forbidden: str = ""
    """The API server's message, if the user may not see it."""
    unknown: str = ""
    """Why nothing is known of it."""
    trouble: tuple[str, ...] = ()

    @property
    def hidden(self) -> str:
        """Return why nothing is shown; empty: something is."""
        if self.forbidden:
            return f"forbidden: {self.forbidden}"
        return f"unknown: {self.unknown}" if self.unknown else ""

    def as_json(self) -> Any:
        if self.forbidden:
            return {"forbidden": self.forbidden}
        return {"unknown": self.unknown} if self.unknown else self.shown


ReadPart: TypeAlias = Callable[[], StatusPart]


def part_of(read: ReadPart) -> StatusPart:
    """Read a part; if the user may not see it, return one that says so, not an error."""
    try:
        return read()
    except Forbidden as error:
        return StatusPart(forbidden=str(error))


def policies(client: Client) -> StatusPart:
    try:
        shown = [_policy(source) for source in listed(client, our_path(POLICIES))]
    except NotServed:
        return StatusPart(shown=[], trouble=("the definition of FallbackPolicy is not installed",))
    # What teams write badly is no trouble of who installed this.
    trouble = [
        f"policy {policy['name']} is not ready: {policy['message']}"
        for policy in shown
        if policy["ready"] is False
    ]
    trouble += [
        f"policy {policy['name']}: {policy['reviewedMessage']}"
        for policy in shown
        if policy["reviewed"] is False
    ]
    with suppress(NotServed, Forbidden):
        shown += [_policy(source) for source in listed(client, our_path(TEAM_POLICIES))]
    return StatusPart(shown=shown, trouble=tuple(trouble))


_TRUTH = {"True": True, "False": False}


def _policy(source: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec = source["metadata"], source.get("spec") or {}
    conditions = (source.get("status") or {}).get("conditions") or ()
    by_type = {condition.get("type"): condition for condition in conditions}
    ready = by_type.get("Ready")
    tested, reviewed = by_type.get("KueueTested", {}), by_type.get("Reviewed", {})
    kinds = list((spec.get("match") or {}).get("kinds") or (PLAIN,))
    shown = {
        "name": "/".join(filter(None, (metadata.get("namespace"), metadata["name"]))),
        "mode": spec.get("mode", "Observe"),
        "strategy": (spec.get("strategy") or {}).get("type", "FinishTime"),
        "options": [
            option.get("name") or option.get("queue") or option.get("clusterQueue")
            for option in spec.get("options") or ()
        ],
        "ready": None,
        "message": "the controller has not judged it yet",
        "kueueTested": _TRUTH.get(tested.get("status", "")),
        "kueueMessage": tested.get("message", ""),
        "reviewed": _TRUTH.get(reviewed.get("status", "")),
        "reviewedMessage": reviewed.get("message", ""),
        "created": metadata.get("creationTimestamp", ""),
    }
    if kinds != [PLAIN]:
        shown["kinds"] = kinds
    is_of_now = ready and ready.get("observedGeneration", 0) >= metadata.get("generation", 0)
    if ready and is_of_now:
        shown |= {"ready": ready.get("status") == "True", "message": ready.get("message", "")}
    return shown


def switch(client: Client, namespace: str) -> StatusPart:
    path = f"/api/v1/namespaces/{namespace}/configmaps/{OFF_SWITCH}"
    try:
        namespaces = off_of(client.get(path))
    except NotServed:
        namespaces = None
    return StatusPart(shown={"off": namespaces is not None, "namespaces": sorted(namespaces or ())})


def congestion(client: Client, namespace: str, unix: float) -> StatusPart:
    """Tell what is scarce, and what that costs beside its rate."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{CONGESTION}"
    try:
        current = read_congestion(client.get(path)).at_moment(unix)
    except NotServed:
        return StatusPart(shown=[])
    except FieldError as error:
        return StatusPart(shown=[], trouble=(f"ConfigMap {CONGESTION}: {error}",))
    waits = {cell: wait for cell, wait in current.waits.items() if wait < inf}
    shown = [
        {**cell._asdict(), "price": price, "waitSeconds": _rounded(waits.get(cell))}
        for cell, price in sorted(current.prices.items())
    ]
    return StatusPart(shown=shown)


def fragmentation(client: Client, namespace: str, unix: float) -> StatusPart:
    """Tell which slices wait, whose end frees them, and how devices are better cut for them."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{CONGESTION}"
    try:
        found = read_fragmentation(client.get(path), unix)
    except NotServed:
        found = None
    except FieldError as error:
        return StatusPart(trouble=(f"ConfigMap {CONGESTION}: {error}",))
    return StatusPart(shown=None if found is None else found.model_dump(mode="json", by_alias=True))


def leader(client: Client, namespace: str, unix: float) -> StatusPart:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease.NAME}"
    try:
        source = client.get(path)
    except NotServed:
        why = f"no controller leads: there is no Lease {lease.NAME} in namespace {namespace}"
        return StatusPart(shown={"holder": "", "leads": False}, trouble=(why,))
    record = lease.read_lease(source)
    renewed = unix_of(str((source.get("spec") or {}).get("renewTime") or ""))
    age = None if renewed is None else max(0.0, unix - renewed)
    leads = bool(record.holder) and age is not None and age <= record.seconds
    shown = {"holder": record.holder, "leads": leads, "renewedSecondsAgo": _rounded(age)}
    if leads:
        return StatusPart(shown=shown)
    why = (
        f"{record.holder} has not renewed its Lease" if record.holder else "nobody holds the Lease"
    )
    return StatusPart(shown=shown, trouble=(f"no controller leads: {why}",))


def certificates(configurations: Sequence[Mapping[str, Any]], unix: float) -> StatusPart:
    """Return the authorities in the ``caBundle`` of our configurations, and when each expires.

    The API server trusts the webhook's certificate by them. *unix* is now, in seconds since 1970.
    """
    if not configurations:
        return StatusPart(
            shown=[], trouble=("the API server calls no webhook: it is not configured",)
        )
    bundles = {
        hook["clientConfig"].get("caBundle") or ""
        for configuration in configurations
        for hook in configuration["webhooks"]
    }
    shown = sorted(
        (authority for bundle in bundles for authority in _authorities(bundle, unix)),
        key=lambda authority: str(authority["notAfter"]),
    )
    if "" in bundles:
        return StatusPart(
            shown=shown, trouble=("a webhook has no caBundle, so the API server trusts no server",)
        )
    if not shown:
        return StatusPart(unknown="the caBundle holds no certificate that can be read")
    trouble = (
        () if shown[-1]["secondsLeft"] > 0 else ("every certificate in the caBundle is expired",)
    )
    return StatusPart(shown=shown, trouble=trouble)


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


def kueue(client: Client, namespace: str, kubernetes: str) -> StatusPart:
    served, manager = client.kueue_version(), _manager(client, namespace)
    version = None if manager is None else read_kueue_manager(manager).version or None
    pods = None if manager is None else ready_pods(manager)
    shown = {"kubernetes": kubernetes, "api": served, "version": version, "replicas": pods}
    if served is None:
        return StatusPart(shown=shown, trouble=("Kueue is not installed",))
    if pods and pods["wanted"] and not pods["ready"]:
        why = f"Kueue does not run: none of {pods['wanted']} pods of {KUEUE_DEPLOYMENT} is ready"
        return StatusPart(shown=shown, trouble=(why,))
    return StatusPart(shown=shown)


def ready_pods(deployment: Mapping[str, Any]) -> dict[str, int] | None:
    """Return how many pods a Deployment is to have, and how many are ready; None: not known."""
    status = deployment.get("status")
    if not status:
        return None
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    return {"ready": status.get("readyReplicas") or 0, "wanted": wanted}


def untested(part: StatusPart, policies: StatusPart, replicas: StatusPart) -> StatusPart:
    """Add to Kueue's part why it is untested, by the conditions of policies, else by metrics."""
    judged = [policy for policy in policies.shown or () if policy["kueueMessage"]]
    messages = {policy["kueueMessage"] for policy in judged if not policy["kueueTested"]}
    if not judged:
        reasons = {name for server in replicas.shown or () for name in server["kueueUntested"]}
        messages = {reason.meaning for reason in KueueTested if reason in reasons}
    causes = sorted(messages)
    trouble = (*part.trouble, *(f"Kueue is untested: {cause}" for cause in causes))
    shown = {**part.shown, "untested": causes} if part.shown is not None else None
    return replace(part, shown=shown, trouble=trouble)


def dispatcher(client: Client, kueue_namespace: str, leader: StatusPart, unix: float) -> StatusPart:
    """Return whether we are MultiKueue's dispatcher, and for whom no cluster is nominated.

    Raises:
        Forbidden: we are, and the user may not list Workloads.

    """
    if not (is_ours := _is_dispatcher(client, kueue_namespace)):
        return StatusPart(shown={"ours": is_ours})
    try:
        workloads = listed(client, kueue_path(client.kueue_version(), "workloads"))
        waiting = [found for source in workloads if (found := _awaiting(source)) is not None]
    except NotServed:
        return StatusPart(shown={"ours": True})
    late = sum(not name and unix - at > _LATE_SECONDS for name, at in waiting)
    trouble = []
    if late:
        trouble.append(f"no worker cluster is nominated for {late} Workloads that have quota")
    if leader.shown is not None and not leader.shown["leads"]:
        trouble.append(
            "no controller leads, so no worker cluster is chosen: when none has for "
            "settings.dispatcher_timeout (120 s), all are nominated"
        )
    shown = {"ours": True, "waiting": len(waiting), "withoutNomination": late}
    return StatusPart(shown=shown, trouble=tuple(trouble))


def _is_dispatcher(client: Client, kueue_namespace: str) -> bool | None:
    """Return whether Kueue's configuration names us; None: the user may not see it."""
    path = f"/api/v1/namespaces/{kueue_namespace}/configmaps/{KUEUE_CONFIG}"
    try:
        return read_kueue_config(client.get(path)).own_dispatcher
    except Forbidden:
        return None
    except (NotServed, FieldError):
        return False


_LATE_SECONDS = 30.0


def _awaiting(source: Mapping[str, Any]) -> tuple[bool, int] | None:
    """Return whether any cluster is nominated, and since when it has quota; None: not its turn."""
    found, _ = attempted(lambda: awaiting(source), FieldError)
    return None if found is None else (bool(found.nominated), found.workload.reserved_at)


def clusters(client: Client) -> StatusPart:
    """Return the worker clusters behind MultiKueue, and whether Kueue reaches them.

    Raises:
        Forbidden: the user may not list them.

    """
    try:
        path = kueue_path(client.kueue_version(), "multikueueclusters")
        worker_clusters = [_cluster(source) for source in listed(client, path)]
    except NotServed:
        return StatusPart(shown=[])
    trouble = [
        f"cluster {cluster['name']} is not active: {cluster['message']}"
        for cluster in worker_clusters
        if cluster["active"] is False
    ]
    return StatusPart(shown=worker_clusters, trouble=tuple(trouble))


def _cluster(source: Mapping[str, Any]) -> dict[str, Any]:
    conditions = (source.get("status") or {}).get("conditions") or ()
    active: Mapping[str, Any] = next(
        (condition for condition in conditions if condition.get("type") == "Active"), {}
    )
    return {
        "name": source["metadata"]["name"],
        "active": _TRUTH.get(str(active.get("status"))),
        "message": active.get("message", "") if active else "Kueue has not judged it yet",
    }


def _manager(client: Client, namespace: str) -> Mapping[str, Any] | None:
    """Return Kueue's Deployment; None: there is none, or the user may not see it."""
    try:
        return client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{KUEUE_DEPLOYMENT}")
    except (NotServed, Forbidden):
        return None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


_GIBI = 1 << 30
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")


def cluster_queues(client: Client, namespace: str, kueue_namespace: str) -> StatusPart:
    """Return the ClusterQueues, with Workloads counted as decisions count them, and forecasts.

    Raises:
        Forbidden: the user may not list something that this is computed from.

    """
    state = fetch_state(client, namespace=namespace, kueue_namespace=kueue_namespace)
    unix = time.time()
    snapshot = state.snapshot(0.0, unix)
    counted = {name: state.contents_of(name) for name in snapshot.setup.cluster_queues}
    forecast_input = ForecastInput(snapshot=snapshot, counted=counted, now=0.0, unix=unix)
    forecasts = ForecastInputs().forecasts(forecast_input)
    used = frozenset().union(
        *(
            cluster_queues_of(policy, policy.spec.options, snapshot)
            for policy in snapshot.fallback.policies
        )
    )
    shown = [
        {
            **_queue(
                queue,
                snapshot.workloads.held.get(name, Held()),
                state,
                forecasts.get(name),
                snapshot,
            ),
            "inPolicies": name in used,
        }
        for name, queue in sorted(snapshot.setup.cluster_queues.items())
    ]
    return StatusPart(shown=shown)


def local_queues(client: Client, namespace: str) -> StatusPart:
    """Return the LocalQueues of one namespace; empty: of all.

    Raises:
        Forbidden: the user may not list them either.

    """
    try:
        place = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        path = kueue_path(client.kueue_version(), f"{place}localqueues")
        shown = [_local_queue(source) for source in listed(client, path)]
    except NotServed:
        return StatusPart(unknown="Kueue is not installed")
    return StatusPart(shown=shown)


def _local_queue(source: Mapping[str, Any]) -> dict[str, Any]:
    status = source.get("status") or {}
    return {
        "name": source["metadata"]["name"],
        "namespace": source["metadata"]["namespace"],
        "clusterQueue": source["spec"].get("clusterQueue", ""),
        "pending": status.get("pendingWorkloads", 0),
        "reserving": status.get("reservingWorkloads", 0),
    }


def _queue(
    queue: ClusterQueue,
    held: Held,
    state: State,
    forecast: TreeForecast | None,
    snapshot: Snapshot,
) -> dict[str, Any]:
    contents = state.contents_of(queue.name)
    return {
        "name": queue.name,
        "cohort": queue.cohort,
        "state": _state_of(queue),
        "pending": sum(len(group.members) for group in contents.waiting),
        "reserving": len(contents.holding),
        "quotas": list(_quotas(queue, held, forecast, snapshot)),
    }


def _state_of(queue: ClusterQueue) -> str:
    if queue.stop_policy is not StopPolicy.NONE:
        return "stopped"
    return "active" if queue.active else "inactive"


def _quotas(
    queue: ClusterQueue, held: Held, forecast: TreeForecast | None, snapshot: Snapshot
) -> Iterator[dict[str, Any]]:
    for group in queue.groups:
        for cell, quota in group.quotas.items():
            flavor, resource = cell
            yield {
                "flavor": flavor,
                "resource": resource,
                "used": render(held.usage.get(cell, 0), resource=resource),
                "quota": render(quota.nominal, resource=resource),
                **_next_free(forecast, queue, cell, snapshot),
            }


def _next_free(
    forecast: TreeForecast | None, queue: ClusterQueue, cell: FlavorResource, snapshot: Snapshot
) -> dict[str, Any]:
    """Return in how many seconds a new Job would get one unit, after all pending Jobs.

    None: never, as far as is known.
    """
    if forecast is None:
        return {"nextFreeIn": None, "uncertain": []}
    usage = {cell: _unit(cell[1])}
    start = wait_for(forecast, queue.name, usage, snapshot.setup, forecast.computed_at)
    seconds = None if start.seconds == inf else round(start.seconds, 1)
    return {"nextFreeIn": seconds, "uncertain": list(start.uncertain)}


def _unit(resource: str) -> int:
    """Return the amount that a new Job is assumed to request: one core, one GiB or one device."""
    if resource == CPU:
        return 1000
    return _GIBI if resource.startswith(_IN_BYTES) else 1


_LABELS = "app.kubernetes.io/name=kueue-fallback,app.kubernetes.io/component=webhook"
_OURS = "kueue_fallback_"
_LIMIT_SECONDS = 15.0
_Samples: TypeAlias = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""Name of a metric of ours, without its prefix, to labels and value of each sample."""


def replicas(client: Client, namespace: str, unix: float) -> StatusPart:
    """Return the state of each server, read from its metrics.

    Raises:
        Forbidden: the user may not list pods there.

    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = listed(client, path, {"labelSelector": _LABELS})
    shown = [_replica(client, pod, unix) for pod in pods]
    if not shown:
        return StatusPart(unknown=f"there is no pod of the server in namespace {namespace}")
    trouble = [
        f"{server['name']} is {server['state']}"
        for server in shown
        if server["state"] in ("stale", "not ready")
    ]
    trouble += [
        f"the certificate of {server['name']} is expired"
        for server in shown
        if (server["certificateSecondsLeft"] or 1) < 0
    ]
    trouble += [
        f"cluster {name} is stale at {server['name']}"
        for server in shown
        for name in server["staleClusters"]
    ]
    return StatusPart(shown=shown, trouble=tuple(trouble))


def _replica(client: Client, pod: Mapping[str, Any], unix: float) -> dict[str, Any]:
    metadata = pod["metadata"]
    server = {
        "name": metadata["name"],
        "state": "unknown" if _is_ready(pod) else "not ready",
        "stateAgeSeconds": None,
        "certificateSecondsLeft": None,
        "clusterStateAgeSeconds": {},
        "staleClusters": [],
        "kueueUntested": [],
        "handshakeFailures": 0,
        "matchedPolicies": [],
        "message": "",
    }
    place = f"{metadata['name']}:{_port(pod)}"
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{place}/proxy/metrics"
    try:
        samples = _read_samples(client.get_text(path))
    except ClusterError as error:
        return {**server, "message": str(error)}
    return {**server, **_measured(samples, unix, is_ready=server["state"] != "not ready")}


def _measured(samples: _Samples, unix: float, *, is_ready: bool) -> dict[str, Any]:
    """Return what a replica's metrics say of it."""
    age = _one(samples, "state_age_seconds", inf)
    limit = _one(samples, "state_age_limit_seconds", _LIMIT_SECONDS)
    # A certificate that is not there ends at 0.
    ends = [
        end for _, end in samples.get("certificate_expiration_timestamp_seconds", ()) if end > 0
    ]
    ages = samples.get("cluster_state_age_seconds", ())
    clusters = dict(sorted((labels.get("cluster", ""), seconds) for labels, seconds in ages))
    broken = (
        count
        for labels, count in samples.get("unanswered_total", ())
        if labels.get("reason") == "handshake"
    )
    state = "ready" if age <= limit else "stale"
    return {
        "state": state if is_ready else "not ready",
        "stateAgeSeconds": None if age == inf else round(age, 1),
        "certificateSecondsLeft": round(min(ends) - unix) if ends else None,
        "clusterStateAgeSeconds": {name: round(seconds, 1) for name, seconds in clusters.items()},
        "staleClusters": [name for name, seconds in clusters.items() if seconds > limit],
        "kueueUntested": _counted(samples, "kueue_untested", "reason"),
        "handshakeFailures": round(sum(broken)),
        "matchedPolicies": _counted(samples, "decisions_total", "policy"),
    }


def _one(samples: _Samples, name: str, default: float) -> float:
    """Return the value of a metric that has one."""
    return next((value for _, value in samples.get(name, ())), default)


def _counted(samples: _Samples, name: str, label: str) -> list[str]:
    """Return the values of a label whose samples are above 0."""
    return sorted({labels.get(label, "") for labels, value in samples.get(name, ()) if value > 0})


def _read_samples(text: str) -> _Samples:
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(_OURS)
            samples.setdefault(name, []).append((sample.labels, sample.value))
    return samples


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


def _port(pod: Mapping[str, Any]) -> int:
    ports = (
        port for container in pod["spec"]["containers"] for port in container.get("ports") or ()
    )
    return next(
        (int(port["containerPort"]) for port in ports if port.get("name") == "metrics"), 8080
    )


_OF_RELEASE: Final = {"labelSelector": "app.kubernetes.io/name=kueue-fallback"}
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
        for source in listed(client, path, _OF_RELEASE)
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
