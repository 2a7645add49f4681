"""Turns a Workload into what a server needs to find the placement that it remembers of its Job.

That is the decision's id, or else the Job's name. It must not know what is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

from webhook.state.workload import Workload

OF_A_JOB = "job:"
"""Begins the key of a placement that names its Job, as it has no decision's id."""


class SeenWorkload(NamedTuple):
    """A Workload that was observed, with what identifies its Job even without decision or name."""

    key: str
    """The decision's id, or ``job:<namespace>/<name>``."""
    namespace: str = ""
    job_name: str = ""
    local_queue: str = ""


def as_seen(workload: Workload) -> SeenWorkload | None:
    """Return the Workload as one that was observed; None: neither decision nor Job is known."""
    key = key_of_placement(workload)
    if not key:
        return None
    return SeenWorkload(key, workload.namespace, workload.job, workload.queue)


def key_of_placement(workload: Workload) -> str:
    """Return the key of its placement: the decision's id, else its Job; empty: it has neither."""
    if workload.decision_id:
        return workload.decision_id
    return f"{OF_A_JOB}{workload.namespace}/{workload.job}" if workload.job else ""
