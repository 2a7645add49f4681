"""The controllers of RayJobs and JobSets, played: each Job runs for a moment when it may.

What a run would start with is written down, as its pods would be made of it.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hack.api import ApiClient, ApiError, Object
from webhook.jobs import BY_NAME, JobKind

POLL_SECONDS = 0.2
START_SECONDS = 3.0
"""Pods are made, scheduled and ready: nothing runs yet, so quota may be taken back meanwhile."""
RUN_SECONDS = 0.6


@dataclass(kw_only=True)
class Run:
    began: float
    job: Object
    """As it was when it began."""
    is_ready: bool = False
    is_over: bool = False


@dataclass(kw_only=True)
class PlayedControllers:
    """Runs of Jobs by the UID of the Job."""

    client: ApiClient
    namespace: str
    kinds: tuple[JobKind, ...]
    runs: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    interrupted: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    """Runs of Jobs that were suspended again."""

    @contextlib.contextmanager
    def running(self) -> Iterator["PlayedControllers"]:
        ending = threading.Event()

        def play() -> None:
            while not ending.wait(POLL_SECONDS):
                for kind in self.kinds:
                    for job in self._jobs(kind):
                        self._turn(kind, job)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ending.set()
            thread.join()

    def _jobs(self, kind: JobKind) -> list[Object]:
        return self.client.list(kind.api_version, kind.kind, namespace=self.namespace)

    def _turn(self, kind: JobKind, job: Object) -> None:
        runs = self.runs[job["metadata"]["uid"]]
        now = time.monotonic()
        if runs and runs[-1].is_over:
            return
        is_suspended = job["spec"].get("suspend") is True
        if is_suspended and runs:
            self.interrupted[job["metadata"]["uid"]].append(runs.pop())
            self._tell(kind, job, "suspended")
        elif not is_suspended and not runs:
            runs.append(Run(began=now, job=job))
        elif runs and job["spec"] != runs[-1].job["spec"]:
            # Only while it was suspended can that have changed: it was between two looks.
            self.interrupted[job["metadata"]["uid"]].append(runs.pop())
            runs.append(Run(began=now, job=job))
        elif runs and now - runs[-1].began > START_SECONDS + RUN_SECONDS:
            runs[-1].is_over = self._tell(kind, job, "over")
        elif runs and now - runs[-1].began > START_SECONDS and not runs[-1].is_ready:
            runs[-1].is_ready = self._tell(kind, job, "running")

    def _tell(self, kind: JobKind, job: Object, what: str) -> bool:
        """Write a status; a Job that has changed meanwhile gets it at the next turn."""
        status = _STATUS[kind.kind](what)
        path = f"{self.client.path_of(job)}/status"
        version = job["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": status}
        try:
            self.client.send("PATCH", path, body, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


def _of_rayjob(what: str) -> Object:
    written: dict[str, tuple[str, str]] = {
        "running": ("Running", "RUNNING"),
        "suspended": ("Suspended", ""),
        "over": ("Complete", "SUCCEEDED"),
    }
    deployment, job = written[what]
    return {"jobDeploymentStatus": deployment, "jobStatus": job}


def _of_jobset(what: str) -> Object:
    active = int(what == "running")
    counts = {"active": active, "ready": active, "failed": 0, "suspended": 0}
    counts["succeeded"] = int(what == "over")
    status: dict[str, Any] = {"replicatedJobsStatus": [{"name": "workers", **counts}]}
    if what == "over":
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted"}
        status["conditions"] = [{**ended, "message": "all are", "lastTransitionTime": time}]
        status["terminalState"] = "Completed"
    return status


_STATUS = {"RayJob": _of_rayjob, "JobSet": _of_jobset}
KINDS = tuple(BY_NAME[name] for name in _STATUS)
