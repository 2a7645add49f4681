"""Objects of any kind that would take long to decide are refused before they are looked at."""

import re

import pytest

from tests import nasty
from webhook.jobs import BY_NAME
from webhook.model.fields import FieldError

CONTAINERS = [{"name": f"{number}"} for number in range(34)]
CROWDED = {"spec": {"containers": CONTAINERS}}
SMALL = {"spec": {"containers": [{"name": "main"}]}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": SMALL}}
GROUPS = [{"groupName": f"{number}", "template": SMALL} for number in range(19)]
RAY = {"headGroupSpec": {"template": SMALL}, "workerGroupSpecs": GROUPS}
JOBS = [{"name": f"{number}", "template": {"spec": {"template": SMALL}}} for number in range(19)]


def wrapped(*templates, **rest):
    return {"components": [{"template": template, **rest} for template in templates]}


def of_kind(api_version, kind, spec):
    return {"apiVersion": api_version, "kind": kind, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("JobSet", {"replicatedJobs": JOBS}, "spec.replicatedJobs: 19 entries"),
        ("RayCluster", RAY, "spec.workerGroupSpecs: 19 entries"),
        ("RayJob", {"rayClusterSpec": RAY}, "spec.rayClusterSpec.workerGroupSpecs: 19 entries"),
        (
            "AppWrapper",
            wrapped(of_kind("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": JOBS})),
            "replicatedJobs: 19 entries",
        ),
        (
            "AppWrapper",
            wrapped(of_kind("ray.io/v1", "RayCluster", RAY)),
            "workerGroupSpecs: 19 entries",
        ),
        (
            "AppWrapper",
            wrapped(JOB, podSets=[{"path": "template.spec.template"}] * 19),
            "podSets: 19 entries",
        ),
        ("AppWrapper", wrapped(*[JOB] * 19), "19 pod sets, more than Kueue takes (18)"),
        (
            "AppWrapper",
            wrapped(JOB, podSets=[{"path": "template" + ".spec" * 200}]),
            "a path of 1008 characters",
        ),
    ],
)
def test_more_pod_sets_than_kueue_takes_are_refused_unread(kind, spec, message):
    with pytest.raises(FieldError, match=re.escape(message)):
        BY_NAME[kind].read({"metadata": {"name": "x"}, "spec": spec})


def test_of_an_appwrapper_nothing_is_read_beyond_what_kueue_takes():
    broken = {**JOB, "spec": {"template": {"spec": {"containers": "none"}}}}

    with pytest.raises(FieldError, match="more than Kueue takes"):
        BY_NAME["AppWrapper"].read({"spec": wrapped(*[JOB] * 18, broken)})


@pytest.mark.parametrize("kind", ["JobSet", "TFJob", "RayJob"])
def test_the_containers_of_all_pod_sets_count_together(kind):
    spec = nasty.spec_of(kind, CROWDED, sets=3, pods=1)

    with pytest.raises(FieldError, match="102 containers, too many to decide"):
        BY_NAME[kind].read({"metadata": {"name": "x"}, "spec": spec})
