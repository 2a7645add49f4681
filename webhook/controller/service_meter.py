"""What services did at one time, by the metrics of their pods: of a class, and where it ran. Pure.

Pods are told by their names, as Kubernetes makes them, so no pod is read.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from webhook.api.resources import Key
from webhook.controller.followed_watches import DecidedService
from webhook.cost.learned_serving import place_of
from webhook.learn.run_records import ClassRecord
from webhook.learn.service_points import MOST_REPLICAS, ServicePoint, pack_points
from webhook.model.costs.devices import DeviceSample
from webhook.model.job import reference_of
from webhook.model.queues import ClusterQueue

SETTLED_SECONDS: Final = 900.0
"""After a decision or a move, until all of a service's pods are taken for those of its option."""
_SUFFIXES: Final = {
    "Deployment": re.compile(r"-[a-z0-9]{1,10}-[a-z0-9]{5}\Z"),
    "StatefulSet": re.compile(r"-[0-9]+\Z"),
    # Only leaders, which answer: a worker's name has its own number behind that of its group.
    "LeaderWorkerSet": re.compile(r"-[0-9]+\Z"),
}
"""What is added to a service's name in those of its pods, by its kind."""


def observed(
    rates: Iterable[DeviceSample],
    latencies: Iterable[DeviceSample],
    services: Mapping[Key, DecidedService],
    queues: Mapping[str, ClusterQueue],
    asked: float,
) -> Iterator[tuple[str, ClassRecord]]:
    """Yield what is learned of classes from the answers about the pods of *services*.

    These are by namespace and reference; *asked* is then, in seconds since 1970. A service is left
    out as long as its pods may still be those of another option, and if it is not known on which
    device they are.
    """
    slow = {(each.namespace, each.pod): each.value for each in latencies}
    pods: defaultdict[Key, list[DeviceSample]] = defaultdict(list)
    for sample in rates:
        for key in _owners(sample):
            if key in services:
                pods[key].append(sample)
    for key, samples in pods.items():
        service = services[key]
        queue = queues.get(service.cluster_queue)
        if queue is None or asked - service.since < SETTLED_SECONDS:
            continue
        point = _point(key, samples, slow, asked)
        where = place_of(queue, service.option)
        if point is not None and where:
            yield (
                service.job_class,
                ClassRecord(name=key[1], served={where: pack_points([point])}),
            )


def _owners(sample: DeviceSample) -> Iterator[Key]:
    """Yield which service of each kind the pod would be of."""
    for kind, suffix in _SUFFIXES.items():
        if found := suffix.search(sample.pod):
            yield sample.namespace, reference_of(kind, sample.pod[: found.start()])


def _point(
    key: Key,
    samples: Iterable[DeviceSample],
    slow: Mapping[tuple[str, str], float | None],
    asked: float,
) -> ServicePoint | None:
    """Return what a service did; None: no requests, or some value that cannot be true.

    Its latency is the mean of its pods', by how many requests they answered.
    """
    rates = {(each.namespace, each.pod): each.value for each in samples}
    busy = {pod: rate for pod, rate in rates.items() if rate}
    known = [(rate, latency) for pod, rate in busy.items() if (latency := slow.get(pod))]
    if None in rates.values() or not busy or len(known) < len(busy) or len(rates) > MOST_REPLICAS:
        return None
    total = sum(rate for rate, _ in known)
    return ServicePoint(
        at=int(asked),
        service=zlib.crc32("/".join(key).encode()) & 0xFFFF,
        replicas=len(rates),
        rate=total,
        latency=sum(rate * latency for rate, latency in known) / total,
    )
