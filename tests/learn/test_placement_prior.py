"""What a gang is taken to lose where its pods are spread, and where that is not guessed."""

from dataclasses import replace
from math import hypot, log

import pytest

from tests import builders
from tests.builders import CPU_OPTION, GPU_OPTION, cluster_queue, policy
from tests.learn.learned import learned
from tests.topologies import GPU, RACK, with_topology
from webhook.learn.device_runs import DevicePart
from webhook.learn.expected_runs import Expecting, GangPlace, as_placed
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import Device
from webhook.model.forecasts import Basis, JobClass, RunTime

RULE = policy(GPU_OPTION, CPU_OPTION)
SLOWED = policy(GPU_OPTION, {**CPU_OPTION, "slowdown": 2})
SNAPSHOT = with_topology(builders.snapshot(cluster_queue("gpu-cq", {"gpu": {GPU: "8"}})), ())
H100, PCIE = DEVICES["NVIDIA-H100-80GB-HBM3"], DEVICES["NVIDIA-H100-PCIe"]
SAID = RunTime(seconds=600.0, low=400.0, high=900.0, basis=Basis.ANNOTATION)
TOGETHER, SPREAD, ALL = ("k", f"gpu#{RACK}"), ("k", "gpu#spread"), ("k", "gpu")
UNCHANGED = None


def part(device, resource=GPU):
    return DevicePart(device=device, resource=resource, amount=16)


def placed(run, known, *, first=RACK, level="spread", device=H100, **more):
    """Return the run in the second option, whose pods would be in domains of *level*."""
    rule = more.pop("rule", RULE)
    expecting = Expecting(
        run_times=known, job_class=JobClass("k", "~c"), policy=rule, first_flavors="gpu", **more
    )
    used = device if isinstance(device, DevicePart) else part(device)
    places = [GangPlace("gpu", each, used) for each in (first, level)]
    of_first, found = as_placed(expecting, [run, run], places=places, setup=SNAPSHOT.setup)
    assert of_first == run
    return found


def test_who_never_ran_spread_is_taken_to_need_half_as_long_again():
    known = {TOGETHER: learned(600), ALL: learned(700)}

    found = placed(known[ALL], known)

    assert (found.seconds, found.basis, found.runs) == (pytest.approx(900), Basis.PROFILE, 0)
    expected = hypot(log(1.5), 1.2816 * 0.5)
    assert log(found.high / found.seconds) == pytest.approx(expected)


def test_who_only_ran_spread_is_taken_to_be_faster_together():
    known = {SPREAD: learned(900), ALL: learned(900)}

    found = placed(known[ALL], known, first="spread", level=RACK)

    assert (found.seconds, found.basis) == (pytest.approx(600), Basis.PROFILE)


def test_start_delays_are_no_part_of_what_is_scaled():
    known = {TOGETHER: learned(660), ALL: learned(660)}

    found = placed(known[ALL], known, start_delays={ALL: learned(60)})

    assert found.seconds == pytest.approx(900)


@pytest.mark.parametrize(
    ("first", "level", "seconds"),
    [
        (RACK, "spread", 900),
        ("spread", RACK, 400),
        ("spread", "spread", UNCHANGED),
        (RACK, RACK, UNCHANGED),
        ("", "spread", UNCHANGED),
        (RACK, "", UNCHANGED),
    ],
)
def test_what_is_said_of_the_first_option_counts_as_its_pods_are_placed(first, level, seconds):
    found = placed(SAID, {}, first=first, level=level)

    if seconds is UNCHANGED:
        assert found == SAID
    else:
        assert (found.seconds, found.basis) == (pytest.approx(seconds), Basis.PROFILE)


MEAN = learned(700)


@pytest.mark.parametrize(
    ("run", "known", "more"),
    [
        # One run there tells more than a guess.
        (MEAN, {ALL: MEAN, TOGETHER: learned(600), SPREAD: learned(800, 1)}, {}),
        (SAID, {ALL: MEAN, SPREAD: learned(800, 1)}, {}),
        # Where its runs were placed is not known.
        (MEAN, {ALL: MEAN}, {}),
        # Another domain, together all the same.
        (MEAN, {ALL: MEAN, TOGETHER: MEAN}, {"level": "example.com/block"}),
        (MEAN, {ALL: MEAN, TOGETHER: MEAN}, {"rule": SLOWED}),
    ],
)
def test_nothing_is_guessed_where_more_or_nothing_is_known(run, known, more):
    assert placed(run, known, **more) == run


@pytest.mark.parametrize(
    ("device", "seconds"),
    [
        (PCIE, 600),
        (replace(PCIE, link="NVLink"), 900),
        (Device(name="own", link="XGMI"), 600),
        # Slices and shares are not joined.
        (part(H100, "nvidia.com/mig-1g.10gb"), 600),
        (replace(H100, replicas=4), 600),
    ],
)
def test_only_whole_devices_on_nvlink_lose_by_it(device, seconds):
    known = {TOGETHER: learned(600), ALL: learned(600)}

    assert placed(known[ALL], known, device=device).seconds == pytest.approx(seconds)
