"""Which slices, shares and other devices are enough for a Job, by flavor, device and name."""

from dataclasses import replace

import pytest

from tests import builders
from tests.builders import container, job
from webhook.cost.cluster_prices import devices_of
from webhook.decide import options
from webhook.decide.wishes import Wishes
from webhook.model.costs.devices import Device, DeviceSlice, DeviceUse, Isolation
from webhook.model.costs.prices import Prices
from webhook.model.queues import KueueConfig, ResourceFlavor
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
GIB = 1 << 30
HAMI = {GPU: 1, "nvidia.com/gpumem": 8192}
ANY = {"unknown": "Allow", "isolation": "None"}
A100 = "NVIDIA-A100-SXM4-80GB"
PRODUCT = "nvidia.com/gpu.product"
STRATEGY, REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"
MPS = {PRODUCT: f"{A100}-SHARED", STRATEGY: "mps", REPLICAS: "4"}
SLICED_GKE = {
    "cloud.google.com/gke-accelerator": "nvidia-a100-80gb",
    "cloud.google.com/gke-gpu-partition-size": "1g.10gb",
}
SHARED_GKE = {
    "cloud.google.com/gke-accelerator": "nvidia-a100-80gb",
    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
}


def refused(by, need=None, **rest):
    """Return the reason why a ClusterQueue with one flavor is not enough, or nothing."""
    rejection = rejected(by, need, **rest)
    return str(rejection.reason) if rejection else ""


def rejected(
    by, need=None, *, labels=None, device=None, asked=None, counted=True, use=None, **slices
):
    """Return the rejection; *counted*: Kueue counts devices."""
    quotas = {"fast": (dict.fromkeys(by, "9000") if counted else {}) | {"cpu": "8"}}
    queue = builders.cluster_queue("mig-cq", quotas)
    flavor = ResourceFlavor(name="fast", node_labels=labels or {})
    devices = {"fast": device} if device else devices_of([flavor], ())
    snapshot = updated(
        builders.snapshot(queue),
        flavors={"fast": flavor},
        kueue=KueueConfig(ignore_undeclared=not counted),
        prices={"": Prices(devices=devices)},
    )
    option = {"name": "s", "queue": "mig-lq", "adaptation": {"accelerator": "Replace", "by": by}}
    applicant = builders.applicant(
        builders.policy(option, slices=slices, strategy={"type": "FinishTime"}),
        snapshot,
        of=job(container(requests={"cpu": "1"}, limits=asked or {GPU: "1"})),
        submitted="mig-lq",
        wishes=Wishes(gpu_memory=need),
    )
    if use is not None:
        uses = {applicant.job_class.key: use}
        snapshot = updated(snapshot, device_uses=uses)
        applicant = replace(applicant, occupancy=occupancy_of(snapshot))
    (found,) = options.fitted(applicant)
    return found.rejection


@pytest.mark.parametrize(
    ("by", "labels", "most"),
    [
        # What the resource's name says, in GB; of a name in the table, the smallest device's.
        ({MIG: 1}, {}, 9.5e9),
        ({"nvidia.com/mig-1g.24gb": 1}, {}, 22.8e9),
        ({"nvidia.com/mig-1g.12gb.me": 1}, {}, 11.4e9),
        # What the table says of the device.
        ({MIG: 1}, {PRODUCT: A100}, 9856 * 0.95 * 2**20),
        ({GPU: 1}, {PRODUCT: A100}, 76e9),
        ({"amd.com/gpu": 1}, {"accelerator": "AMD-Instinct-MI300X"}, 182.4e9),
        # All devices of a Node are cut alike, and the plugin counts the slices as devices.
        ({GPU: 1}, {PRODUCT: f"{A100}-MIG-3g.40gb"}, 38e9),
        ({GPU: 1}, SLICED_GKE, 9856 * 0.95 * 2**20),
        # HAMi gives what is asked for, in MiB, of whatever device.
        (HAMI, {PRODUCT: A100}, 8192 * 0.95 * 2**20),
        # A share of the device's memory, which MPS limits.
        ({SHARED: 1}, MPS, 19e9),
    ],
)
def test_a_job_may_use_95_percent_of_what_it_would_get(by, labels, most):
    assert refused(by, int(most) - 1, labels=labels) == ""
    assert refused(by, int(most) + 2, labels=labels) == "memoryTooSmall"


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ({PRODUCT: f"{A100}-SHARED", REPLICAS: "4"}, None),
        ({PRODUCT: A100, STRATEGY: "time-slicing", REPLICAS: "4"}, None),
        (SHARED_GKE, None),
        ({}, Device(name="a", memory=80 * GIB, replicas=4, isolation=Isolation.NONE)),
    ],
)
@pytest.mark.parametrize("by", [{GPU: 1}, {SHARED: 1}])
def test_time_slicing_needs_the_policy_and_the_jobs_need(by, labels, device):
    at = {"labels": labels, "device": device}

    assert refused(by, GIB, **at) == "notIsolated"
    assert refused(by, **at, **ANY) == "memoryUnknown"
    assert refused(by, GIB, **at, isolation="None") == ""
    assert refused(by, 21 * GIB, **at, isolation="None") == "memoryTooSmall"


def test_a_share_is_taken_for_time_slicing_where_nothing_says_how_it_is_shared():
    assert refused({SHARED: 1}, GIB) == "notIsolated"
    assert refused({SHARED: 1}, GIB, isolation="None") == "memoryUnknown"
    assert refused({SHARED: 1}, GIB, **ANY) == ""


def test_a_need_or_a_memory_that_is_not_known_is_refused_unless_the_policy_allows_it():
    assert refused({MIG: 1}) == refused({"habana.ai/gaudi": 1}, GIB) == "memoryUnknown"
    assert refused({MIG: 1}, unknown="Allow") == ""
    assert refused({"habana.ai/gaudi": 1}, GIB, unknown="Allow") == ""


@pytest.mark.parametrize(
    ("isolation", "expected"), [("Exclusive", "notIsolated"), ("Hardware", ""), ("Memory", "")]
)
def test_the_policy_may_ask_for_more_isolation(isolation, expected):
    assert refused({MIG: 1}, GIB, isolation=isolation) == expected


def test_hami_isolates_memory_alone():
    assert refused(HAMI, GIB, isolation="Hardware") == "notIsolated"


@pytest.mark.parametrize(
    ("asked", "by", "expected"),
    [
        ({"nvidia.com/mig-2g.20gb": "1"}, {MIG: 1}, "memoryUnknown"),
        ({MIG: "1"}, {MIG: 1}, ""),
        ({MIG: "1"}, {"nvidia.com/mig-2g.20gb": 1}, ""),
        ({MIG: "1"}, {GPU: 1}, ""),
        ({MIG: "2"}, {GPU: 1}, "tooManyDevices"),
        ({MIG: "1", "nvidia.com/mig-2g.20gb": "1"}, {GPU: 1}, "tooManyDevices"),
        ({"nvidia.com/gpumem": "9000"}, {MIG: 1}, ""),
        ({"nvidia.com/gpumem": "9300"}, {MIG: 1}, "memoryTooSmall"),
    ],
)
def test_what_a_job_asks_for_tells_what_it_needs_at_most(asked, by, expected):
    assert refused(by, asked=asked) == expected


def test_a_profiles_own_slices_count_before_the_table():
    rngd = Device(
        name="rngd",
        memory=48 * GIB,
        slices=(DeviceSlice(resource="furiosa.ai/rngd-4", memory=24 * GIB, compute=4, of=8),),
    )

    assert refused({"furiosa.ai/rngd-4": 1}, 20 * GIB, device=rngd) == ""
    assert refused({"furiosa.ai/rngd-4": 1}, 23 * GIB, device=rngd) == "memoryTooSmall"


def test_where_kueue_counts_no_devices_memory_counts_all_the_same():
    assert refused({MIG: 1}, 8 * GIB, counted=False) == ""
    assert refused({MIG: 1}, 12 * GIB, counted=False) == "memoryTooSmall"
    assert refused({MIG: 1}, counted=False) == "memoryUnknown"
    assert refused({GPU: 1}, 90 * GIB, labels={PRODUCT: A100}, counted=False) == "memoryTooSmall"


def test_a_job_without_devices_is_not_judged():
    assert refused({MIG: 1}, asked={"ephemeral-storage": "1Gi"}) == "notCovered"


MIDDLE = "nvidia.com/mig-2g.20gb"


def used(need=None, *, preallocates=False):
    return DeviceUse(runs=7, peak=8 * GIB, need=need, preallocates=preallocates)


@pytest.mark.parametrize(
    ("by", "use", "said", "refused_for"),
    [
        ({MIG: 1}, used(9 * GIB), None, ""),
        ({MIG: 1}, used(10 * GIB), None, "memoryTooSmall"),
        ({MIDDLE: 1}, used(10 * GIB), None, ""),
        # What the Job says counts before what runs of its class took.
        ({MIG: 1}, used(10 * GIB), 4 * GIB, ""),
        ({MIG: 1}, used(2 * GIB), 20 * GIB, "memoryTooSmall"),
        # What HAMi is asked for, too.
        ({MIG: 1}, used(), None, "memoryUnknown"),
        ({MIG: 1}, used(preallocates=True), None, "memoryUnknown"),
        # Nothing enforces it: then the Job's own word is needed.
        ({SHARED: 1}, used(1 * GIB), None, "memoryUnknown"),
    ],
)
def test_what_runs_of_its_class_took_tells_what_is_enough(by, use, said, refused_for):
    labels = {PRODUCT: A100} if MIG in by or MIDDLE in by else {PRODUCT: f"{A100}-SHARED"}

    assert refused(by, said, use=use, labels=labels, isolation="None") == refused_for


def test_the_reason_says_what_it_rests_on():
    rejection = rejected({MIG: 1}, use=used(20 * GIB))
    ahead = rejected({MIG: 1}, use=used(preallocates=True))

    assert rejection.detail == (
        "needs 20 GiB, as 7 runs took at most 8, and of nvidia.com/mig-1g.10gb 8.85 are usable"
    )
    assert ahead.detail == (
        "how much device memory the Job needs is not known: what it runs takes most of a device"
        " at once"
    )
