"""The built-in table of devices: what data sheets say of each, by the name of its product.

Names are those that GPU feature discovery writes into the Node label ``nvidia.com/gpu.product``, or
the vendor's own. A figure that no source confirms is left out, and then it is not known. The power
in a data sheet is the most that a board takes; what it takes in use is estimated (``devices``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from webhook.model.costs.devices import Device, DeviceSlice, busy_watts

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_GB: Final = 10**9
NVIDIA: Final = "nvidia.com/gpu"
_NVLINK: Final = "NVLink"
"""Of those that only exist so. That it joins whole racks is said by an AcceleratorProfile."""


def _slices(*rows: tuple[str, int, int]) -> tuple[DeviceSlice, ...]:
    """Return MIG slices: name, memory in bytes, compute slices of seven."""
    return tuple(
        DeviceSlice(resource=f"nvidia.com/mig-{name}", memory=memory, compute=compute, of=7)
        for name, memory, compute in rows
    )


# 1g.10gb has 9,856 MiB (KEP-2941 of Kueue); of the others the memory is what the name says.
_OF_80_GB: Final = _slices(
    ("1g.10gb", 9856 * _MIB, 1),
    ("1g.20gb", 20 * _GB, 1),
    ("2g.20gb", 20 * _GB, 2),
    ("3g.40gb", 40 * _GB, 3),
    ("4g.40gb", 40 * _GB, 4),
    ("7g.80gb", 80 * _GB, 7),
)
_OF_40_GB: Final = _slices(
    ("1g.5gb", 5 * _GB, 1),
    ("1g.10gb", 10 * _GB, 1),
    ("2g.10gb", 10 * _GB, 2),
    ("3g.20gb", 20 * _GB, 3),
    ("4g.20gb", 20 * _GB, 4),
    ("7g.40gb", 40 * _GB, 7),
)
_ROWS: Final = (
    Device(
        name="Tesla-T4",
        resource=NVIDIA,
        memory=16 * _GB,
        bandwidth=320,
        compute={"fp32": 8.1, "fp16": 65, "int8": 130},
        busy_watts=busy_watts(70),
        source="NVIDIA T4 data sheet, 2018",
    ),
    Device(
        name="Tesla-V100-SXM2-16GB",
        resource=NVIDIA,
        memory=16 * _GB,
        bandwidth=900,
        compute={"fp64": 7.5, "fp32": 15, "fp16": 120},
        busy_watts=busy_watts(300),
        link=_NVLINK,
        source="NVIDIA, announcement of the Tesla V100, table of accelerators, 2017",
    ),
    Device(
        name="Tesla-V100-SXM2-32GB",
        resource=NVIDIA,
        memory=32 * _GB,
        bandwidth=900,
        compute={"fp64": 7.8, "fp32": 15.7, "fp16": 125},
        busy_watts=busy_watts(300),
        link=_NVLINK,
        source="NVIDIA V100 data sheet, 2020",
    ),
    Device(
        name="NVIDIA-L4",
        resource=NVIDIA,
        memory=24 * _GB,
        bandwidth=300,
        compute={"fp16": 121, "bf16": 121, "fp8": 242, "int8": 242},
        busy_watts=busy_watts(72),
        source="NVIDIA L4 data sheet, 2023; its figures with sparsity, halved",
    ),
    Device(
        name="NVIDIA-L40",
        resource=NVIDIA,
        memory=48 * _GB,
        bandwidth=864,
        compute={"fp16": 181, "bf16": 181, "fp8": 362, "int8": 362},
        busy_watts=busy_watts(300),
        source="NVIDIA L40 data sheet, 2022; its figures with sparsity, halved",
    ),
    Device(
        name="NVIDIA-L40S",
        resource=NVIDIA,
        memory=48 * _GB,
        bandwidth=864,
        compute={"fp16": 362, "bf16": 362, "fp8": 733, "int8": 733},
        busy_watts=busy_watts(350),
        source="NVIDIA L40S data sheet, 2023",
    ),
    Device(
        name="NVIDIA-A100-SXM4-40GB",
        resource=NVIDIA,
        memory=40 * _GB,
        bandwidth=1555,
        compute={"fp16": 312, "bf16": 312, "int8": 624},
        busy_watts=busy_watts(400),
        link=_NVLINK,
        slices=_OF_40_GB,
        source="NVIDIA A100 data sheet, 2021",
    ),
    Device(
        name="NVIDIA-A100-PCIE-40GB",
        resource=NVIDIA,
        memory=40 * _GB,
        bandwidth=1555,
        compute={"fp16": 312, "bf16": 312, "int8": 624},
        busy_watts=busy_watts(250),
        slices=_OF_40_GB,
        source="NVIDIA A100 data sheet, 2021",
    ),
    Device(
        name="NVIDIA-A100-SXM4-80GB",
        resource=NVIDIA,
        memory=80 * _GB,
        bandwidth=2039,
        compute={"fp16": 312, "bf16": 312, "int8": 624},
        busy_watts=busy_watts(400),
        link=_NVLINK,
        slices=_OF_80_GB,
        source="NVIDIA A100 data sheet, 2021",
    ),
    Device(
        name="NVIDIA-A100-80GB-PCIe",
        resource=NVIDIA,
        memory=80 * _GB,
        bandwidth=1935,
        compute={"fp16": 312, "bf16": 312, "int8": 624},
        busy_watts=busy_watts(300),
        slices=_OF_80_GB,
        source="NVIDIA A100 data sheet, 2021",
    ),
    Device(
        name="NVIDIA-H100-80GB-HBM3",
        resource=NVIDIA,
        memory=80 * _GB,
        bandwidth=3350,
        compute={"fp16": 989, "bf16": 989, "fp8": 1979, "int8": 1979},
        busy_watts=busy_watts(700),
        link=_NVLINK,
        slices=_OF_80_GB,
        source="NVIDIA H100 data sheet, 2023; its figures with sparsity, halved",
    ),
    Device(
        name="NVIDIA-H100-PCIe",
        resource=NVIDIA,
        memory=80 * _GB,
        bandwidth=2000,
        busy_watts=busy_watts(350),
        slices=_OF_80_GB,
        source="NVIDIA H100 PCIe product brief, PB-11133-001, 2022",
    ),
    Device(
        name="NVIDIA-H200",
        resource=NVIDIA,
        memory=141 * _GB,
        bandwidth=4800,
        compute={"fp16": 989, "bf16": 989, "fp8": 1979, "int8": 1979},
        busy_watts=busy_watts(700),
        link=_NVLINK,
        slices=_slices(
            ("1g.18gb", 18 * _GB, 1),
            ("2g.35gb", 35 * _GB, 2),
            ("3g.71gb", 71 * _GB, 3),
            ("7g.141gb", 141 * _GB, 7),
        ),
        source="NVIDIA H200 data sheet, 2024; slices: mig-parted, config-default.yaml",
    ),
    Device(
        name="NVIDIA-B200",
        resource=NVIDIA,
        memory=180 * _GIB,
        bandwidth=8000,
        compute={"fp16": 2250, "bf16": 2250, "fp8": 4500, "int8": 4500},
        busy_watts=busy_watts(1000),
        link=_NVLINK,
        slices=_slices(
            ("1g.23gb", 23 * _GB, 1),
            ("2g.45gb", 45 * _GB, 2),
            ("3g.90gb", 90 * _GB, 3),
        ),
        source="NVIDIA DGX B200 data sheet, 2024; slices: mig-parted, config-default.yaml",
    ),
    Device(
        name="NVIDIA-GB200",
        resource=NVIDIA,
        memory=186 * _GB,
        bandwidth=8000,
        compute={"fp16": 2500, "bf16": 2500, "fp8": 5000, "fp4": 10000, "int8": 5000},
        busy_watts=busy_watts(1200),
        link=_NVLINK,
        source="NVIDIA Blackwell architecture technical brief, 2024, and GB200 NVL72 data sheet",
    ),
    Device(
        name="NVIDIA-B300",
        resource=NVIDIA,
        memory=288 * _GB,
        bandwidth=8000,
        compute={"fp16": 2250, "bf16": 2250, "fp8": 4500},
        link=_NVLINK,
        source="NVIDIA HGX B300 specifications, 2025; its figures with sparsity, halved",
    ),
    Device(
        name="AMD-Instinct-MI300X",
        resource="amd.com/gpu",
        memory=192 * _GB,
        bandwidth=5300,
        compute={"fp16": 1307, "bf16": 1307, "fp8": 2615, "int8": 2615},
        busy_watts=busy_watts(750),
        source="AMD Instinct MI300X data sheet, 2023",
    ),
    Device(
        name="AMD-Instinct-MI325X",
        resource="amd.com/gpu",
        memory=256 * _GB,
        bandwidth=6000,
        compute={"fp16": 1307, "bf16": 1307, "fp8": 2615, "int8": 2615},
        busy_watts=busy_watts(1000),
        source="AMD Instinct MI325X data sheet, 2024",
    ),
    Device(
        name="tpu-v5-lite-podslice",
        resource="google.com/tpu",
        memory=16 * _GB,
        bandwidth=819,
        compute={"bf16": 197, "int8": 393},
        source="Google Cloud TPU documentation, v5e",
    ),
    Device(
        name="tpu-v5p-slice",
        resource="google.com/tpu",
        memory=95 * _GB,
        bandwidth=2765,
        compute={"bf16": 459},
        source="Google Cloud TPU documentation, v5p",
    ),
    Device(
        name="tpu-v6e-slice",
        resource="google.com/tpu",
        memory=32 * _GB,
        bandwidth=1638,
        compute={"bf16": 918, "int8": 1836},
        source="Google Cloud TPU documentation, v6e",
    ),
    Device(
        name="tpu7x",
        resource="google.com/tpu",
        memory=192 * _GIB,
        bandwidth=7380,
        compute={"bf16": 2307, "fp8": 4614},
        source="Google Cloud TPU documentation, TPU7x",
    ),
    Device(
        name="Gaudi2",
        resource="habana.ai/gaudi",
        memory=96 * _GB,
        bandwidth=2460,
        compute={"bf16": 432},
        busy_watts=busy_watts(600),
        source="Intel, Gaudi 3 at Hot Chips 2024",
    ),
    Device(
        name="Gaudi3",
        resource="habana.ai/gaudi",
        memory=128 * _GB,
        bandwidth=3670,
        compute={"bf16": 1835, "fp8": 1835},
        busy_watts=busy_watts(900),
        source="Intel, Gaudi 3 at Hot Chips 2024",
    ),
    Device(
        name="Inferentia2",
        resource="aws.amazon.com/neuron",
        memory=32 * _GIB,
        bandwidth=820,
        compute={"fp16": 190, "bf16": 190, "fp8": 190, "int8": 380},
        source="AWS Neuron documentation, Inferentia2 architecture",
    ),
    Device(
        name="Trainium1",
        resource="aws.amazon.com/neuron",
        memory=32 * _GIB,
        bandwidth=820,
        compute={"fp16": 190, "bf16": 190, "fp8": 190, "int8": 380},
        source="AWS Neuron documentation, Trainium architecture",
    ),
    Device(
        name="Trainium2",
        resource="aws.amazon.com/neuron",
        memory=96 * _GIB,
        bandwidth=2900,
        compute={"bf16": 667, "fp8": 1299},
        source="AWS Neuron documentation, Trainium2 architecture, and its guide for NKI",
    ),
    Device(
        name="Furiosa-RNGD",
        resource="furiosa.ai/rngd",
        memory=48 * _GB,
        bandwidth=1500,
        compute={"bf16": 256, "fp8": 512, "int8": 512},
        busy_watts=busy_watts(180),
        source="FuriosaAI developer documentation, RNGD",
    ),
    Device(
        name="Rebellions-ATOM",
        resource="rebellions.ai/ATOM",
        memory=16 * _GB,
        source="Rebellions documentation, RBLN-CA22",
    ),
)
DEVICES: Final[Mapping[str, Device]] = {device.name: device for device in _ROWS}
"""Product to device."""
_MIG_NAME: Final = re.compile(r"nvidia\.com/mig-([1-9][0-9]?)g\.([1-9][0-9]{0,3})gb")
_COMPUTE_SLICES: Final = 7


def slice_by_name(resource: str, device: Device | None = None) -> DeviceSlice | None:
    """Return the slice that a resource counts; None: nothing says that it counts slices.

    As *device* has it, else the smallest of that name in the table, else what MIG's name says.
    """
    if device is not None and (known := device.slice_of(resource)):
        return known
    same_name = [part for row in _ROWS if (part := row.slice_of(resource))]
    if same_name:
        return min(same_name, key=lambda part: part.memory)
    said = _MIG_NAME.match(resource)
    if said is None:
        return None
    compute, gigabytes = int(said[1]), int(said[2])
    return DeviceSlice(
        resource=resource,
        memory=gigabytes * _GB,
        compute=min(compute, _COMPUTE_SLICES),
        of=_COMPUTE_SLICES,
    )
