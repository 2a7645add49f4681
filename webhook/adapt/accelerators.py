"""Tells which resources, node labels, taints and runtime classes are accelerators', by tables.

The names are those of vendors' device plugins, feature discoveries and clouds. Names that a
cluster's own administrators chose (``pool: gpu``) are not here: a policy names those itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from webhook.cost.cluster_prices import PRODUCT_LABELS
from webhook.model.device_names import names_accelerator
from webhook.model.pods import recalling


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns))


_RESOURCES = _any_of(
    (
        # NVIDIA: k8s-device-plugin, with MIG slices, time-sliced (`.shared`) and vGPU names.
        "nvidia.com/gpu*",  # gpumem, gpucores and gpumem-percentage are HAMi's
        "nvidia.com/mig-*",
        "nvidia.com/*.shared",
        "nvidia.com/pgpu",
        "nvidia.com/vgpu*",
        "nvidia.com/priority",  # HAMi
        # AMD: k8s-device-plugin; partitioned GPUs have names such as amd.com/cpx_nps4.
        "amd.com/*",
        # Intel: device plugins for GPUs and FPGAs, Gaudi.
        "gpu.intel.com/*",
        "fpga.intel.com/*",
        "habana.ai/gaudi*",
        # Google: GKE's TPUs.
        "google.com/tpu",
        "cloud-tpus.google.com/*",
        # AWS: Neuron's cores and devices.
        "aws.amazon.com/neuron*",
        # Shared GPUs of Volcano, Tencent, Alibaba.
        "volcano.sh/vgpu-*",
        "volcano.sh/gpu-*",
        "tencent.com/vcuda-*",
        "aliyun.com/gpu-*",
        # Other vendors' device plugins.
        "huawei.com/[Aa]scend*",
        "cambricon.com/*mlu*",
        "hygon.com/dcu*",
        "mthreads.com/*gpu*",
        "metax-tech.com/*",
        "iluvatar.ai/*",
        "enflame.com/*gcu*",
        "kunlunxin.com/*xpu*",
        "qualcomm.com/qaic*",
        "furiosa.ai/*",
        "rebellions.ai/*",
        "tenstorrent.com/*",
        "amd.com/xilinx_*",
        "xilinx.com/fpga-*",
        "hailo.ai/*",
        # Kubernetes' own names for devices of a class (DRA).
        "deviceclass.resource.kubernetes.io/*",
    )
)
_SHARES = re.compile(r"mem|core-|-core$|cores$|percentage|priority|millicores|tiles", re.IGNORECASE)
"""Parts of resource names that measure a share of a device, beside one that counts devices."""

_LABELS = _any_of(
    (
        # gpu-feature-discovery and the GPU operator; other labels of this domain are people's own.
        *(f"nvidia.com/{name}*" for name in ("gpu", "mig", "cuda", "vgpu", "gfd", "mps", "mdev")),
        "nvidia.com/device-plugin*",
        "gpu.nvidia.com/*",  # CoreWeave
        "amd.com/gpu*",  # node-labeller
        "beta.amd.com/gpu*",
        "gpu.intel.com/*",
        "intel.feature.node.kubernetes.io/gpu*",
        "intel.feature.node.kubernetes.io/gaudi*",
        "habana.ai/*",
        "cloud.google.com/gke-accelerator*",
        "cloud.google.com/gke-gpu*",
        "cloud.google.com/gke-tpu*",
        "cloud.google.com/gke-max-shared-clients-per-gpu",
        "aws.amazon.com/neuron*",
        "k8s.amazonaws.com/accelerator",
        "karpenter.k8s.aws/instance-gpu-*",
        "karpenter.k8s.aws/instance-accelerator-*",
        "eks.amazonaws.com/instance-gpu-*",
        "eks.amazonaws.com/instance-accelerator-*",
        "karpenter.azure.com/sku-gpu-*",
        "kubernetes.azure.com/accelerator",
        "doks.digitalocean.com/gpu-*",
        # Node Feature Discovery: PCI devices of NVIDIA, AMD's GPUs, Habana Labs.
        "feature.node.kubernetes.io/pci-*10de*",
        "feature.node.kubernetes.io/pci-*1002*",
        "feature.node.kubernetes.io/pci-*1da3*",
    )
)
_LABELS_BY_VALUE = frozenset({("accelerator", "nvidia")})
"""The older label of AKS."""
_TAINTS = _any_of(("nvidia.com/*", "amd.com/*", "habana.ai/*", "google.com/tpu", "gpu.intel.com/*"))
_TAINTS_BY_VALUE = frozenset({("sku", "gpu")})
"""AKS taints its GPU node pools ``sku=gpu:NoSchedule``."""
_RUNTIME_CLASSES = frozenset(
    {"nvidia", "nvidia-cdi", "nvidia-legacy", "nvidia-experimental", "habana", "ascend", "amd-gpu"}
)
"""A list, as a pattern also takes sandboxes: ``kata-qemu-nvidia-gpu`` is one."""
_NEEDING_DEVICES = _any_of(("*nvidia*", "*habana*", "*ascend*", "*amd-gpu*"))

NEGATIVE = frozenset({"false", "no", "none", "0", ""})
"""Label values that select nodes without the accelerator."""


@recalling(most=1024, longest=512)
def is_accelerator(resource: str) -> bool:
    if _RESOURCES.match(resource) is not None:
        return True
    # Under any vendor's domain, a resource with the name of such devices is one.
    domain, slash, name = resource.rpartition("/")
    return bool(slash) and "kubernetes.io" not in domain and names_accelerator(name)


@recalling(most=1024, longest=512)
def counts_devices(resource: str) -> bool:
    """Return whether a resource counts devices, as ``nvidia.com/gpu`` does, not their memory."""
    slices = "/mig-" in resource
    return is_accelerator(resource) and (slices or _SHARES.search(resource) is None)


@recalling(most=1024, longest=512)
def pins_label(key: str, value: str) -> bool:
    """Return whether selecting nodes by this label selects nodes with accelerators."""
    if value.lower() in NEGATIVE:
        return False
    return is_label(key) or (key, value) in _LABELS_BY_VALUE


@recalling(most=1024, longest=512)
def pins_product(key: str, value: str) -> bool:
    """Return whether a label or taint is one that names a product, and this value does."""
    return key in PRODUCT_LABELS and value.lower() not in NEGATIVE


def vendor(resource: str) -> str:
    """Return the domain of a resource, which is its vendor's: ``nvidia.com``."""
    return resource.partition("/")[0]


@recalling(most=1024, longest=512)
def is_label(key: str) -> bool:
    return _LABELS.match(key) is not None


@recalling(most=1024, longest=512)
def pins_taint(key: str, value: str) -> bool:
    """Return whether this taint keeps pods away that request no accelerator."""
    known = is_accelerator(key) or is_label(key) or _TAINTS.match(key) is not None
    return known or (key, value) in _TAINTS_BY_VALUE


def is_accelerator_runtime(runtime_class: str | None) -> bool:
    """Return whether a RuntimeClass gives pods an accelerator's driver, and nothing else."""
    return runtime_class in _RUNTIME_CLASSES


def needs_device(runtime_class: str | None) -> bool:
    """Return whether pods of a RuntimeClass seem to need an accelerator, sandboxed or not."""
    return runtime_class is not None and _NEEDING_DEVICES.match(runtime_class) is not None
