"""Jobs that the webhook was not asked about, on any plane: how many of them are counted."""

import re
import time
import urllib.request

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import wait_until_policy_decides
from webhook.controller.unreviewed import MARGIN_SECONDS

NAMES = paper.names_with("unreviewed", namespace="enforced")
OBSERVED = paper.names_with("observed", namespace="observed")
_WHOLE_SECONDS = 1
"""Created is said in whole seconds, so a Job may seem to be so much older."""
_NEWS_SECONDS = 5
"""The margin begins when the controller knows of a change, which nothing tells from outside."""
WEBHOOKS = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "kueue-fallback")
COUNTED = re.compile(r'kueue_fallback_unreviewed_jobs_total\{policy="([^"]+)"\} (\S+)')


def put_in_force(plane, webhook):
    """Apply a policy that enforces and one that observes; return when both count for a while."""
    for names, mode in ((NAMES, "Enforce"), (OBSERVED, "Observe")):
        plane.client.apply(namespace(names))
        plane.client.apply_all(paper.queues(names))
        plane.client.apply(paper.policy(names, mode=mode))
    wait_for(lambda: counted(webhook) == {NAMES.policy: 0}, "the controller counts from zero")
    wait_until_policy_decides(plane.client, NAMES)
    pass_margin()


def namespace(names, **labels):
    metadata = {"name": names.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def counted(webhook):
    """Return how many were counted of each policy."""
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        return {name: float(value) for name, value in COUNTED.findall(answer.read().decode())}


def pass_margin():
    """Wait until a change counts for the Jobs that are created from now on."""
    changed = time.time()
    late = _WHOLE_SECONDS + _NEWS_SECONDS
    wait_for(lambda: time.time() > changed + MARGIN_SECONDS + late, "the margin has passed")
