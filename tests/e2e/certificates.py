"""What the tests of certificates share: an installation that rotates fast, and clients that count.

Every call is a probe, which is answered with a warning: under failurePolicy Ignore a call that the
API server does not get through would otherwise pass unnoticed.
"""

import base64
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from hack import bodies, load, paper
from hack.install import NAMESPACE, ROOT, SERVICE, Installation
from tests.conftest import FULL
from tests.e2e.plane import wait_for

SECRET = "kueue-fallback-ca"
CONFIGURATION = "kueue-fallback"
REGISTRATION = "admissionregistration.k8s.io/v1"
PROBE = "kueue-fallback.dev/probe"
# Long enough for a machine on which an API server under load answers late.
LEAF_SECONDS = 24 if FULL else 12
SETTLE_SECONDS = 4 if FULL else 2
VALUES = (
    "settings.ca_lifetime=3600",
    f"settings.leaf_lifetime={LEAF_SECONDS}",
    f"settings.ca_settle={SETTLE_SECONDS}",
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


def take_bundle_away(plane):
    """Set both webhooks' to nothing, as a chart that is installed with --force does."""
    path = plane.client.path(REGISTRATION, "MutatingWebhookConfiguration", name=CONFIGURATION)
    gone = [
        {"op": "remove", "path": f"/webhooks/{number}/clientConfig/caBundle"} for number in (0, 1)
    ]
    plane.client.send("PATCH", path, gone, content_type="application/json-patch+json")


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


def probe(plane, nonce):
    """Create a Job as a dry run; return the webhook's warnings."""
    job = paper.light_job(f"probe-{nonce}", paper.Names())
    job["metadata"]["annotations"] = {PROBE: nonce}
    return plane.client.create_for_answer(job, dry_run=True).warnings


class Load:
    """Calls through the API server and to the replicas themselves, until the block ends."""

    def __init__(self, plane, installed, folder, *, rate):
        self._plane, self._installed, self._folder = plane, installed, folder
        self._rate = rate
        self._end = threading.Event()
        self.through, self.direct = [], []

    def __enter__(self):
        load.program()
        self._pool = ThreadPoolExecutor(max_workers=2)
        self._runs = [self._pool.submit(self._jobs), self._pool.submit(self._reviews)]
        return self

    def __exit__(self, *_):
        self._end.set()
        for run in self._runs:
            run.result()
        self._pool.shutdown()

    def _jobs(self):
        """Create Jobs as dry runs; the program is started again and again, to notice the end."""
        job = paper.light_job(f"light-{bodies.NUMBER}", paper.Names())
        job["metadata"]["annotations"] = {PROBE: "load"}
        path = self._folder / "jobs"
        path.write_text(json.dumps(job))
        pki = self._plane.pki
        target = load.ApiServer(
            port=self._plane.api_port,
            authority=pki.certificate("ca"),
            certificate=pki.certificate("admin"),
            key=pki.key("admin"),
            namespace="default",
            bodies=path,
        )
        while not self._end.is_set():
            flags = (f"-rate={self._rate}", "-seconds=5", "-dry-run")
            self.through.append(load.jobs(target, *flags))

    def _reviews(self):
        """Post reviews over new connections every second, trusting the live caBundle alone."""
        path = self._folder / "reviews"
        path.write_text(bodies.review(paper.Names()))
        authority = self._folder / "live-ca.crt"
        for number in range(1_000_000):
            if self._end.is_set():
                return
            authority.write_text(bundle(self._plane))
            replica = self._installed.replicas[number % len(self._installed.replicas)]
            target = load.Webhook(
                port=replica.listen,
                authority=authority,
                server_name=f"{SERVICE}.{NAMESPACE}.svc",
                bodies=path,
            )
            self.direct.append(load.reviews(target, f"-rate={self._rate}", "-seconds=1"))

    def failures(self):
        """Tell what went wrong, and what was let pass without the webhook's answer."""
        found = {}
        for each in (*self.through, *self.direct):
            for kind, count in each["errors"].items():
                found[kind] = found.get(kind, 0) + count
        silent = sum(each["calls"] - each["notes"].get("warned", 0) for each in self.through)
        return {**found, **({"let pass": silent} if silent else {})}

    def calls(self):
        return sum(each["calls"] for each in (*self.through, *self.direct))


@contextlib.contextmanager
def probing(plane):
    """Probe ten times a second meanwhile; yields the list of probes without an answer."""
    missed, end = [], threading.Event()

    def run():
        number = 0
        while not end.is_set():
            number += 1
            if not probe(plane, str(number)):
                missed.append(time.monotonic())
            end.wait(0.1)

    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(run)
        try:
            yield missed
        finally:
            end.set()
            running.result()


def wait_until_whole(plane, installed):
    """Wait until nothing is amiss any more, as the admin and the replicas see it."""

    def whole():
        return certs(plane, "show").returncode == 0 and all(
            readiness(replica) == (200, "ok") for replica in installed.replicas
        )

    wait_for(whole, "the certificates are whole again", timeout_seconds=60)
