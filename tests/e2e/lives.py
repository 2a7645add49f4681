"""What becomes of Jobs of other kinds once they are admitted: the pods that their controllers make.

KWOK runs these pods, and they end when a test says so; a RayJob ends by what its dashboard answers.
"""

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hack.api import ApiClient, ApiError, Object
from hack.kwok import GPU

RUNS_ON = {"sim.example.com/cpu-run": "1h", "sim.example.com/gpu-run": "1h"}
"""Annotations of pods that run until a test ends them."""


class Dashboard:
    """The dashboards of all Ray clusters; it is asked as a proxy on the way to them."""

    def __init__(self, port: int) -> None:
        self.ended: dict[str, str] = {}
        """The status that a RayJob has ended with, by its name; all others run."""
        self.asked: set[str] = set()
        """The hosts that were asked for."""
        self.address = f"http://127.0.0.1:{port}"
        played = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                played.asked.add(url.hostname or "")
                body = json.dumps(played.answer(url.path)).encode()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)

    def answer(self, path: str) -> Object:
        submission = path.rpartition("/")[2]
        found = (status for name, status in self.ended.items() if submission.startswith(f"{name}-"))
        return {"submission_id": submission, "status": next(found, "RUNNING"), "message": ""}

    @contextmanager
    def serving(self) -> Iterator["Dashboard"]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def pods_of(client: ApiClient, job: Object) -> list[Object]:
    """Return the pods that were made for a Job: its name begins theirs, or is on a label.

    A Job that is a pod is its own.
    """
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    return [
        pod
        for pod in client.list("v1", "Pod", namespace=namespace)
        if f"{pod['metadata']['name']}-".startswith(f"{name}-")
        or name in pod["metadata"].get("labels", {}).values()
    ]


def has_started(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") in {"Running", "Succeeded"})


def end(client: ApiClient, pods: list[Object], *, fails: bool = False) -> None:
    """Let pods succeed or fail, as the kubelet would report it."""
    phase, reason = ("Failed", "Error") if fails else ("Succeeded", "Completed")
    for pod in pods:
        metadata = pod["metadata"]
        terminated = {"exitCode": int(fails), "reason": reason}
        statuses = [
            {**status, "ready": False, "started": False, "state": {"terminated": terminated}}
            for status in pod["status"].get("containerStatuses", ())
        ]
        change = {"status": {"phase": phase, "containerStatuses": statuses}}
        try:
            client.patch(
                "v1",
                "Pod",
                metadata["name"],
                change,
                namespace=metadata["namespace"],
                subresource="status",
            )
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


def let_end(client: ApiClient, dashboard: Dashboard, job: Object, *, fails: bool = False) -> None:
    """Let a Job whose pods run end as those of its kind do."""
    kind, name, pods = job["kind"], job["metadata"]["name"], pods_of(client, job)
    if kind == "RayJob":
        dashboard.ended[name] = "FAILED" if fails else "SUCCEEDED"
        # The submitter follows the Ray job to its end; KubeRay takes the others away.
        pods = [pod for pod in pods if "ray.io/node-type" not in pod["metadata"]["labels"]]
    elif kind == "MPIJob":
        pods = [pod for pod in pods if "launcher" in pod["metadata"]["name"]]
    end(client, pods, fails=fails)


def gpus_of(pods: list[Object]) -> list[str]:
    """Name the pods that ask for a GPU, or for a node that has one."""
    return [
        pod["metadata"]["name"]
        for pod in pods
        if GPU in json.dumps(pod["spec"].get("containers"))
        or "nvidia.com/gpu.present" in pod["spec"].get("nodeSelector", {})
    ]


def env_of(pods: list[Object], name: str) -> list[str]:
    """Return what a variable is in the containers that have it, of all pods."""
    return sorted(
        _value(variable, pod)
        for pod in pods
        for container in pod["spec"]["containers"]
        for variable in container.get("env", ())
        if variable["name"] == name
    )


def _value(variable: Object, pod: Object) -> str:
    """Resolve a reference to an annotation, as the kubelet does when the container starts."""
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    found = re.fullmatch(r"metadata\.annotations\['(.+)'\]", path)
    return pod["metadata"].get("annotations", {}).get(found[1], "") if found else ""
