"""What Kueue's webhooks refuse of topology annotations, by the rules of ``tas_validation.go``."""

import json

import pytest

from tests.builders import template
from webhook.kueue.topology_requests import larger_slices, problems
from webhook.model.job import PodSet

P = "kueue.x-k8s.io/podset-"
REQUIRED = {f"{P}required-topology": "rack"}
PREFERRED = {f"{P}preferred-topology": "rack"}
SLICES = {f"{P}slice-required-topology": "rack", f"{P}slice-size": "4"}
GROUP = {f"{P}group-name": "pair"}
LAYERS = {
    f"{P}slice-required-topology-constraints": json.dumps(
        [{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]
    )
}


def pod_sets(**annotated):
    """Return pod sets by name: the number of their pods, and their annotations."""
    return [
        PodSet(name=name, count=count, template=template(annotations=annotations))
        for name, (count, annotations) in annotated.items()
    ]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (pod_sets(main=(4, REQUIRED)), []),
        (pod_sets(main=(4, {**REQUIRED, **SLICES})), []),
        (
            pod_sets(main=(4, {**REQUIRED, **PREFERRED})),
            [f"main would have both {P}required-topology and {P}preferred-topology"],
        ),
        (
            pod_sets(main=(4, {f"{P}slice-required-topology": "rack"})),
            [f"main would have {P}slice-required-topology without {P}slice-size"],
        ),
        (
            pod_sets(main=(4, {f"{P}slice-size": "4"})),
            [f"main would have {P}slice-size without {P}slice-required-topology"],
        ),
        *(
            (
                pod_sets(main=(4, {**SLICES, f"{P}slice-size": size})),
                [f"{P}slice-size of main would be no whole number from 1 on"],
            )
            for size in ("0", "-1", "four", "", "9" * 5000)
        ),
        (pod_sets(a=(1, {**REQUIRED, **GROUP}), b=(4, {**REQUIRED, **GROUP})), []),
        (
            pod_sets(a=(1, {**REQUIRED, **GROUP}), b=(4, {})),
            ["a would be all of podset group pair, and Kueue wants two pod sets"],
        ),
        (
            pod_sets(a=(2, {**REQUIRED, **GROUP}), b=(4, {**REQUIRED, **GROUP})),
            ["neither a nor b would be one pod in group pair"],
        ),
        (
            pod_sets(a=(1, {**REQUIRED, **GROUP}), b=(4, {**PREFERRED, **GROUP})),
            ["a and b would request different topologies in podset group pair"],
        ),
        (
            pod_sets(a=(1, GROUP), b=(4, GROUP)),
            ["a and b would request different topologies in podset group pair"],
        ),
        (
            pod_sets(a=(1, {**REQUIRED, **GROUP}), b=(4, {**REQUIRED, **SLICES, **GROUP})),
            ["b would have slices in podset group pair"],
        ),
    ],
)
def test_topology_annotations_are_refused_as_by_kueue(given, found):
    assert list(problems(given)) == found


@pytest.mark.parametrize(
    ("count", "annotations", "found"),
    [
        (4, SLICES, []),
        (3, SLICES, ["main would have slices of 4 pods, and has 3 in all"]),
        (3, LAYERS, ["main would have slices of 4 pods, and has 3 in all"]),
        (3, REQUIRED, []),
    ],
)
def test_slices_may_not_be_larger_than_the_pod_set(count, annotations, found):
    assert list(larger_slices(pod_sets(main=(count, annotations)))) == found
