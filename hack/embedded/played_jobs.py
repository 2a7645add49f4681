"""The Job controller and the nodes of a cluster, played: Jobs run for as long as they say.

There are no pods: nothing of ours reads them. How long a Job runs is said by the same annotations
of its pod template as beside KWOK (``hack.kwok``).
"""

import math
import time
from collections.abc import Mapping
from typing import Final

from hack.embedded.control_loop import Object, Writer
from hack.embedded.played_kueue import JOBS, PATHS, written_now
from hack.kwok import ACCELERATOR_LABEL, CPU_FAILS, GPU, STARTS_IN
from webhook.api.resources import Key, key_of
from webhook.model.policy.fallback_policy import seconds

RUN: Final = "sim.example.com/{}-run"
SHORT: Final = "1s"
"""Of a Job that says nothing."""


class PlayedJobs:
    """Runs all Jobs that are not suspended."""

    paths: Mapping[str, str] = {JOBS: PATHS[JOBS]}

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._due: dict[Key, tuple[float, str]] = {}
        """When the next thing happens to a Job, on the monotonic clock, and its UID."""

    def note(self, kind: str, event: str, source: Object) -> None:  # noqa: ARG002 - of the protocol
        key, uid = key_of(source), source["metadata"]["uid"]
        if event == "DELETED" or _has_ended(source):
            self._due.pop(key, None)
        elif source["spec"].get("suspend"):
            is_told = (source.get("status") or {}).get("startTime") is None
            if is_told:
                self._due.pop(key, None)
            else:
                self._due[key] = 0.0, uid
        elif self._due.get(key, (0.0, ""))[1] != uid:
            self._due[key] = 0.0, uid

    def act(self) -> float:
        for key, (due, uid) in list(self._due.items()):
            job = self._writer.known[JOBS].get(key)
            if job is not None and due <= time.monotonic():
                after = self._go_on(job)
                if key in self._due:
                    self._due[key] = time.monotonic() + after, uid
        return min((due for due, _ in self._due.values()), default=math.inf)

    def _go_on(self, job: Object) -> float:
        """Take a Job's next step; return in how many seconds the one after it comes."""
        status, template = job.get("status") or {}, job["spec"]["template"]
        said = template.get("metadata", {}).get("annotations") or {}
        pods = job["spec"].get("parallelism", 1)
        if job["spec"].get("suspend"):
            self._write(job, _SUSPENDED, startTime=None, active=0, ready=0)
            return math.inf
        if status.get("startTime") is None:
            delay = seconds(said.get(STARTS_IN, "0s"))
            ready = 0 if delay else pods
            self._write(job, _RESUMED, startTime=written_now(), active=pods, ready=ready)
            return delay or _run_seconds(job)
        if status.get("ready", 0) < pods:
            self._write(job, ready=pods)
            return _run_seconds(job)
        if CPU_FAILS in said and not _has_gpu(job):
            self._write(job, *_failed(), active=0, ready=0, failed=1)
        else:
            done = job["spec"].get("completions", pods)
            ended = {"active": 0, "ready": 0, "succeeded": done, "completionTime": written_now()}
            self._write(job, *_completed(), **ended)
        return math.inf

    def _write(self, job: Object, *conditions: Object, **status: object) -> None:
        metadata, now = job["metadata"], written_now()
        told = {condition["type"] for condition in conditions}
        before = (job.get("status") or {}).get("conditions") or ()
        kept = [condition for condition in before if condition["type"] not in told]
        new = [{**each, "lastProbeTime": now, "lastTransitionTime": now} for each in conditions]
        path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}/status"
        self._writer.patch(JOBS, path, {"status": {**status, "conditions": [*kept, *new]}})


_SUSPENDED: Final = {
    "type": "Suspended",
    "status": "True",
    "reason": "JobSuspended",
    "message": "Job suspended",
}
_RESUMED: Final = {
    "type": "Suspended",
    "status": "False",
    "reason": "JobResumed",
    "message": "Job resumed",
}


def _completed() -> list[Object]:
    message = "Reached expected number of succeeded pods"
    said = {"status": "True", "reason": "CompletionsReached", "message": message}
    return [{"type": name, **said} for name in ("SuccessCriteriaMet", "Complete")]


def _failed() -> list[Object]:
    message = "Job has reached the specified backoff limit"
    said = {"status": "True", "reason": "BackoffLimitExceeded", "message": message}
    return [{"type": name, **said} for name in ("FailureTarget", "Failed")]


def _has_ended(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions
    )


def _has_gpu(job: Object) -> bool:
    containers = job["spec"]["template"]["spec"]["containers"]
    return any(GPU in each.get("resources", {}).get("limits", {}) for each in containers)


def _run_seconds(job: Object) -> float:
    """Return for how long a Job runs: as ``hack.kwok.RUN_TIME`` has it of its pods."""
    template = job["spec"]["template"]
    said = template.get("metadata", {}).get("annotations") or {}
    device = (template["spec"].get("nodeSelector") or {}).get(ACCELERATOR_LABEL, "")
    own = said.get(RUN.format(device))
    text = own or said.get(RUN.format("gpu" if _has_gpu(job) else "cpu"), SHORT)
    rounds: int = -(-job["spec"].get("completions", 1) // job["spec"].get("parallelism", 1))
    return seconds(text) * rounds
