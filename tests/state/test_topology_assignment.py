"""Where the pods of Workloads are, and what is learned of how they run together or apart."""

import pytest

from tests.topologies import BLOCK, GPU, LEVELS, RACK
from webhook.model.topologies import HOSTNAME, PlacedPods
from webhook.state.state import State
from webhook.state.workload_pods import read_placed

KUEUE = "kueue.x-k8s.io/v1beta2"
POD = {"containers": [{"name": "m", "resources": {"requests": {GPU: "8"}}}]}


def spec(count):
    pods = {"metadata": {}, "spec": POD}
    return {"queueName": "lq", "podSets": [{"name": "main", "count": count, "template": pods}]}


def admission(levels, slices, count):
    return {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {GPU: "gpu"},
                "resourceUsage": {GPU: str(8 * count)},
                "count": count,
                "topologyAssignment": {"levels": levels, "slices": slices},
            }
        ],
    }


def pods(flavor, domain, count):
    return PlacedPods(flavor=flavor, domain=domain, amounts=((GPU, 8 * count), ("pods", count)))


@pytest.mark.parametrize(
    ("levels", "part", "want"),
    [
        (
            [HOSTNAME],
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                "podCounts": {"individual": [1, 3]},
            },
            [("", ("n1",), 1), ("", ("n2",), 3)],
        ),
        (
            [BLOCK, RACK],
            {
                "domainCount": 2,
                "valuesPerLevel": [
                    {"universal": "b"},
                    {"individual": {"roots": ["1", "2"], "suffix": "-r"}},
                ],
                "podCounts": {"universal": 2},
            },
            [("gpu", ("b", "1-r"), 2), ("gpu", ("b", "2-r"), 2)],
        ),
        ([HOSTNAME], {"domainCount": 10**12, "valuesPerLevel": [], "podCounts": {}}, []),
    ],
)
def test_kueues_compact_form_is_read(levels, part, want):
    found = read_placed(spec(4), admission(levels, [part], 4))

    assert found == tuple(pods(*each) for each in want)


def node(block, rack, name):
    return {
        "metadata": {"name": name, "labels": {BLOCK: block, RACK: rack, HOSTNAME: name}},
        "status": {
            "allocatable": {GPU: "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def ended(number, names, seconds):
    """Return a Workload that ran on these Nodes for so long."""
    roots = {"individual": {"roots": names}} if len(names) > 1 else {"universal": names[0]}
    slices = [
        {
            "domainCount": len(names),
            "valuesPerLevel": [roots],
            "podCounts": {"universal": 1},
        }
    ]
    at = f"2026-11-21T0{seconds // 3600}:{seconds % 3600 // 60:02}:00Z"
    conditions = [
        ("QuotaReserved", "2026-11-21T00:00:00Z", ""),
        ("Admitted", "2026-11-21T00:00:00Z", ""),
        ("Finished", at, "Succeeded"),
    ]
    return {
        "metadata": {"name": f"w{number}", "namespace": "team", "uid": f"u{number}"},
        "spec": spec(2),
        "status": {
            "admission": admission([HOSTNAME], slices, 2),
            "conditions": [
                {"type": name, "status": "True", "reason": reason, "lastTransitionTime": time}
                for name, time, reason in conditions
            ],
        },
    }


def test_what_v1beta1_lists_one_by_one_is_read():
    found = admission([BLOCK, RACK], [], 3)
    (assignment,) = found["podSetAssignments"]
    assignment["topologyAssignment"] = {
        "levels": [BLOCK, RACK],
        "domains": [{"values": ["b", "r1"], "count": 1}, {"values": ["b", "r2"], "count": 2}],
    }

    assert read_placed(spec(3), found) == (
        pods("gpu", ("b", "r1"), 1),
        pods("gpu", ("b", "r2"), 2),
    )


def test_what_a_gang_loses_when_it_is_spread_is_learned_by_level():
    state = State()
    state.replace("nodes", [node("b0", "r0", "a"), node("b0", "r0", "b"), node("b1", "r1", "c")])
    levels = [{"nodeLabel": level} for level in LEVELS]
    state.replace("topologies", [{"metadata": {"name": "racks"}, "spec": {"levels": levels}}])
    flavor = {"metadata": {"name": "gpu"}, "spec": {"topologyName": "racks"}}
    state.replace("resourceflavors", [flavor])
    together = [ended(number, ["a", "b"], 600) for number in range(3)]
    apart = [ended(number, ["b", "c"], 1200) for number in range(3, 6)]
    state.replace("workloads", [*together, *apart])

    learned = state.snapshot(0.0, 0.0).learned.run_times

    of_class = {place: run.seconds for (key, place), run in learned.items() if key and "/" in key}
    assert of_class[f"gpu#{RACK}"] == pytest.approx(600, abs=1)
    assert of_class["gpu#spread"] == pytest.approx(1200, abs=1)
    assert set(of_class) == {"gpu", f"gpu#{RACK}", "gpu#spread"}
