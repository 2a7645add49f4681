"""Which edits to a waiting Job Kubernetes takes and Kueue notices."""

import pytest

from tests.builders import container, job, template
from webhook.jobs import JOB
from webhook.model.reasons import Obstacle

OPTION = "kueue-fallback.dev/option"
NODES = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
GPU = container(requests={"cpu": "4"}, limits={"nvidia.com/gpu": "1"})
CPU = container(requests={"cpu": "8"})


def pods(*containers, queue="gpu-lq", **rest):
    return job(queue=queue, pods=template(*containers, **rest))


def found(before, after, **known):
    return JOB.obstacle_to(JOB.edits(before, after), **known)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pods(GPU), pods(CPU, queue="cpu-lq")),
        (pods(GPU, node_selector={"pool": "gpu"}), pods(CPU, tolerations=({"key": "a"},))),
        (pods(GPU, annotations={"kueue-fallback.dev/env.A": "1"}), pods(CPU)),
        (pods(GPU, affinity=NODES), pods(CPU)),
        (pods(GPU, affinity={"podAffinity": {}}), pods(CPU, affinity={"podAffinity": {}, **NODES})),
        (pods(CPU, init=[GPU]), pods(CPU, init=[CPU])),
        (pods(GPU), pods(GPU, queue="cpu-lq")),
        (pods(GPU, labels={OPTION: "gpu"}), pods(GPU, queue="cpu-lq", labels={OPTION: "cpu"})),
    ],
)
def test_resources_directives_and_the_queue_can_change(before, after):
    assert found(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (container(image="a"), container(image="b"), "immutableImage"),
        (container(env=({"name": "A", "value": "1"},)), container(), "immutableEnv"),
    ],
)
@pytest.mark.parametrize("place", ["main", "init"])
def test_image_and_environment_cannot_change(before, after, reason, place):
    if place == "main":
        assert found(pods(GPU, before), pods(CPU, after)) == reason
    else:
        assert found(pods(GPU, init=[before]), pods(CPU, init=[after])) == reason


@pytest.mark.parametrize("affinity", [{"podAntiAffinity": {}}, {"podAffinity": {}, **NODES}])
def test_affinity_between_pods_cannot_change(affinity):
    assert found(pods(GPU, affinity=affinity), pods(CPU)) == "immutableAffinity"
    assert found(pods(CPU), pods(GPU, affinity=affinity)) == "immutableAffinity"


def test_the_runtime_class_cannot_change():
    assert found(pods(GPU, runtime_class="nvidia"), pods(CPU)) == "immutableRuntimeClass"


def test_the_priority_class_can_be_given_and_not_taken_away():
    plain = pods(GPU)
    guest = job(pods=template(CPU), labels={"kueue.x-k8s.io/priority-class": "low"})

    assert found(plain, guest) is None
    assert found(guest, plain) == "immutablePriority"


@pytest.mark.parametrize(
    "after",
    [
        pods(GPU, node_selector={"pool": "cpu"}),
        pods(GPU, tolerations=({"key": "a"},)),
        pods(GPU, annotations={"kueue-fallback.dev/env.A": "1"}),
        pods(GPU, annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}),
        pods(GPU, labels={"tier": "cpu"}),
        pods(container(requests={"cpu": "4000m"}, limits={"nvidia.com/gpu": "1"})),
    ],
)
def test_kueue_notices_a_changed_template_only_by_its_resources(after):
    assert found(pods(GPU), after) == "kueueWouldNotNotice"


def test_kueue_does_not_follow_the_label_of_a_workload_that_it_evicted():
    before, after = pods(GPU), pods(GPU, queue="cpu-lq")

    assert found(before, after, workload=Obstacle.EVICTED) == "evicted"
    assert found(before, pods(CPU, queue="cpu-lq"), workload=Obstacle.EVICTED) is None


def test_a_deactivated_workload_follows_its_job_by_its_queue_alone_too():
    before = pods(GPU)

    for after in (pods(GPU, queue="cpu-lq"), pods(CPU, queue="cpu-lq"), pods(CPU)):
        assert found(before, after, workload=Obstacle.DEACTIVATED) is None
    kept = pods(GPU, annotations={"a": "b"})
    assert found(before, kept, workload=Obstacle.DEACTIVATED) == "kueueWouldNotNotice"


@pytest.mark.parametrize("blocked", [Obstacle.QUOTA_RESERVED, Obstacle.BACKOFF])
def test_what_speaks_against_it_on_its_workload_counts_where_that_would_follow(blocked):
    before = pods(GPU)
    priority = job(pods=template(GPU), labels={"kueue.x-k8s.io/priority-class": "low"})

    for after in (pods(GPU, queue="cpu-lq"), pods(CPU), priority):
        assert found(before, after, workload=blocked) == str(blocked)
    assert found(before, pods(GPU, labels={OPTION: "cpu"}), workload=blocked) is None
    assert found(before, before, workload=blocked) is None


def test_our_marks_alone_are_no_change_of_the_template():
    before, after = pods(GPU), pods(GPU, labels={OPTION: "cpu"})

    assert not JOB.changes_template(JOB.edits(before, after))
    assert JOB.changes_template(JOB.edits(before, pods(GPU, labels={"tier": "cpu"})))
