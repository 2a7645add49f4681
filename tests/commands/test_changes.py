"""What `explain` shows of a change: all that people gave, none of our marks."""

from __future__ import annotations

import pytest

from webhook.commands import decision_table


def job(labels=None, annotations=None, spec=None):
    return {"metadata": {"labels": labels or {}, "annotations": annotations or {}}, "spec": spec}


def pods(metadata=None, **spec):
    container = {"name": "main", **spec.pop("container", {})}
    return {"template": {"metadata": metadata or {}, "spec": {"containers": [container], **spec}}}


def asking(requests=None, limits=None):
    return {"container": {"resources": {"requests": requests or {}, "limits": limits or {}}}}


PLACE = "kueue.x-k8s.io/podset-required-topology"
OURS = "kueue-fallback.dev/env.A"
READ = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{OURS}']"}}
GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            job({"kueue.x-k8s.io/queue-name": "a"}),
            job({"kueue.x-k8s.io/queue-name": "b", "kueue-fallback.dev/option": "b"}),
            ["queue a → b"],
        ),
        (job(), job({"kueue.x-k8s.io/priority-class": "low"}), ["priority class none → low"]),
        (
            job(spec=pods(**asking({GPU: "1", "cpu": "1"}, {GPU: "1"}))),
            job(spec=pods(**asking({"cpu": "4"}))),
            ["nvidia.com/gpu 1 → none", "cpu 1 → 4"],
        ),
        (
            job(spec=pods({"labels": {"tier": "gpu"}, "annotations": {"a/b": "1", PLACE: "rack"}})),
            job(spec=pods({"labels": {"tier": "cpu"}, "annotations": {"a/b": "2"}})),
            ["label tier gpu → cpu", "annotation a/b 1 → 2", "required topology rack → none"],
        ),
        (
            job(spec=pods(container={"env": [{"name": "A", "value": "gpu"}]})),
            job(
                spec=pods(
                    {"annotations": {OURS: "cpu"}},
                    container={"env": [{"name": "A", "valueFrom": READ}]},
                )
            ),
            ["env A gpu → cpu"],
        ),
        (
            job(spec=pods(nodeSelector={"gpu": "a100"}, tolerations=[{"key": "g", "value": "x"}])),
            job(spec=pods(runtimeClassName="runc", affinity={"nodeAffinity": {"a": ["b"]}})),
            [
                "node selector gpu a100 → none",
                "toleration g removed",
                "runtime class none → runc",
                "affinity added",
            ],
        ),
        (
            job(spec={"driver": {"annotations": {}}, "runtimePatches": []}),
            job(
                spec={
                    "driver": {"annotations": {"kueue-fallback.dev/class": "x"}},
                    "runtimePatches": [{"manager": "kueue-fallback.dev/manager"}],
                }
            ),
            [],
        ),
    ],
)
def test_each_thing_has_one_line_and_our_marks_have_none(before, after, expected):
    assert sorted(decision_table.changes(before, after)) == sorted(expected)
