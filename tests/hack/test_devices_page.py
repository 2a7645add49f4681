"""The page of devices is the table that decisions are made by."""

from hack import devices_page
from webhook.model.costs.device_table import DEVICES

ASKED_FOR = [
    "NVIDIA-L40",
    "NVIDIA-GB200",
    "NVIDIA-B300",
    "Tesla-V100-SXM2-32GB",
    "NVIDIA-A100-80GB-PCIe",
    "AMD-Instinct-MI300X",
    "AMD-Instinct-MI325X",
    "tpu-v5-lite-podslice",
    "tpu-v6e-slice",
    "tpu7x",
    "Trainium2",
    "Gaudi3",
    "Furiosa-RNGD",
    "Rebellions-ATOM",
]


def test_the_page_is_what_the_table_says():
    assert devices_page.PAGE.read_text() == devices_page.text()


def test_what_clouds_rent_today_is_on_the_page():
    page = devices_page.text()

    assert [name for name in ASKED_FOR if f"- `{name}`: " not in page] == []
    assert all(device.source in page for device in DEVICES.values())
