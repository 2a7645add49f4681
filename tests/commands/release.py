"""The objects of a release as `status` sees them, from the snapshot of the examples."""

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.issue import new_authority
from tests.commands.calling import call_on
from tests.commands.cluster import Cluster
from webhook.admission import review

SNAPSHOT = json.loads(Path("examples/snapshot.json").read_text(encoding="utf-8"))["items"]


PROXY = "/api/v1/namespaces/kf/pods/server-1:9000/proxy/metrics"


def answered(path, query, body):
    """Answer a probe as the webhook does."""
    nonce = body["metadata"]["annotations"][review.PROBE]
    return 201, [("Warning", f'299 - "{review.probe_warning(nonce, seen_by="web-1 0.1.0")}"')], body


def unanswered(path, query, body):
    return 201, [], body


def status(folder, *objects, words=(), forbidden=(), told=None, created=answered, **texts):
    """Ask for the status of a cluster whose server tells these metrics."""
    given = {"/version": (200, [], {"gitVersion": "v1.36.0"})}
    given[PROXY] = (200, [], metrics() if told is None else told)
    made = [each() if callable(each) else each for each in objects]
    cluster = Cluster(*made, forbidden=forbidden, created=created, texts={**given, **texts})
    return call_on(cluster, folder, "status", *words, namespace="research")


def lines_of(result):
    return [" ".join(line.split()) for line in result.output.splitlines()]


def from_now(**given):
    return datetime.now(UTC) + timedelta(**given)


def ready(value="True", message="all options can be taken", generation=1, tested=()):
    """A status; *tested* is the status and the message of the condition KueueTested."""
    of_all = {"lastTransitionTime": "2026-11-21T05:00:00Z", "reason": "Judged"}
    condition = {"type": "Ready", "status": value, "message": message, **of_all}
    found = [{**condition, "observedGeneration": generation}]
    if tested:
        found.append({"type": "KueueTested", "status": tested[0], "message": tested[1], **of_all})
    return {"conditions": found}


def with_status(status, *, generation=1, hours_old=1):
    """The snapshot, with its policy judged."""
    found = copy.deepcopy(SNAPSHOT)
    for item in found:
        if item["kind"] == "FallbackPolicy":
            item["metadata"]["generation"] = generation
            item["metadata"]["creationTimestamp"] = from_now(hours=-hours_old).isoformat()
            item["status"] = status
    return found


def lease(*, holder="controller-1", age=2.0):
    renewed = from_now(seconds=-age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "kind": "Lease",
        "metadata": {
            "name": "kueue-fallback-controller",
            "namespace": "kf",
            "resourceVersion": "1",
        },
        "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15},
    }


def configuration(*, days=365, bundle=None):
    authority = new_authority("ours", now=from_now(days=-10), lifetime=timedelta(days=days))
    bundle = base64.b64encode(authority.certificate_pem).decode() if bundle is None else bundle
    config = {"service": {"namespace": "kf", "name": "kueue-fallback"}, "caBundle": bundle}
    return {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kueue-fallback"},
        "webhooks": [{"name": "create.kueue-fallback.dev", "clientConfig": config}],
    }


def pod(*, is_ready=True):
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    labels = {
        "app.kubernetes.io/name": "kueue-fallback",
        "app.kubernetes.io/component": "webhook",
    }
    ports = [{"name": "webhook", "containerPort": 1}, {"name": "metrics", "containerPort": 9000}]
    return {
        "kind": "Pod",
        "metadata": {"name": "server-1", "namespace": "kf", "labels": labels},
        "spec": {"containers": [{"name": "webhook", "ports": ports}]},
        "status": {"conditions": conditions},
    }


def worker(name, status=None, message=""):
    """A MultiKueueCluster, judged by Kueue or not."""
    condition = {"type": "Active", "status": status, "message": message}
    conditions = [] if status is None else [condition]
    return {
        "kind": "MultiKueueCluster",
        "metadata": {"name": name},
        "status": {"conditions": conditions},
    }


def deployed(name, *, ready, wanted=2, namespace="kf"):
    """A Deployment of ours, or Kueue's."""
    return {
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "kueue-fallback"},
        },
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": 1, **({"readyReplicas": ready} if ready else {})},
    }


def metrics(*, age="0.4", hours=20, clusters=None, untested=(), handshakes=0, matched=()):
    until = from_now(hours=hours, minutes=1).timestamp()
    expires = "kueue_fallback_certificate_expiration_timestamp_seconds"
    lines = [
        "# TYPE kueue_fallback_state_age_seconds gauge",
        f"kueue_fallback_state_age_seconds {age}",
        "# TYPE kueue_fallback_state_age_limit_seconds gauge",
        "kueue_fallback_state_age_limit_seconds 15.0",
        f"# TYPE {expires} gauge",
        f'{expires}{{certificate="serving"}} {until}',
    ]
    lines += ["# TYPE kueue_fallback_cluster_state_age_seconds gauge"]
    lines += [
        f'kueue_fallback_cluster_state_age_seconds{{cluster="{name}"}} {seconds}'
        for name, seconds in (clusters or {}).items()
    ]
    lines += ["# TYPE kueue_fallback_kueue_untested gauge"]
    lines += [
        f'kueue_fallback_kueue_untested{{reason="{reason}"}} {float(reason in untested)}'
        for reason in ("VersionUntested", "VersionUnknown")
    ]
    lines += [
        "# TYPE kueue_fallback_unanswered_total counter",
        f'kueue_fallback_unanswered_total{{reason="handshake"}} {handshakes}',
        "# TYPE kueue_fallback_decisions_total counter",
    ]
    lines += [
        f'kueue_fallback_decisions_total{{policy="{policy}",option="{option}"}} 1.0'
        for policy in matched
        for option in ("gpu", "cpu")
    ]
    return "\n".join(lines) + "\n"


WELL = (lease, configuration, pod)
"""Made when they are asked for: a Lease does not last."""


def without(made, *others):
    return [each for each in WELL if each is not made] + list(others)
