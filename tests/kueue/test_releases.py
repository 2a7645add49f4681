"""What Kueue does in one tested release and not in another: each rule with the row of each."""

import math

import pytest

from tests.builders import cluster_queue, container, snapshot, template
from tests.state.kueue import configuration, deployment
from webhook.api import resources as kinds
from webhook.kueue.assignment import PreemptionMode, is_better
from webhook.kueue.fair_sharing import queue_usage
from webhook.kueue.multikueue import asked_after
from webhook.kueue.requests import per_pod
from webhook.model.kueue_support import RELEASES, release_of, unmodelled_gates
from webhook.model.queues import (
    MULTIKUEUE,
    PREEMPTION_OVER_BORROWING,
    AdmissionCheck,
    KueueConfig,
    Transformation,
)
from webhook.state.state import State

OLD, NEW = RELEASES[0, 18, 4], RELEASES[0, 19, 2]
FIXED, BEFORE = ("v0.18.5", "v0.18.6", "v0.19.1", "v0.19.2"), ("v0.18.4", "v0.19.0")
"""Kueue's changelogs: the fixes of 0.19.1 were brought into 0.18.5."""
NO_CANDIDATES, BORROWS = (PreemptionMode.NO_CANDIDATES, 0), (PreemptionMode.FITS, 1)
MIG = "nvidia.com/mig-1g.5gb"


@pytest.mark.parametrize(
    ("release", "is_preferred"),
    [(release_of(each), each in BEFORE) for each in (*BEFORE, *FIXED)],
    ids=(*BEFORE, *FIXED),
)
def test_a_flavor_with_nobody_to_preempt_is_preferred_to_borrowing(release, is_preferred):
    queue = cluster_queue(preference=PREEMPTION_OVER_BORROWING)

    assert is_better(NO_CANDIDATES, BORROWS, queue, release=release) is is_preferred
    assert is_better(BORROWS, NO_CANDIDATES, queue, release=release) is not is_preferred
    assert not is_better(NO_CANDIDATES, BORROWS, cluster_queue(), release=release)
    assert not is_better((PreemptionMode.WAITS, 0), BORROWS, queue, release=release)


@pytest.mark.parametrize(
    ("release", "retained", "slots"),
    [(release_of(each), *((6, 7) if each in BEFORE else (2, 10))) for each in (*BEFORE, *FIXED)],
    ids=(*BEFORE, *FIXED),
)
def test_transformations_reach_what_is_retained(release, retained, slots):
    pods = template(container(requests={MIG: "2", "cpu": "3", "example.com/slots": "10"}))
    scaled = Transformation(input=MIG, outputs={"memory": "1Gi"}, multiply_by="cpu")
    lowered = Transformation(input="cpu", outputs={"example.com/slots": "-1"})

    def asked(rule):
        kueue = KueueConfig(transformations=(rule,), release=release)
        return per_pod(pods, limit_ranges=(), overheads={}, kueue=kueue)

    assert (asked(scaled)[MIG], asked(scaled)["memory"]) == (retained, 6 << 30)
    assert asked(lowered)["example.com/slots"] == slots


@pytest.mark.parametrize(
    ("release", "seconds"),
    [
        (RELEASES[0, 18, 6], [300.0, 0.0]),
        (RELEASES[0, 19, 0], [0.0, 300.0]),
    ],
)
def test_the_incremental_dispatcher_asks_clusters_in_an_order(release, seconds):
    queue = cluster_queue(checks=("multikueue",))
    found = snapshot(
        queue,
        checks={"multikueue": AdmissionCheck(controller=MULTIKUEUE, parameters="config")},
        multikueue_configs={"config": ("west", "east")},
        kueue=KueueConfig(clusters_per_round=1, release=release),
    )

    assert [asked_after(name, queue, found.setup) for name in ("west", "east")] == seconds


@pytest.mark.parametrize(
    ("release", "unused"),
    [(release_of(each), -math.inf if each in BEFORE else math.inf) for each in (*BEFORE, *FIXED)],
    ids=(*BEFORE, *FIXED),
)
def test_a_local_queue_without_weight_is_served(release, unused):
    def usage(consumed):
        return queue_usage(
            consumed, weight=0, resource_weights={}, weightless_last=release.weightless_last
        )

    assert (usage({}), usage({"cpu": 1.0})) == (unused, math.inf)


RULES = """
resources:
  quotaCheckStrategy: IgnoreUndeclared
  deviceClassMappings: [{name: gpu, deviceClassNames: [gpu.example.com]}]
"""
BOTH = "--feature-gates=QuotaCheckStrategy=true,KueueDRAIntegrationExtendedResource=true"


@pytest.mark.parametrize(
    ("version", "arguments", "stated", "found"),
    [
        ("v0.18.4", [], "", (OLD, False)),
        ("v0.18.4", [BOTH], "", (OLD, True)),
        ("v0.19.2", [], "", (NEW, True)),
        ("v0.19.2", [], "0.18", (RELEASES[0, 18, 6], False)),
        ("latest", [], "", (NEW, True)),
    ],
)
def test_the_configuration_is_heeded_as_the_running_release_heeds_it(
    version, arguments, stated, found
):
    state = State(stated_version=stated)
    state.replace(kinds.KUEUE_CONFIG, [configuration(RULES)])
    manager = deployment(image=f"kueue:{version}", args=["--config=/x.yaml", *arguments])
    state.replace(kinds.KUEUE_DEPLOYMENT, [manager])

    kueue = state.snapshot(0.0, 0.0).setup.kueue

    assert (kueue.release, kueue.ignore_undeclared) == found
    assert bool(kueue.device_mappings) is found[1]
    assert unmodelled_gates(kueue.gates, kueue.release) == ()


@pytest.mark.parametrize(("version", "found"), [("v0.18.4", {}), ("v0.19.2", {MIG: "gpu"})])
def test_the_newest_device_class_of_an_extended_resource_counts(version, found):
    classes = [
        ("z.example.com", MIG, "2026-11-01T00:00:00Z"),
        ("gpu.example.com", MIG, "2026-11-02T00:00:00Z"),
        ("other.example.com", MIG, "2026-11-02T00:00:00Z"),
        ("parts.example.com", "example.com/part", "2026-11-01T00:00:00Z"),
        ("plain.example.com", "", "2026-11-03T00:00:00Z"),
    ]
    parts = "  - {name: part, deviceClassNames: [parts.example.com], sources: [{counter: {}}]}"
    rules = f"{RULES.replace('[{', chr(10) + '  - {').replace('}]', '}')}{parts}"
    state = State()
    state.replace(kinds.KUEUE_CONFIG, [configuration(rules)])
    state.replace(kinds.KUEUE_DEPLOYMENT, [deployment(image=f"kueue:{version}")])
    for name, resource, created in classes:
        metadata = {"name": name, "creationTimestamp": created}
        spec = {"extendedResourceName": resource}
        state.apply(kinds.DEVICE_CLASSES, "ADDED", {"metadata": metadata, "spec": spec})

    assert state.snapshot(0.0, 0.0).setup.kueue.devices == found
