"""The class that a decision leaves on the pod template, by which runs are remembered."""

import copy
import json

import pytest

from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.decide.wishes import RUN_TIME
from webhook.jobs import KINDS
from webhook.learn import job_class
from webhook.learn.job_class import Mark
from webhook.model.forecasts import JobClass
from webhook.model.job import DECISION, JOB_CLASS
from webhook.state.snapshot import updated

KIND = KINDS["batch", "v1", "Job"]
AS_SUBMITTED = job_class.of_job(KIND.read(light_job()))


def server(*, label=None, generation=0, **state):
    found = paper_snapshot(**state)
    (policy,) = found.fallback.policies
    spec = policy.spec.model_copy(update={"job_class_label": label})
    policy = policy.model_copy(update={"generation": generation, "spec": spec})
    return Server(updated(found, policies=(policy,)))


def mark_of(job):
    annotations = job["spec"]["template"]["metadata"].get("annotations", {})
    written = annotations.get(JOB_CLASS)
    return job_class.parse_mark(written, job["metadata"]["namespace"]) if written else None


@pytest.mark.parametrize(("pending", "option"), [(10, "cpu"), (0, "gpu")])
def test_the_class_is_that_of_the_job_as_it_was_submitted(pending, option):
    admitted, _ = server(pending=pending, generation=4).create(light_job())

    assert json.loads(admitted["metadata"]["annotations"][DECISION])["option"] == option
    assert mark_of(admitted) == Mark(AS_SUBMITTED, 4)


@pytest.mark.parametrize(("written", "said"), [("20m", 1200), ("100ms", 1), ("0s", 0)])
def test_the_mark_has_what_the_owner_said_of_the_run(written, said):
    job = light_job()
    job["metadata"]["annotations"] = {RUN_TIME: written}

    admitted, _ = server(generation=4).create(job)

    # What cannot be read leaves the Job alone, and no mark.
    assert mark_of(admitted) == (Mark(AS_SUBMITTED, 4, said) if said else None)


def test_the_policys_label_names_the_class_of_each_job_of_one_template():
    shown = server(label="model")

    marks = []
    for number, model in enumerate(("a", "b", "a")):
        job = light_job(f"light-{number}")
        job["metadata"]["labels"]["model"] = model
        marks.append(mark_of(shown.create(job)[0]))

    assert marks == [
        Mark(JobClass(f"team/model={model}", AS_SUBMITTED.coarse), 0) for model in ("a", "b", "a")
    ]


def test_a_changed_policy_leaves_its_own_generation():
    first, _ = server(generation=1).create(light_job("light-1"))
    second, _ = server(generation=2).create(light_job("light-2"))

    assert [mark_of(each) for each in (first, second)] == [
        Mark(AS_SUBMITTED, 1),
        Mark(AS_SUBMITTED, 2),
    ]


@pytest.mark.parametrize("mode", ["Observe", "Advise"])
def test_before_enforce_no_class_is_left(mode):
    admitted, _ = server(mode=mode).create(light_job())

    assert mark_of(admitted) is None
    assert admitted["spec"] == light_job()["spec"]


def test_a_manifest_applied_again_keeps_the_class():
    shown, manifest = server(), light_job()
    stored, _ = shown.create(manifest)
    again = copy.deepcopy(manifest)
    again["metadata"]["annotations"] = dict(stored["metadata"]["annotations"])

    kept, _ = shown.update(stored, again)

    assert mark_of(kept) == mark_of(stored)


def test_a_copy_of_a_decided_job_is_of_the_class_that_its_original_was():
    shown = server()
    stored, _ = shown.create(light_job())
    named = {**copy.deepcopy(stored)["metadata"], "name": "another"}

    decided_anew, _ = shown.create({**copy.deepcopy(stored), "metadata": named})

    assert mark_of(decided_anew) == Mark(AS_SUBMITTED, 0)


def test_what_stood_there_is_put_on_record():
    admitted, _ = server().create(light_job())

    original = json.loads(admitted["metadata"]["annotations"][DECISION])["original"]
    main = "/spec/template/spec/containers/main"
    assert original == {
        "/metadata/labels/kueue.x-k8s.io~1queue-name": "gpu-lq",
        f"{main}/resources/requests/nvidia.com~1gpu": "1",
        f"{main}/resources/limits/nvidia.com~1gpu": "1",
        f"{main}/env/RUN_ENV": {"name": "RUN_ENV", "value": "gpu"},
    }
