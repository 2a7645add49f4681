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
What is left out is not known: it refuses no Job, and no price or speed is guessed from it.
Each line has the memory, its bandwidth, the dense TFLOPS (TOPS for integers) by data type, the
watts that it is taken to draw while a Job uses it (0.7 of its board's maximum), and the source.

"""


def text() -> str:
    return _HEAD + "".join(f"- `{device.name}`: {_told(device)}\n" for device in DEVICES.values())


def _told(device: Device) -> str:
    figures = (
        _figure(None if device.memory is None else device.memory / 1e9, " GB"),
        _figure(device.bandwidth, " GB/s"),
        *(f"{kind} {_figure(speed)}" for kind, speed in device.compute.items()),
        _figure(device.busy_watts, " W"),
    )
    return f"{', '.join(filter(None, figures))} ({device.source})"


def _figure(amount: float | None, unit: str = "") -> str:
    return "" if amount is None else f"{round(amount, 1):,g}{unit}"


def main() -> None:
    PAGE.write_text(text())


if __name__ == "__main__":
    main()
