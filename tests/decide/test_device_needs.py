"""Which options' devices are less than a Job needs: whole ones and slices, by any strategy."""

from dataclasses import replace

import pytest

from tests import builders
from tests.builders import container, job, template
from webhook.cost.cluster_prices import devices_of
from webhook.decide import options
from webhook.decide.wishes import Wishes
from webhook.model.costs.devices import DeviceUse
from webhook.model.costs.prices import Prices
from webhook.model.queues import KueueConfig, ResourceFlavor
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

GPU, MIG, PRODUCT = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.product"
GIB = 1 << 30
A100, L40S = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}, {PRODUCT: "NVIDIA-L40S"}
STRATEGIES = {
    "Threshold": {"threshold": [{"option": "gpu"}]},
    "FinishTime": {},
    "Cost": {"cost": {"timeValue": "1"}},
}


def rejected(flavors, wishes=None, *, asked=GPU, pinned=None, strategy="Threshold", **rest):
    """Return why a ClusterQueue with these flavors is refused, as text; empty: it is not."""
    return "; ".join(
        str(found.rejection)
        for found in fitted(flavors, wishes, asked, pinned or {}, strategy, **rest)
        if found.rejection
    )


def fitted(flavors, wishes, asked, pinned, strategy, *, counted=True, use=None, adaptation=None):
    quotas = {name: {"cpu": "8", **({asked: "8"} if counted else {})} for name in flavors}
    setup = [ResourceFlavor(name=name, node_labels=labels) for name, labels in flavors.items()]
    snapshot = updated(
        builders.snapshot(builders.cluster_queue("gpu-cq", quotas)),
        flavors={flavor.name: flavor for flavor in setup},
        kueue=KueueConfig(ignore_undeclared=not counted),
        prices={"": Prices(devices=devices_of(setup, ()))},
    )
    option = {"name": "gpu", "queue": "gpu-lq", "adaptation": adaptation or {}}
    applicant = builders.applicant(
        builders.policy(option, strategy={"type": strategy, **STRATEGIES[strategy]}),
        snapshot,
        of=job(
            pods=template(
                container(requests={"cpu": "1"}, limits={asked: "1"}), node_selector=pinned
            )
        ),
        submitted="gpu-lq",
        wishes=wishes or Wishes(),
    )
    if use is not None:
        snapshot = updated(snapshot, device_uses={applicant.job_class.key: use})
        applicant = replace(applicant, occupancy=occupancy_of(snapshot))
    return options.fitted(applicant)


NEEDS = {
    "memory": (
        Wishes(gpu_memory=70 * GIB),
        "memoryTooSmall: needs 70 GiB, and of nvidia.com/gpu in flavor l40s 42.5 are usable",
    ),
    "bandwidth": (
        Wishes(gpu_bandwidth=1500.0),
        (
            "deviceTooSlow: needs 1,500 GB/s of device memory,"
            " and nvidia.com/gpu in flavor l40s has 864"
        ),
    ),
    "compute": (
        Wishes(gpu_compute=(("int8", 100.0), ("bf16", 400.0))),
        "deviceTooSlow: needs 400 TFLOPS in bf16, and nvidia.com/gpu in flavor l40s has 362",
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dimension", NEEDS)
def test_a_whole_device_with_less_than_a_job_needs_is_refused(dimension, strategy):
    wishes, why = NEEDS[dimension]

    assert rejected({"l40s": L40S}, wishes, strategy=strategy) == why
    assert rejected({"l40s": L40S}, strategy=strategy) == ""


@pytest.mark.parametrize(
    ("wishes", "is_enough"),
    [
        (Wishes(gpu_memory=70 * GIB), True),
        (Wishes(gpu_memory=71 * GIB), False),
        (Wishes(gpu_bandwidth=2039.0), True),
        (Wishes(gpu_bandwidth=2040.0), False),
        (Wishes(gpu_compute=(("bf16", 312.0),)), True),
        (Wishes(gpu_compute=(("bf16", 313.0),)), False),
        (Wishes(gpu_compute=(("int8", 625.0),)), False),
        # What no data sheet says of it is not known, and so refuses nothing.
        (Wishes(gpu_compute=(("fp64", 50.0),)), True),
    ],
)
def test_a_need_is_compared_with_what_the_device_has(wishes, is_enough):
    assert (rejected({"a100": A100}, wishes) == "") is is_enough


@pytest.mark.parametrize("wishes", [found for found, _ in NEEDS.values()])
def test_a_device_that_is_not_known_refuses_nothing(wishes):
    assert rejected({"any": {}}, wishes) == ""


def test_the_smallest_device_that_kueue_could_give_counts():
    both, need = {"l40s": L40S, "a100": A100}, Wishes(gpu_memory=60 * GIB)

    assert rejected(both, need).startswith("memoryTooSmall")
    # A flavor that the Job's own selectors rule out gives it nothing.
    assert rejected(both, need, pinned=A100) == ""


def test_where_kueue_counts_no_devices_any_flavor_may_give_one():
    need = Wishes(gpu_memory=60 * GIB)

    assert rejected({"l40s": L40S}, need, counted=False).startswith("memoryTooSmall")
    assert rejected({"a100": A100}, need, counted=False) == ""


def test_a_slice_has_its_part_of_the_device():
    fits = Wishes(gpu_memory=35 * GIB, gpu_bandwidth=1019.0, gpu_compute=(("bf16", 133.0),))

    assert rejected({"a100": A100}, fits, asked=MIG) == ""
    for more in (
        {"gpu_memory": 36 * GIB},
        {"gpu_bandwidth": 1020.0},
        {"gpu_compute": (("bf16", 134.0),)},
    ):
        assert "mig-3g.40gb in flavor a100" in rejected(
            {"a100": A100}, replace(fits, **more), asked=MIG
        )


def test_an_option_without_devices_is_not_judged():
    without = {"accelerator": "Remove"}

    assert rejected({"l40s": L40S}, Wishes(gpu_memory=70 * GIB), adaptation=without) == ""


def used(peak, *, preallocates=False):
    need = None if preallocates else peak * 2
    return DeviceUse(runs=7, peak=peak, need=need, preallocates=preallocates)


@pytest.mark.parametrize(
    ("use", "said", "why"),
    [
        (
            used(60 * GIB),
            None,
            "memoryTooSmall: runs took 60 GiB, and nvidia.com/gpu in flavor l40s has 44.7",
        ),
        # A run that was measured to take nearly all of a device runs there again.
        (used(44 * GIB), None, ""),
        # What takes most of whatever device it gets says nothing of what it needs.
        (used(60 * GIB, preallocates=True), None, ""),
        (used(60 * GIB), 8 * GIB, ""),
    ],
)
def test_what_runs_took_counts_where_the_job_says_nothing(use, said, why):
    assert rejected({"l40s": L40S}, Wishes(gpu_memory=said), use=use) == why
