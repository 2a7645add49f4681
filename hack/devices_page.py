"""Write docs/devices.md from the built-in table of devices: `python -m hack.devices_page`."""

from pathlib import Path
from typing import Final

from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import Device

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/devices.md"
_HEAD: Final = """\
# Devices that are known

Made by `python -m hack.devices_page` from `webhook/model/costs/device_table.py`.

A flavor has one of these if its labels name it, or if an AcceleratorProfile says `like: NAME`.
What is empty is not known: it refuses no Job, and no price or speed is guessed from it.
Memory is in GB, bandwidth of the memory in GB/s, compute in dense TFLOPS (TOPS for integers).
The watts are what a device is taken to draw while a Job uses it, 0.7 of what its board may draw.

| Name | Resource | Memory | Bandwidth | Compute | Watts | Source |
|---|---|---|---|---|---|---|
"""


def text() -> str:
    return _HEAD + "".join(f"| {' | '.join(_cells(device))} |\n" for device in DEVICES.values())


def _cells(device: Device) -> tuple[str, ...]:
    return (
        f"`{device.name}`",
        f"`{device.resource}`",
        _number(None if device.memory is None else device.memory / 1e9),
        _number(device.bandwidth),
        ", ".join(f"{kind} {_number(speed)}" for kind, speed in device.compute.items()),
        _number(device.busy_watts),
        device.source,
    )


def _number(amount: float | None) -> str:
    return "" if amount is None else f"{round(amount, 1):,g}"


def main() -> None:
    PAGE.write_text(text())


if __name__ == "__main__":
    main()
