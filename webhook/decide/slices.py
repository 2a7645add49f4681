"""Tells whether the devices of an option are enough: whole ones, slices, shares, other vendors'.

Which of those that are enough is taken, prices and forecasts decide. What a Job needs of a device
is what it says itself, and of its memory else what runs of its class took; the device is judged as
the smallest that the option's ClusterQueue could give it. It must not know quota.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from webhook.adapt import accelerators
from webhook.adapt.adaptation import asked_accelerators, is_adapted
from webhook.cost.device_shares import DeviceShare, is_worse, share_of, worst
from webhook.cost.slice_geometry import USABLE
from webhook.decide.filters import OptionCandidate
from webhook.decide.wishes import Wishes
from webhook.kueue.flavor_plan import plan_flavors
from webhook.kueue.requests import declared, needs
from webhook.model import quantity
from webhook.model.costs.device_table import slice_by_name
from webhook.model.costs.devices import Device, Isolation
from webhook.model.costs.prices import NO_PRICES
from webhook.model.decision import Rejection
from webhook.model.job import Job, PodSet
from webhook.model.policy.fallback_policy import Accelerator
from webhook.model.policy.spec import UnknownMemory
from webhook.model.quantity import FlavorResource
from webhook.model.queues import ClusterQueue, PodSetNeeds
from webhook.model.reasons import Reason
from webhook.model.snapshot_parts import KueueSetup

_HAMI_MEMORY: Final = "nvidia.com/gpumem"
"""In MiB, of one device."""
_MIB: Final = 1 << 20
_NOT_DEVICES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def refusal(candidate: OptionCandidate, after: Job) -> Rejection | None:
    """Return why what replaces devices is not enough for a Job; None: it is, or nothing does.

    *after* is the Job as adapted.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    adaptation = candidate.option.adaptation
    if adaptation.accelerator is not Accelerator.REPLACE:
        return None
    replaced = [
        (old, new)
        for old, new in zip(candidate.applicant.job.pod_sets, after.pod_sets, strict=True)
        if is_adapted(old, adaptation) and asked_accelerators(old.template)
    ]
    if not replaced:
        return None
    before = [old for old, _ in replaced]
    pods = sum(new.count for _, new in replaced)
    if detail := _too_many(before, pods, allowed=candidate.applicant.policy.spec.slices.pods):
        return Rejection(reason=Reason.TOO_MANY_DEVICES, detail=detail)
    return _insufficient(candidate, before, _smallest(candidate, after))


def too_small(
    candidate: OptionCandidate,
    after: Job,
    asked: Sequence[PodSetNeeds],
    *,
    cluster: str = "",
    queue: ClusterQueue,
) -> Rejection | None:
    """Return in what a device of the option is less than a Job needs; None: in nothing known.

    *after* is the Job as adapted, and *asked* is what it asks for; *queue* is the ClusterQueue in
    the worker *cluster*, or in this one (empty). The memory of what replaces a
    device is judged by ``refusal``, which refuses what is not known, too.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    applicant = candidate.applicant
    wishes, use = applicant.wishes, applicant.device_use
    said, took = wishes.gpu_memory, None
    if said is None and use is not None and not use.preallocates:
        took = use.peak
    if candidate.option.adaptation.accelerator is Accelerator.REPLACE:
        said, took = None, None
    if said is took is wishes.gpu_bandwidth is None and not wishes.gpu_compute:
        return None
    devices = applicant.snapshot.costs.prices.get(cluster, NO_PRICES).devices
    there = applicant.occupancy.clusters[cluster] if cluster else applicant.occupancy
    for flavor, resource in _given(after, asked, queue, there.snapshot.setup):
        share, where = share_of(resource, devices.get(flavor)), f"{resource} in flavor {flavor}"
        if detail := _too_little(said, took, share, where):
            return Rejection(reason=Reason.MEMORY_TOO_SMALL, detail=detail)
        if detail := _too_slow(wishes, share, where):
            return Rejection(reason=Reason.DEVICE_TOO_SLOW, detail=detail)
    return None


def _too_little(said: int | None, took: int | None, share: DeviceShare, where: str) -> str:
    """Say that a device has less memory than a Job says, or its class took; empty: it has not."""
    if share.memory is None:
        return ""
    usable = _USABLE * share.memory
    if said is not None and said > usable:
        return f"needs {_gibibytes(said)} GiB, and of {where} {_gibibytes(usable)} are usable"
    # Without a margin: where a run was measured, it did not need more than there was.
    if took is not None and took > share.memory:
        return f"runs took {_gibibytes(took)} GiB, and {where} has {_gibibytes(share.memory)}"
    return ""


def _given(
    after: Job, asked: Sequence[PodSetNeeds], queue: ClusterQueue, setup: KueueSetup
) -> Iterator[FlavorResource]:
    """Yield each flavor, with the resource, from which the ClusterQueue could give a device."""
    for pod_set, needed in zip(after.pod_sets, asked, strict=True):
        named = sorted(filter(accelerators.counts_devices, asked_accelerators(pod_set.template)))
        if not named:
            continue
        flavors = [
            flavor
            for group in plan_flavors(needed, queue, setup).groups
            for flavor in group
            if flavor.refusal is None
        ]
        # By what Kueue counts, whose transformations may have renamed what is asked for.
        counted = [
            (flavor.name, resource)
            for flavor in flavors
            for _, resource in flavor.amounts
            if accelerators.counts_devices(resource)
        ]
        # Where it counts no devices, any of the flavors may have one.
        yield from counted or product([flavor.name for flavor in flavors], named)


def _too_slow(wishes: Wishes, share: DeviceShare, where: str) -> str:
    """Say in which speed a device is less than a Job needs; empty: in none that is known."""
    needed = wishes.gpu_bandwidth
    if needed is not None and share.bandwidth is not None and needed > share.bandwidth:
        return f"needs {needed:,.4g} GB/s of device memory, and {where} has {share.bandwidth:,.4g}"
    for kind, speed in wishes.gpu_compute:
        known = share.compute.get(kind)
        if known is not None and speed > known:
            unit = "TOPS" if kind.startswith("int") else "TFLOPS"
            return f"needs {speed:,.4g} {unit} in {kind}, and {where} has {known:,.4g}"
    return ""


def _too_many(before: list[PodSet], pods: int, *, allowed: bool) -> str:
    """Say which number of devices or of pods a slice cannot stand in for; empty: none."""
    for pod_set in before:
        devices = _devices(pod_set)
        if devices > 1:
            return f"a pod of {pod_set.name} asks for {devices} devices"
    if pods > 1 and not allowed:
        return f"{pods} pods use a device each, and the policy's slices.pods is false"
    return ""


def _devices(pod_set: PodSet) -> int:
    """Return how many devices a pod asks for; of a device's memory alone, one."""
    asked = declared(pod_set.template)
    counted = sum(n for resource, n in asked.items() if accelerators.counts_devices(resource))
    return counted or 1


def _smallest(candidate: OptionCandidate, after: Job) -> DeviceShare:
    """Return the least that the ClusterQueue could give for one device."""
    by = candidate.option.adaptation.by
    counting = [resource for resource in by if accelerators.counts_devices(resource)] or list(by)
    snapshot = candidate.applicant.snapshot
    devices = snapshot.costs.prices.get("", NO_PRICES).devices
    shares = [
        _share(resource, by, devices.get(flavor))
        for flavor in _flavors(candidate, after)
        for resource in counting
    ]
    least = min(shares, key=lambda share: -1 if share.memory is None else share.memory)
    isolation = worst(*(share.isolation for share in shares))
    return DeviceShare(resource=least.resource, memory=least.memory, isolation=isolation)


def _flavors(candidate: OptionCandidate, after: Job) -> Sequence[str]:
    """Return the ResourceFlavors from which the ClusterQueue gives something like a device.

    By what Kueue counts, whose transformations may have renamed what is asked for. Where it counts
    no devices, any of its flavors may have one; at least one flavor, if only one without a name.
    """
    pod_sets = needs(
        after, candidate.applicant.snapshot.cluster, candidate.applicant.snapshot.setup.kueue
    )
    asked = {resource for pod_set in pod_sets for resource in pod_set.per_pod} - _NOT_DEVICES
    groups = candidate.cluster_queue.groups
    giving = [group for group in groups if not asked.isdisjoint(group.resources)] or groups
    return [flavor for group in giving for flavor in group.flavors] or [""]


def _share(resource: str, by: Mapping[str, str], device: Device | None) -> DeviceShare:
    share = share_of(resource, device)
    if _HAMI_MEMORY not in by:
        return share
    given = quantity.parse(by[_HAMI_MEMORY], resource=_HAMI_MEMORY) * _MIB
    isolation = worst(share.isolation, Isolation.MEMORY)
    return DeviceShare(resource=_HAMI_MEMORY, memory=given, isolation=isolation)


def _insufficient(
    candidate: OptionCandidate, before: list[PodSet], share: DeviceShare
) -> Rejection | None:
    rules, said = candidate.applicant.policy.spec.slices, candidate.applicant.wishes.gpu_memory
    if is_worse(share.isolation, rules.isolation):
        detail = f"{share.resource} has isolation {share.isolation}"
        detail += f", and the policy wants at least {rules.isolation}"
        return Rejection(reason=Reason.NOT_ISOLATED, detail=detail)
    if share.isolation is Isolation.NONE and said is None:
        detail = f"nothing limits what a Job uses of {share.resource}, and it has no gpu-memory"
        return Rejection(reason=Reason.MEMORY_UNKNOWN, detail=detail)
    use = candidate.applicant.device_use
    need = said or _asked_memory(before)
    by = ","
    if need is None and use is not None and use.need is not None:
        need, by = use.need, f", as {use.runs} runs took at most {_gibibytes(use.peak)},"
    if need is None and _is_no_less(before, share):
        return None
    if need is None or share.memory is None:
        if rules.unknown is UnknownMemory.ALLOW:
            return None
        verb = "needs" if need is None else f"would get by {share.resource}"
        detail = f"how much device memory the Job {verb} is not known"
        if need is None and use is not None and use.preallocates:
            detail += ": what it runs takes most of a device at once"
        return Rejection(reason=Reason.MEMORY_UNKNOWN, detail=detail)
    usable = USABLE * share.memory
    if need <= usable:
        return None
    detail = f"needs {_gibibytes(need)} GiB{by} and of {share.resource} "
    detail += f"{_gibibytes(usable)} are usable"
    return Rejection(reason=Reason.MEMORY_TOO_SMALL, detail=detail)


def _asked_memory(before: list[PodSet]) -> int | None:
    """Return the bytes of a device that a Job asks for by HAMi's resource; None: it does not."""
    asked = [
        quantity.parse(amounts[_HAMI_MEMORY], resource=_HAMI_MEMORY)
        for pod_set in before
        for container in (*pod_set.template.containers, *pod_set.template.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
        if _HAMI_MEMORY in amounts
    ]
    return max(asked, default=0) * _MIB or None


def _is_no_less(before: list[PodSet], share: DeviceShare) -> bool:
    """Return whether a Job that asks for a slice gets one as large, or a whole device."""
    slices = [slice_by_name(name) for pods in before for name in asked_accelerators(pods.template)]
    memories = [part.memory for part in slices if part is not None]
    if not memories or None in slices:
        return False
    if share.memory is None:
        return share.isolation is Isolation.EXCLUSIVE
    return max(memories) <= share.memory


def _gibibytes(amount: float) -> str:
    return f"{amount / (1 << 30):.3g}"
