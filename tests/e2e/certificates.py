"""What the tests of certificates share: an installation that rotates fast, and looks at it."""

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

from hack import tools
from hack.install import NAMESPACE, ROOT, Installation
from hack.waiting import wait_for
from tests.conftest import FULL

SECRET = "kueue-fallback-ca"
CONFIGURATION = "kueue-fallback"
REGISTRATION = "admissionregistration.k8s.io/v1"
# Long enough for a machine on which an API server under load answers late.
LEAF_SECONDS = 24 if FULL else 12
SETTLE_SECONDS = 4 if FULL else 2
VALUES = (
    "settings.ca_lifetime=3600",
    f"settings.leaf_lifetime={LEAF_SECONDS}",
    f"settings.ca_settle={SETTLE_SECONDS}",
    # What is refused is refused at once; a busy machine must not look like that.
    "webhook.timeoutSeconds=10",
)
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"


def install(plane):
    return Installation(plane, replicas=2, certificates="selfManaged", chart_values=VALUES)


def certs(plane, *arguments):
    """Run ``python -m certs`` as the admin."""
    return subprocess.run(
        [sys.executable, "-m", "certs", *arguments, f"--kubeconfig={plane.kubeconfig}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def authorities(plane):
    """Return part to fingerprints, as ``show`` tells them."""
    found = json.loads(certs(plane, "show", "-o", "json").stdout)
    parts = {}
    for each in found["authorities"]:
        parts.setdefault(each["part"], []).append(each["fingerprint"])
    return parts


def secret(plane):
    return plane.client.find("v1", "Secret", SECRET, namespace=NAMESPACE)


def bundle(plane):
    """Return the caBundle of the first webhook, as PEM text."""
    found = plane.client.get(REGISTRATION, "MutatingWebhookConfiguration", CONFIGURATION)
    texts = {each["clientConfig"].get("caBundle", "") for each in found["webhooks"]}
    return base64.b64decode(min(texts)).decode()


def change_bundle(plane, configuration, operation):
    """Apply one operation of JSON Patch to the caBundle of both webhooks."""
    places = (f"/webhooks/{number}/clientConfig/caBundle" for number in (0, 1))
    operations = [{**operation, "path": path} for path in places]
    plane.client.patch(REGISTRATION, "MutatingWebhookConfiguration", configuration, operations)


def readiness(replica):
    """Return status and text of a replica's /readyz."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{replica.metrics}/readyz") as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


def metric(replica, name, **labels):
    with urllib.request.urlopen(f"http://127.0.0.1:{replica.metrics}/metrics") as answer:
        text = answer.read().decode()
    wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
    found = re.search(rf"^{name}\{{{wanted}\}} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def leaves(installed):
    """Count the certificates that the replicas have taken into use."""
    name = "kueue_fallback_certificate_reloads_total"
    return sum(metric(replica, name, result="success") for replica in installed.replicas)


def fail_opens(plane):
    """Count the calls that the API server gave up and let pass."""
    text = plane.client.send("GET", "/metrics").body.decode()
    series = re.findall(rf"^{FAIL_OPEN}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return sum(float(count) for labels, count in series if "kueue-fallback" in labels)


def wait_until_whole(plane, installed):
    """Wait until nothing is amiss any more, as the admin and the replicas see it."""

    def whole():
        return certs(plane, "show").returncode == 0 and all(
            readiness(replica) == (200, "ok") for replica in installed.replicas
        )

    wait_for(whole, "the certificates are whole again")


def helm(plane, folder, what, release, *words):
    """Run helm for a release of this checkout's chart, of which no process runs."""
    homes = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    chart = [] if what == "uninstall" else [ROOT / "helm", "--set=crds.install=false"]
    place = ("--no-hooks", "--kubeconfig", plane.kubeconfig, "-n", release)
    subprocess.run(
        [tools.program("helm"), what, release, *chart, *place, *words],
        check=True,
        capture_output=True,
        env={**os.environ, **{home: str(folder / home) for home in homes}},
    )


def write_authority(plane, release, *, data, annotations, bundle):
    """Write what the servers of a release would write."""
    plane.client.patch(
        "v1",
        "Secret",
        f"{release}-ca",
        {"data": data, "metadata": {"annotations": annotations}},
        namespace=release,
    )
    change_bundle(plane, release, {"op": "add", "value": bundle})
