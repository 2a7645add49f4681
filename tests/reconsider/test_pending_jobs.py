"""What the controller keeps of Jobs that may be moved: never more than a tenant's share."""

import json
import sys

from tests.controller.moving import DECISION, job
from webhook.controller import followed_watches
from webhook.hindsight import entries
from webhook.jobs import JOB
from webhook.model import job_manifest
from webhook.model.reasons import Obstacle
from webhook.reconsider import pending_jobs

NOTE = "x" * 200_000
PREFIXES = ("kueue-fallback.dev", "kueue.x-k8s.io")


def texts(value):
    """Count the characters of all texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return texts([*value.keys(), *value.values()])
    if isinstance(value, (list, tuple, frozenset)):
        return sum(map(texts, value))
    names = getattr(type(value), "__slots__", ())
    return sum(texts(getattr(value, name, None)) for name in names)


def test_annotations_that_nobody_reads_are_not_kept():
    source = job(1, option="cpu")
    source["metadata"]["annotations"] |= {"note": NOTE, "kueue-fallback.dev/x": NOTE}

    found = pending_jobs.read_job(source, JOB)

    assert found.obstacle is None
    assert texts(found.job) < 5_000
    assert set(found.job.annotations) == {"kueue-fallback.dev/x"}


def test_of_thousands_of_annotations_a_hundred_are_kept_wherever_jobs_are():
    source = job(1, option="cpu")
    many = {f"{prefix}/{number}": "x" for number in range(5_000) for prefix in PREFIXES}
    source["metadata"]["annotations"] = many
    source["metadata"]["uid"] = "a"

    watched = followed_watches.followed(JOB).read("jobs", source).value
    kept = [
        pending_jobs.read_job(source, JOB).job.annotations,
        watched.job.annotations,
        entries.metadata_of(source)["annotations"],
    ]

    assert [len(each) for each in kept] == [job_manifest.MOST_SAID] * 3


def test_a_template_with_too_much_text_is_not_kept_and_its_job_not_moved():
    source = job(1, option="cpu")
    (container,) = source["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "A", "value": NOTE}]

    found = pending_jobs.read_job(source, JOB)

    assert found.obstacle is Obstacle.TOO_LARGE
    assert texts(found.job) < 5_000
    assert sys.getsizeof(found.job.pod_sets) < 200


def test_jobs_from_one_template_share_its_pod_sets_whatever_their_pods_are_found_by():
    found = [pending_jobs.read_job(stored(number), JOB).job.pod_sets for number in (1, 2)]

    assert found[0] is found[1]
    (pod_set,) = found[0]
    assert pod_set.template.labels == {"app": "x"}


def stored(number):
    """A decided Job with what tells it from others of its template."""
    source = job(number, option="cpu")
    decision = json.loads(source["metadata"]["annotations"][DECISION])
    place = "/spec/template/metadata/annotations/kueue-fallback.dev~1decision-id"
    decision["original"] = {place: None}
    source["metadata"]["annotations"][DECISION] = json.dumps(decision)
    unique = {"controller-uid": f"uid-{number}", "job-name": f"job-{number}"}
    labels = {**unique, **{f"batch.kubernetes.io/{name}": text for name, text in unique.items()}}
    source["spec"]["template"]["metadata"] = {
        "labels": {"app": "x", **labels},
        "annotations": {"kueue-fallback.dev/decision-id": f"id-{number}"},
    }
    return source
