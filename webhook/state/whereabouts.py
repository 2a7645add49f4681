"""In which option a Workload really stands: a move of the queue label alone leaves its marks.

Kueue would not take over changed marks (see ``jobs.movable``), so the queue tells what they do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from webhook.model.policy.fallback_policy import Option
from webhook.state.workload import Workload


def standing(workload: Workload, cluster_queue: str, options: Sequence[Option]) -> Workload:
    """Name the option by the queue where the mark does not fit it; *options* are the policy's.

    *cluster_queue* is the one in which it counts. Where no option fits, the mark stays.
    """
    there = [option.name for option in options if _is_of(option, workload, cluster_queue)]
    if not there or workload.option in there:
        return workload
    return workload._replace(option=there[0])


def _is_of(option: Option, workload: Workload, cluster_queue: str) -> bool:
    if option.queue:
        return option.queue == workload.queue
    return option.cluster_queue == cluster_queue
