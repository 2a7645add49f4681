"""Builds Tariffs and AcceleratorProfiles for tests."""

from webhook.model.costs.accelerator_profile import read_accelerator_profile
from webhook.model.costs.tariff import read_tariff


def tariff_object(name="here", **spec):
    return {"metadata": {"name": name}, "spec": spec}


def tariff(name="here", **spec):
    return read_tariff(tariff_object(name, **spec))


def profile(name="l40s", **spec):
    return read_accelerator_profile({"metadata": {"name": name}, "spec": spec})
