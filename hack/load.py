"""Post reviews at a fixed rate over kept-alive TLS connections, as an API server does.

usage: python -m hack.load PORT AUTHORITY NAMESPACE [--rate 200] [--seconds 20]

It is an open loop: each review has its moment, and a late answer delays no other review. Prints
{"answers": [[milliseconds since its moment, milliseconds since it was sent], ...], ...} as JSON.
"""

import argparse
import base64
import http.client
import itertools
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from hack import paper

Object = dict[str, Any]

CONNECTIONS: Final = 8
VARIABLES: Final = 17
LEAD_SECONDS: Final = 0.5
"""Between the threads' start and the first review."""


def body(number: int, names: paper.Names) -> bytes:
    """Return the review of one light Job, with what the API server and kubectl add to it."""
    job = paper.light_job(f"light-{number}", names)
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] += [{"name": f"VARIABLE_{n}", "value": f"{n}"} for n in range(VARIABLES)]
    container |= {"imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
    pod |= {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    job["spec"] |= {"parallelism": 1, "completions": 1, "completionMode": "NonIndexed"}
    entry = {"manager": "kubectl-create", "operation": "Update", "apiVersion": "batch/v1"}
    job["metadata"]["managedFields"] = [{**entry, "fieldsV1": _owned(job["spec"])}]
    called = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": "CREATE",
        "name": job["metadata"]["name"],
        "namespace": names.namespace,
        "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
        "object": job,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": called}
    return json.dumps(review).encode()


def _owned(value: Object) -> Object:
    return {
        f"f:{name}": _owned(inner) if isinstance(inner, dict) else {}
        for name, inner in value.items()
    }


class Load:
    """Reviews that are posted, each at its moment, by whoever is free."""

    def __init__(self, port: int, authority: str, bodies: list[bytes], *, rate: float) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=authority)
        self._bodies = bodies
        self._rate = rate
        self._next: Iterator[int] = itertools.count()
        self._start = 0.0
        self.answers: list[tuple[float, float]] = []
        self.patched = 0
        self.failed = 0

    def run(self) -> None:
        self._start = time.perf_counter() + LEAD_SECONDS
        threads = [threading.Thread(target=self._post_in_turn) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _post_in_turn(self) -> None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._tls, timeout=30
        )
        connection.connect()
        while (number := next(self._next)) < len(self._bodies):
            moment = self._start + number / self._rate
            time.sleep(max(0.0, moment - time.perf_counter()))
            sent = time.perf_counter()
            answer = _post(connection, self._bodies[number])
            now = time.perf_counter()
            self.answers.append(((now - moment) * 1000, (now - sent) * 1000))
            self._note(answer)
        connection.close()

    def _note(self, answer: Object) -> None:
        if not answer.get("allowed"):
            self.failed += 1
        operations = json.loads(base64.b64decode(answer.get("patch", "W10=")))
        self.patched += any(item["path"].startswith("/spec/") for item in operations)


def _post(connection: http.client.HTTPSConnection, content: bytes) -> Object:
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/mutate?timeout=2s", content, headers)
    response = connection.getresponse()
    text = response.read()
    found: Object = json.loads(text)["response"] if response.status == http.client.OK else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.load")
    parser.add_argument("port", type=int)
    parser.add_argument("authority")
    parser.add_argument("namespace")
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    names = paper.Names(namespace=given.namespace)
    bodies = [body(number, names) for number in range(int(given.rate * given.seconds))]
    load = Load(given.port, given.authority, bodies, rate=given.rate)
    load.run()
    print(
        json.dumps({"answers": load.answers, "patched": load.patched, "failed": load.failed}),
        flush=True,
    )


if __name__ == "__main__":
    main()
