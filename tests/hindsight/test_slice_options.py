"""Which options with slices a report suggests, and how it is put."""

from tests.builders import snapshot
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.slice_options import most_saving
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import DeviceUse
from webhook.model.costs.prices import Prices
from webhook.state.snapshot import updated

GIB = 1 << 30
GPU, SMALL, MIDDLE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
A100 = "NVIDIA-A100-SXM4-80GB"
DEVICES_OF = {"a100": DEVICES[A100], "t4": DEVICES["Tesla-T4"]}


def entry(key, *, hours=10, used=((("a100", GPU), 1),), number=0):
    return JournalEntry(
        key=f"{key}-{hours}-{number}",
        uid="u",
        namespace="team",
        name=key,
        created=0.0,
        admitted=1000,
        finished=1000 + hours * 3600,
        queue="lq",
        job_class=key,
        submitted="{}",
        ran="{}",
        used=used,
    )


def use(gib, *, preallocates=False):
    need = None if preallocates else gib * GIB
    return DeviceUse(runs=9, peak=gib * GIB, need=need, preallocates=preallocates)


def world(*queues):
    found = snapshot(*queues)
    return updated(found, prices={"": Prices(devices=DEVICES_OF)})


def suggested(entries, uses, of=None):
    return most_saving(entries, uses, of or world())


def test_each_class_gets_the_smallest_slice_that_is_enough():
    entries = [entry("a", hours=70), entry("b", hours=20), entry("c", hours=10)]
    uses = {"a": use(8), "b": use(12), "c": use(70)}

    found = suggested(entries, uses)

    assert {part.resource: len(hours) for part, hours in found.by_slice.items()} == {
        SMALL: 1,
        MIDDLE: 1,
    }
    assert (found.hours, found.eligible, found.classes) == (100, 90, 2)
    assert round(found.saved, 2) == round(70 * 6 / 7 + 20 * (1 - 2 / 7), 2)
