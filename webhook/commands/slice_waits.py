"""What ``explain`` says of a pending Job that asks for slices: whose end frees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webhook.api.kubernetes_api import Forbidden
from webhook.commands.decision_table import state_of
from webhook.commands.kubectl import listed
from webhook.hindsight.freed_slices import UNFINISHED_PODS, FreedSlices, freed_slices, slices_asked
from webhook.hindsight.slice_advice import device_nodes
from webhook.model.fields import FieldError

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.jobs import JobKind


def slice_waits(
    client: Client, job: Mapping[str, Any], kind: JobKind
) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
    """Return sentences on the slices that a pending Job asks for, and the same for programs.

    Nodes and Pods are read with the user's rights, if it waits for any.
    """
    asked: Counter[str] = Counter()
    try:
        for pod_set in kind.read(job).pod_sets if state_of(job, kind) == "pending" else ():
            asked |= Counter(slices_asked(pod_set.template))
        if not asked:
            return (), ()
        pods = listed(client, "/api/v1/pods", {"fieldSelector": UNFINISHED_PODS})
        nodes, _ = device_nodes(listed(client, "/api/v1/nodes"), pods)
    except (Forbidden, FieldError) as error:
        return (f"What would free its slices is not known: {error}.",), ()
    found = [(name, count, freed_slices(nodes, name, count)) for name, count in asked.items()]
    return (
        [_sentence(*each) for each in found],
        [
            {"resource": name, "count": count, "freed": [each.figures() for each in freed]}
            for name, count, freed in found
        ],
    )


def _sentence(resource: str, count: int, freed: Sequence[FreedSlices]) -> str:
    slices = resource if count == 1 else f"{count} x {resource}"
    if not freed:
        return f"{slices}: no Node is known that can give it to a pod."
    return f"{slices}: free {', or '.join(each.words for each in freed)}."
