"""``report --slices``: how devices are better cut, by what Jobs waited. It applies nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webhook.api.kubernetes_api import Forbidden, KubernetesApi
from webhook.api.watch import list_pages
from webhook.hindsight import repartition
from webhook.hindsight.coverage import coverage
from webhook.hindsight.device_pools import read_pools
from webhook.hindsight.slices_table import SlicesReport, slices_report
from webhook.state.snapshot_file import read_objects

if TYPE_CHECKING:
    from webhook.commands.history import ClusterHistory

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"


@dataclass(slots=True)
class NodesAndPods:
    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    pods: list[Mapping[str, Any]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def from_file(path: str) -> NodesAndPods:
    """Read Nodes and Pods of a saved state.

    Raises:
        FieldError: it cannot be read.

    """
    found = NodesAndPods()
    for source, _ in read_objects(path):
        if source.get("kind") == "Node":
            found.nodes.append(source)
        elif source.get("kind") == "Pod":
            found.pods.append(source)
    return found


def from_cluster(client: KubernetesApi) -> NodesAndPods:
    """List them with the user's rights; without Pods it is not known which Jobs must end.

    Raises:
        Forbidden: Nodes may not be listed.

    """
    found = NodesAndPods(nodes=list(_listed(client, _NODES)))
    try:
        found.pods += _listed(client, _PODS)
    except Forbidden as error:
        found.unread.append(str(error))
    return found


def _listed(client: KubernetesApi, path: str) -> Iterator[Mapping[str, Any]]:
    for page in list_pages(client, path):
        yield from page.get("items") or ()


def report_of(
    past: ClusterHistory, present: NodesAndPods, *, since: float, until: float
) -> SlicesReport:
    """Return advice by the Jobs that came in that time, in seconds since 1970."""
    covered = coverage(past.oldest_slot, since=since, until=until)
    if past.state is None:
        return slices_report((), (), ["queues may not be read"], covered=covered, unix=until)
    snapshot = past.state.snapshot(0.0, until)
    entries = [entry for entry in past.entries if since <= entry.created <= until]
    uses = past.state.learned(until).uses
    found = read_pools(present.nodes, present.pods, entries, snapshot.setup.flavors, uses)
    advice = [repartition.advise(pool.device, pool.before, pool.demands) for pool in found.pools]
    return slices_report(found.pools, advice, found.left_out, covered=covered, unix=until)
