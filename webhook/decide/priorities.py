"""Which priority a Job's Workload has."""

from __future__ import annotations

from webhook.model.job import PRIORITY_LABEL, Job
from webhook.model.policy import Option
from webhook.model.queues import Snapshot


def priority_of(job: Job, option: Option, snapshot: Snapshot) -> int:
    """Find the Workload's priority under an option; 0 where its class is not known."""
    name = (option.guests.priority_class if option.guests else "") or job.labels.get(
        PRIORITY_LABEL, ""
    )
    return snapshot.priority_classes.get(name, 0)
