"""A review finds its kind of Job in the one table."""

from dataclasses import replace
from typing import get_args

from tests.builders import container, job, policy, template
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.adapt.adaptation import adapt
from webhook.jobs import JOB, KINDS
from webhook.kueue import requests
from webhook.model import marks
from webhook.model.job import PodSet
from webhook.model.policy.rules import ENDLESS
from webhook.model.policy.spec import KindName
from webhook.model.queues import KueueConfig
from webhook.model.snapshot_parts import ClusterObjects

CPU = container(requests={"cpu": "1"})

GROUP = "batch.example.com"
KIND = {"group": GROUP, "version": "v1", "kind": "Job"}
OPTION = "kueue-fallback.dev/option"


def test_a_kind_that_is_put_into_the_table_is_decided(monkeypatch):
    server = Server(paper_snapshot())
    before, _ = server.create(light_job(), kind=KIND)
    monkeypatch.setitem(KINDS, (GROUP, "v1", "Job"), KINDS["batch", "v1", "Job"])

    after, _ = server.create(light_job(), kind=KIND)

    assert [OPTION in job["metadata"]["labels"] for job in (before, after)] == [False, True]


def test_names_that_tell_kinds_apart_are_unique():
    names = [kind.kind for kind in KINDS.values()]

    assert len(set(names)) == len(names)
    assert {kind.framework for kind in KINDS.values()} >= {"batch/job"}


def test_every_template_of_a_kind_may_be_patched_and_nothing_else_of_its_spec():
    for kind in KINDS.values():
        below = [path for path in kind.allowed if path[0] == "spec"]

        beside = {path[1:3] for path in below if not kind.below_template(path)}
        assert beside == ({("strategy", "rollingUpdate")} if kind.rolls else set())
        # A Pod is its own template.
        is_apart = kind.kind != "Pod"
        assert (kind.below_template(("metadata", "labels", "a")) == ()) is is_apart


def test_a_batch_job_is_referred_to_by_its_name_and_others_with_their_kind():
    assert job(name="train").reference == "train"
    assert job(name="train", kind="RayJob").reference == "rayjob/train"


def test_what_a_controller_adds_is_counted_and_never_changed():
    sidecar = container("autoscaler", requests={"cpu": "500m"})
    made = PodSet(name="submitter", count=1, template=template(CPU), path=None)
    head = PodSet(name="head", count=1, template=template(CPU), added=(sidecar,))
    before = replace(job(), pod_sets=(head, made))
    _, cpu = policy().spec.options

    after = marks.marked(adapt(before, cpu), {}, option="cpu", decision_id="x", policy="p")

    counted = [
        needs.per_pod["cpu"] for needs in requests.needs(before, ClusterObjects(), KueueConfig())
    ]
    assert counted == [1500, 1000]
    assert after.pod_sets[1] is made
    assert {edit.path[:2] for edit in JOB.edits(before, after)} <= {("spec", "template")} | {
        ("metadata", "labels")
    }


def test_a_policy_may_name_every_kind_and_no_other():
    assert set(get_args(KindName)) == {kind.kind for kind in KINDS.values()}


def test_a_policy_by_finish_time_may_name_no_kind_that_never_ends():
    assert set(ENDLESS) == {kind.kind for kind in KINDS.values() if not kind.finishes}


def test_paths_of_the_core_group_and_of_others_are_told_apart():
    paths = {kind.kind: kind.path("team", "x") for kind in KINDS.values()}

    assert paths["Pod"] == "/api/v1/namespaces/team/pods/x"
    assert paths["TrainJob"] == "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/x"
