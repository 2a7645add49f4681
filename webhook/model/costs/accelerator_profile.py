"""AcceleratorProfile: what a device of one kind is, and which ResourceFlavors have it.

Read at one border into a ``Device``, or refused with every mistake. Its models are the one source
of the CRD's schema, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from webhook.model import quantity
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import Device, DeviceSlice, Isolation, busy_watts
from webhook.model.policy.custom_object import (
    ATOMIC,
    UNIQUE,
    Amount,
    Conditions,
    CustomObject,
    Decimal,
    Key,
    Labels,
    ObjectName,
    Structural,
    read_object,
    unique,
)

PROFILE_KIND: Final = "AcceleratorProfile"
_MEMORY: Final = "memory"


class ComputeSpec(Structural):
    """Dense TFLOPS by data type, or TOPS for integers. The device has only the types given."""

    fp64: Decimal | None = None
    """TFLOPS in fp64."""
    fp32: Decimal | None = None
    """TFLOPS in fp32."""
    tf32: Decimal | None = None
    """TFLOPS in tf32."""
    fp16: Decimal | None = None
    """TFLOPS in fp16."""
    bf16: Decimal | None = None
    """TFLOPS in bf16."""
    fp8: Decimal | None = None
    """TFLOPS in fp8."""
    fp4: Decimal | None = None
    """TFLOPS in fp4."""
    int8: Decimal | None = None
    """TOPS in int8."""
    int4: Decimal | None = None
    """TOPS in int4."""


DATA_TYPES: Final = tuple(ComputeSpec.model_fields)


class WattsSpec(Structural):
    """The electric power of one device, in watts."""

    idle: Decimal | None = None
    """Watts while no Job uses the device. Absent: 0.15 of the maximum."""
    busy: Decimal | None = None
    """Average watts while a Job uses the device. Absent: 0.7 of the maximum."""
    maximum: Decimal
    """The most watts that the device takes."""


class LinkSpec(Structural):
    """The link between devices."""

    kind: Annotated[str, Field(min_length=1, max_length=32)]
    """Kind of the link, such as NVLink."""
    bandwidth: Decimal | None = None
    """GB/s between two devices."""
    domain: Key
    """A Node label, such as kubernetes.io/hostname. Devices on Nodes with the same value are
    linked."""


class SliceSpec(Structural):
    """A part of a device that is counted as a resource of its own."""

    resource: Key
    """The resource that counts the slice, such as nvidia.com/mig-1g.10gb."""
    memory: Amount
    """Memory of the slice."""
    compute: Annotated[int, Field(strict=True, ge=1, le=64)]
    """How many compute slices the slice has."""
    of: Annotated[int, Field(strict=True, ge=1, le=64)]
    """How many compute slices the whole device has."""


class AcceleratorProfileSpec(Structural):
    """Memory, speed and power of one device, and which ResourceFlavors have it."""

    like: Annotated[str, Field(max_length=63)] = ""
    """A product of the built-in table, such as NVIDIA-A100-SXM4-80GB. Its figures are used where
    none is given here."""
    flavors: Annotated[
        tuple[ObjectName, ...],
        Field(max_length=16, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ] = ()
    """ResourceFlavors that have this device."""
    node_labels: Labels = Field(default_factory=dict)
    """Selects ResourceFlavors that have this device. Their `nodeLabels` must have all of these."""
    resource: Key | None = None
    """The resource that counts one device. Absent: each resource of the flavor that counts
    devices."""
    memory: Amount | None = None
    """Memory of one device."""
    bandwidth: Decimal | None = None
    """Bandwidth of the device's memory, in GB/s."""
    compute: ComputeSpec = Field(default_factory=ComputeSpec)
    """Dense TFLOPS by data type, or TOPS for integers."""
    watts: WattsSpec | None = None
    """Electric power of one device."""
    link: LinkSpec | None = None
    """The link between devices."""
    isolation: Isolation = Isolation.EXCLUSIVE
    """How Jobs that share a device are isolated from each other. Exclusive: nobody shares it.
    Hardware: MIG or SR-IOV. Memory: MPS. None: time-slicing."""
    replicas: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """How many resources one device is counted as, if it is shared in time."""
    slices: Annotated[
        tuple[SliceSpec, ...],
        Field(max_length=16, json_schema_extra=ATOMIC),
    ] = ()
    """Parts of the device that are resources of their own. Absent: the slices of the built-in
    table."""


class AcceleratorProfileStatus(Structural):
    """What the controller found out about the profile."""

    flavors: Annotated[tuple[str, ...], Field(max_length=1024)] = ()
    """ResourceFlavors that have this device."""
    conditions: Conditions = ()
    """Ready: a flavor has this device, and no other profile claims the same flavor first."""


class AcceleratorProfileObject(CustomObject):
    spec: AcceleratorProfileSpec
    status: AcceleratorProfileStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorProfile:
    """A valid profile. ``generation`` is the object's, for its status."""

    name: str
    generation: int = 0
    device: Device
    flavors: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    unknown_like: str = ""
    """A product that it names and that is not in the table."""


def read_accelerator_profile(source: Mapping[str, Any]) -> AcceleratorProfile:
    """Read a profile as ``read_object`` does."""
    profile = read_object(AcceleratorProfileObject, source)
    spec = profile.spec
    known = DEVICES.get(spec.like)
    return AcceleratorProfile(
        name=profile.metadata.name,
        generation=profile.metadata.generation,
        device=_device(profile.metadata.name, spec, known or Device(name="")),
        flavors=spec.flavors,
        node_labels=spec.node_labels,
        unknown_like=spec.like if known is None else "",
    )


def _device(name: str, spec: AcceleratorProfileSpec, like: Device) -> Device:
    """Return the device of a profile: what it says, and for the rest what *like* is."""
    said = spec.compute.model_dump(exclude_none=True)
    return replace(
        like,
        name=name,
        resource=spec.resource or like.resource,
        memory=like.memory if spec.memory is None else _bytes(spec.memory),
        bandwidth=like.bandwidth if spec.bandwidth is None else float(spec.bandwidth),
        compute={kind: float(speed) for kind, speed in said.items()} or like.compute,
        busy_watts=like.busy_watts if spec.watts is None else _watts(spec.watts),
        link=like.link if spec.link is None else spec.link.kind,
        isolation=spec.isolation,
        replicas=spec.replicas,
        slices=tuple(map(_slice, spec.slices)) or like.slices,
        source=f"AcceleratorProfile {name}" + (f", like {like.name}" if like.name else ""),
    )


def _bytes(amount: str) -> int:
    return quantity.parse(amount, resource=_MEMORY)


def _watts(spec: WattsSpec) -> float:
    return busy_watts(float(spec.maximum)) if spec.busy is None else float(spec.busy)


def _slice(spec: SliceSpec) -> DeviceSlice:
    return DeviceSlice(
        resource=spec.resource, memory=_bytes(spec.memory), compute=spec.compute, of=spec.of
    )
