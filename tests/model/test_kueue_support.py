"""Which Kueue is tested: by version, by gates, by configuration."""

import pytest

from webhook.model.kueue_support import (
    GATES,
    RELEASES,
    Doubt,
    KueueManager,
    KueueTested,
    doubts,
    release,
    release_of,
    unmodelled_fields,
    unmodelled_gates,
)
from webhook.model.queues import KueueConfig, KueueRelease

TESTED = KueueManager(version="v0.19.2")
DISPATCHER = "kueue.x-k8s.io/multikueue-dispatcher"
UNREAD = KueueManager(unknown_version="its image has no tag: ''")


def said(kueue=None, manager=TESTED, stated=""):
    return [
        (str(each.reason), each.message) for each in doubts(kueue or KueueConfig(), manager, stated)
    ]


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("v0.19.2", (0, 19, 2)),
        ("0.19", (0, 19, 999_999)),
        ("v0.19.2-gke.3", (0, 19, 2)),
        ("release-0.19", (0, 19, 999_999)),
        ("v0.20.0", (0, 20, 0)),
        ("v0.19.0-rc.1", None),
        ("v0.19.0-devel-5-g12ab", None),
        ("latest", None),
        ("v20261101-v0.19.2", None),
        ("", None),
        ("9" * 300, None),
    ],
)
def test_a_version_is_what_was_released(version, found):
    assert release(version) == found


def test_a_tested_version_with_its_defaults_leaves_no_doubt():
    assert said() == []
    assert said(manager=UNREAD, stated="0.19.5") == []


def test_a_version_that_is_not_tested_is_named_with_those_that_are():
    untested = [
        ("VersionUntested", "Kueue 0.20.1 is untested: tested is 0.18 from 0.18.4 on, 0.19")
    ]

    assert said(manager=KueueManager(version="v0.20.1")) == untested
    assert said(stated="v0.20.1") == untested
    assert said(stated="v0.18.3")[0][1] == untested[0][1].replace("0.20.1", "0.18.3")


def test_a_version_that_is_not_known_counts_as_untested_and_says_why():
    (doubt,) = doubts(KueueConfig(), UNREAD)

    assert doubt == Doubt(
        reason=KueueTested.VERSION_UNKNOWN,
        message="Kueue's version is not known: its image has no tag: ''",
    )
    assert not doubt.is_certain


def test_where_nobody_has_looked_for_kueue_only_its_configuration_is_judged():
    assert said(KueueConfig(is_read=False), manager=None) == []
    assert said(KueueConfig(unmodelled_fields=("new",)), manager=None) == [
        ("Unmodelled", "Kueue is untested with new")
    ]
    assert said(manager=None, stated="0.17") == [
        ("VersionUntested", "Kueue 0.17 is untested: tested is 0.18 from 0.18.4 on, 0.19")
    ]


def test_a_configuration_that_cannot_be_read_is_unknown():
    missing = "its ConfigMap kueue-manager-config is not there, or cannot be read"
    odd = KueueManager(version="v0.19.2", unreadable="--feature-gates: expected NAME=true")

    assert said(KueueConfig(is_read=False)) == [
        ("ConfigurationUnknown", f"Kueue's configuration is not known: {missing}")
    ]
    assert said(manager=odd) == [
        (
            "ConfigurationUnknown",
            "Kueue's configuration is not known: --feature-gates: expected NAME=true",
        )
    ]


def test_what_is_certain_is_said_first():
    kueue = KueueConfig(gates={"New": True})

    found = [str(each.reason) for each in doubts(kueue, UNREAD)]

    assert found == ["Unmodelled", "VersionUnknown"]


def test_of_many_things_that_are_not_modelled_ten_are_named():
    kueue = KueueConfig(unmodelled_fields=tuple(f"field{number}" for number in range(12)))

    ((_, message),) = said(kueue)

    assert message.endswith("field8, field9, 2 more")


@pytest.mark.parametrize(
    ("gates", "found"),
    [
        ({}, ()),
        ({"VisibilityOnDemand": False, "SchedulerLongRequeueInterval": True}, ()),
        ({"PriorityBoost": False, "FlavorFungibility": True}, ()),
        ({"PriorityBoost": True}, ("featureGates.PriorityBoost",)),
        ({"FlavorFungibility": False}, ("featureGates.FlavorFungibility",)),
        ({"OfAnotherVersion": False}, ("featureGates.OfAnotherVersion",)),
        ({"AllAlpha": False}, ()),
        ({"AllAlpha": True}, ("featureGates.AllAlpha",)),
        ({"AllBeta": False}, ("featureGates.AllBeta",)),
        ({"TASBalancedPlacement": True, "KueueDRAIntegration": False}, ()),
    ],
)
def test_a_gate_counts_where_it_is_unknown_or_changed_and_not_modelled(gates, found):
    assert unmodelled_gates(gates) == found


@pytest.mark.parametrize(
    ("gates", "found"),
    [
        ({"LendingLimit": True, "QuotaCheckStrategy": True}, ()),
        ({"KueueDRAIntegrationExtendedResource": True, "VisibilityOnDemand": False}, ()),
        ({"PriorityBoost": True}, ("featureGates.PriorityBoost",)),
        ({"AdmissionGatedBy": True}, ("featureGates.AdmissionGatedBy",)),
        ({"PrioritizePreemptorWorkloads": False}, ("featureGates.PrioritizePreemptorWorkloads",)),
    ],
)
def test_gates_of_an_older_release_are_held_against_its_own(gates, found):
    assert unmodelled_gates(gates, release_of("v0.18.4")) == found


@pytest.mark.parametrize(
    ("gate", "unknown_in"),
    [
        ("UnadmittedWorkloadsObservability", ["v0.18.4"]),
        ("SkipAncestorCheckForDeletedWorkloads", ["v0.18.4", "v0.19.0"]),
        ("TASCacheTopologyTree", ["v0.18.4", "v0.18.5", "v0.19.0", "v0.19.1"]),
        ("SchedulerLibraryIntegration", ["v0.18.4", "v0.18.5", "v0.18.6"]),
        ("LendingLimit", ["v0.19.0", "v0.19.1", "v0.19.2"]),
        ("VisibilityOnDemand", []),
    ],
)
def test_a_gate_that_decides_nothing_counts_only_in_patches_that_do_not_have_it(gate, unknown_in):
    versions = [f"v{major}.{minor}.{patch}" for major, minor, patch in RELEASES]

    found = [each for each in versions if unmodelled_gates({gate: True}, release_of(each))]

    assert found == unknown_in


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("v0.18.4", RELEASES[0, 18, 4]),
        ("v0.18.6", RELEASES[0, 18, 6]),
        ("v0.18.9", RELEASES[0, 18, 6]),
        ("0.18", RELEASES[0, 18, 6]),
        ("v0.19.0", RELEASES[0, 19, 0]),
        ("v0.19.1", RELEASES[0, 19, 1]),
        ("v0.19.2", KueueRelease()),
        ("v0.18.3", KueueRelease()),
        ("v0.17.0", KueueRelease()),
        ("", KueueRelease()),
    ],
)
def test_a_version_that_is_not_tested_counts_as_the_newest(version, found):
    assert release_of(version) == found


def test_thousands_of_gates_are_cut_short():
    found = unmodelled_gates({f"{number}" + "x" * 1000: True for number in range(5000)})

    assert len(found) == 100
    assert max(map(len, found)) < 100


@pytest.mark.parametrize(
    ("configuration", "found"),
    [
        ({"integrations": {"frameworks": ["pod"]}, "metrics": {"whatever": 1}}, ()),
        ({"integrations": {"frameworksOfTomorrow": []}}, ("integrations.frameworksOfTomorrow",)),
        ({"scheduling": {"policy": "new"}}, ("scheduling",)),
        ({"admissionFairSharing": {"usageHalfLifeTime": "1h"}}, ()),
        ({"multiKueue": {"dispatcherName": None}}, ()),
        ({"multiKueue": {"dispatcherName": f"{DISPATCHER}-all-at-once"}}, ()),
        ({"multiKueue": {"dispatcherName": f"{DISPATCHER}-incremental"}}, ()),
        ({"multiKueue": {"dispatcherName": "kueue-fallback.dev/dispatcher"}}, ()),
        (
            {"multiKueue": {"dispatcherName": "example.com/another"}},
            ("multiKueue.dispatcherName",),
        ),
        ({"multiKueue": {"dispatcherName": ["all"]}}, ("multiKueue.dispatcherName",)),
        (
            {"resources": {"transformations": [{"input": "a"}, {"input": "b", "round": "up"}]}},
            ("resources.transformations.round",),
        ),
        ({"resources": [3, None, {"x": 1}], "waitForPodsReady": "soon"}, ("resources.x",)),
        ({7: 1}, ("7",)),
    ],
)
def test_a_field_counts_where_it_is_unknown_or_set_and_not_modelled(configuration, found):
    assert unmodelled_fields(configuration) == found


def test_a_configuration_that_never_ends_is_not_read_to_its_end():
    many = [{"input": "a"}] * 1000
    configuration = {"resources": {"transformations": many * 100}}

    assert unmodelled_fields(configuration) == ("more than 10000 fields",)


def test_all_gates_but_one_have_a_default_to_differ_from():
    assert [name for name, gate in GATES.items() if gate.default is None] == ["AllBeta"]
