"""Jobs of every kind have a class, which their Workloads tell, and no two kinds share one."""

import pytest

from tests import kinds
from webhook.jobs import BY_NAME
from webhook.learn import job_class
from webhook.learn.job_class import Mark
from webhook.state.workload import read_workload


def class_of(kind, told_apart_by=None, **rest):
    return job_class.of_job(BY_NAME[kind].read(kinds.made(kind, **rest)), **told_apart_by or {})


def without_marks(source):
    for pod_set in source["spec"]["podSets"]:
        pod_set["template"].pop("metadata", None)
    return source


@pytest.mark.parametrize("kind", kinds.SPECS)
def test_a_workload_has_the_class_of_its_job(kind):
    found = read_workload(without_marks(kinds.workload_of(kinds.made(kind))))

    assert found.job_class == class_of(kind)


def test_no_two_kinds_are_of_one_class():
    classes = [class_of(kind) for kind in kinds.SPECS]

    assert len({each.key for each in classes}) == len(classes)
    assert len({each.coarse for each in classes}) == len(classes)


def test_the_very_same_pods_are_of_another_class_in_another_kind():
    pods = BY_NAME["Job"].read(kinds.made("Job")).pod_sets

    one, other = (job_class.of_pods(pods, kind) for kind in ("Job", "AppWrapper"))

    assert {*one}.isdisjoint(other)
    assert one.at("team") == class_of("Job")


def test_every_pod_set_counts():
    same = class_of("RayJob")
    source = kinds.made("RayJob")
    head = source["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    head["image"] = "another"

    found = job_class.of_job(BY_NAME["RayJob"].read(source))

    assert {*found}.isdisjoint(same)


def test_a_label_names_the_class_of_its_kind_alone_and_its_mark_is_read_again():
    labels = {**kinds.LABELS, "example.com/model": "llama"}
    by = {"label": "example.com/model"}
    one, other = (class_of(kind, by, labels=labels) for kind in ("Job", "RayJob"))

    assert one.key == "team/example.com/model=llama"
    assert other.key == "team/rayjob:example.com/model=llama"
    mark = Mark(other, 3)
    assert job_class.parse_mark(job_class.mark_text(mark), "team") == mark


def test_a_flag_tells_runs_of_a_kind_apart():
    by = {"args": ("--steps",)}
    few, many = (
        class_of("RayJob", by, light=kinds.pods(args=["--steps", steps])) for steps in ("5", "30")
    )

    assert few.key != many.key
    assert few.coarse != many.coarse
