"""How long Tariffs take to be compiled: 200 flavors with prices by the hour, month and day."""

import gc
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.report import Figures, Scale, Target, spread
from bench.serving import Say
from webhook.model.costs.accelerator_profile import read_accelerator_profile
from webhook.model.costs.tariff import read_tariff
from webhook.model.queues import ResourceFlavor
from webhook.state.price_compiler import PriceCompiler, PriceSources

FLAVORS: Final = 200
MOST: Final = 50.0
"""Milliseconds of CPU time for all of them."""
NAMES: Final = tuple(f"flavor-{number}" for number in range(FLAVORS))
_A_TARIFF: Final = 16
"""Flavors that one entry names at most."""
_UNIX: Final = 1_796_112_000.0
_HOUR: Final = 3600.0
_PRODUCT: Final = "NVIDIA-L40S"


def measure(scale: Scale, say: Say) -> Figures:
    say(f"the rates of {FLAVORS} flavors are compiled {scale.rounds} times")
    given, compiler = sources(), PriceCompiler()
    milliseconds = []
    for hour in range(scale.rounds + 1):
        gc.collect()
        began = time.thread_time()
        _, prices = compiler.compile(given, _UNIX + hour * _HOUR)
        milliseconds.append((time.thread_time() - began) * 1000)
        if len(prices[""].rates) != FLAVORS * 3 or len(prices[""].devices) != FLAVORS:
            raise RuntimeError("a rate of the bench was not compiled")
    # The first one reads the time zone.
    return {"compiled": milliseconds[1:]}


def sources() -> PriceSources:
    """Return what a site with many flavors has: each with its own price, at night another."""
    starts = range(0, FLAVORS, _A_TARIFF)
    tariffs = [read_tariff(_tariff(NAMES[start : start + _A_TARIFF])) for start in starts]
    labels = {"nvidia.com/gpu.product": _PRODUCT}
    profile = read_accelerator_profile(
        {"metadata": {"name": "all"}, "spec": {"like": _PRODUCT, "nodeLabels": labels}}
    )
    return PriceSources(
        tariffs={tariff.name: tariff for tariff in tariffs},
        profiles=(profile,),
        flavors={name: ResourceFlavor(name=name, node_labels=labels) for name in NAMES},
    )


def _tariff(names: Sequence[str]) -> dict[str, Any]:
    def entry(number: int, name: str, price: str, **when: Any) -> dict[str, Any]:
        resources = {"nvidia.com/gpu": price, "cpu": f"0.{number + 10}", "memory": "0.004"}
        return {"flavors": [name], "resources": resources, **when}

    by_day = [entry(number, name, f"{number}.5") for number, name in enumerate(names)]
    by_night = [
        entry(number, name, f"{number}.2", hours=f"{20 + number % 4}:00-0{number % 8}:30")
        for number, name in enumerate(names)
    ]
    return {
        "metadata": {"name": f"tariff-{names[0]}"},
        "spec": {
            "timeZone": "Europe/Berlin",
            "rates": [*by_day, *by_night],
            "electricity": [{"price": "0.24"}, {"hours": "22:00-06:00", "price": "0.19"}],
            "carbon": [{"intensity": "380"}, {"days": ["Sat", "Sun"], "intensity": "300"}],
        },
    }


def targets(figures: Figures) -> list[Target]:
    value = statistics.median(figures["compiled"])
    name = f"CPU ms in which the rates of {FLAVORS} flavors are compiled"
    return [Target(name=name, value=value, limit=MOST)]


def lines(figures: Figures) -> Sequence[str]:
    return [f"compiled  {spread(figures['compiled'], digits=1)}"]
