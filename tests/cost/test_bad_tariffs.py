"""Each wrong or odd Tariff: refused at a path, or told by a condition while the rest goes on."""

import pytest

from tests.cost.bad_tariffs import REFUSED, REFUSED_PROFILES, TAKEN, unix
from tests.cost.tariffs import tariff_object
from webhook.controller.status_keeper import judge_tariff
from webhook.model.costs.accelerator_profile import read_accelerator_profile
from webhook.model.costs.tariff import read_tariff
from webhook.model.policy.custom_object import PolicyError
from webhook.state.state import State

KINDS = 60
GPU = ("gpu", "nvidia.com/gpu")


def test_there_are_enough_kinds():
    assert len(REFUSED) + len(TAKEN) >= KINDS


@pytest.mark.parametrize("it", REFUSED)
def test_what_the_schema_and_its_rules_refuse_is_refused_with_its_path(it):
    spec, path = REFUSED[it]

    with pytest.raises(PolicyError) as caught:
        read_tariff(tariff_object(**spec))

    assert [error.path for error in caught.value.errors] == [path]


@pytest.mark.parametrize("it", REFUSED_PROFILES)
def test_a_profile_that_is_wrong_is_refused_with_its_path(it):
    spec, path = REFUSED_PROFILES[it]

    with pytest.raises(PolicyError) as caught:
        read_accelerator_profile({"metadata": {"name": "a"}, "spec": spec})

    assert [error.path for error in caught.value.errors] == [path]


def state_of(odd):
    state = State(currency="USD")
    flavor = {"metadata": {"name": "gpu"}, "spec": {"nodeLabels": {"pool": "gpu"}}}
    state.replace("resourceflavors", [flavor])
    sources = {**odd.others, "here": odd.spec}
    state.replace("tariffs", [tariff_object(name, **spec) for name, spec in sources.items()])
    state.replace("series points", [odd.config_map] if odd.config_map else [])
    return state


def value(rate, moment):
    return None if rate is None else rate.at(moment)


@pytest.mark.parametrize("it", TAKEN)
def test_what_cannot_be_used_is_told_with_its_path_and_the_rest_goes_on(it):
    odd, moment = TAKEN[it], unix(TAKEN[it].now)
    snapshot = state_of(odd).snapshot(1.0, moment)
    (compiled,) = (each for each in snapshot.costs.tariffs if each.tariff.name == "here")
    prices = snapshot.costs.prices[""]

    judged = judge_tariff(compiled, snapshot, moment)

    reason, path = odd.want
    assert (str(judged.reason), judged.ready) == (reason, reason == "Resolved")
    assert path == "" or judged.message.startswith(f"{path}: ")
    known = value(prices.electricity, moment), value(prices.carbon, moment)
    assert known == pytest.approx((odd.electricity, odd.carbon))
    assert value(prices.rates.get(GPU), moment) == odd.money
    assert compiled.clipped == odd.clipped
    assert (f"{odd.clipped} points of its series" in judged.message) == bool(odd.clipped)


def test_a_series_that_is_deleted_and_made_again_ends_its_condition():
    odd = TAKEN["a series that is good"]
    state, moment = state_of(odd), unix(odd.now)

    def judged():
        snapshot = state.snapshot(1.0, moment)
        return str(judge_tariff(snapshot.costs.tariffs[0], snapshot, moment).reason)

    reasons = [judged()]
    for event in ("DELETED", "ADDED"):
        state.apply("series points", event, odd.config_map)
        reasons.append(judged())

    assert reasons == ["Resolved", "BadSeries", "Resolved"]
