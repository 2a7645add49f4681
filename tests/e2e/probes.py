"""Calls that notice when the webhook was not asked.

Each is a probe, which is answered with a warning: under failurePolicy Ignore a call that the API
server does not get through would otherwise pass unnoticed.
"""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

from hack import bodies, load, paper
from hack.install import NAMESPACE, SERVICE
from tests.e2e.certificates import bundle

PROBE = "kueue-fallback.dev/probe"


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
            self.direct.append(
                load.reviews(target, f"-rate={self._rate}", "-seconds=1", "-timeout=10s")
            )

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
    """Probe again and again meanwhile; yields the list of probes without an answer."""
    missed, end = [], threading.Event()

    def run():
        number = 0
        while not end.is_set():
            number += 1
            if not probe(plane, str(number)):
                missed.append(number)

    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(run)
        try:
            yield missed
        finally:
            end.set()
            running.result()
