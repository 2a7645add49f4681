"""What the controller keeps of Jobs that may be moved: never more than a tenant's share."""

import sys

from tests.controller.moving import job
from webhook.model.reasons import Obstacle
from webhook.reconsider import pending_jobs

NOTE = "x" * 200_000


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

    found = pending_jobs.read_job(source)

    assert found.obstacle is None
    assert texts(found.job) < 5_000
    assert set(found.job.annotations) == {"kueue-fallback.dev/x"}


def test_a_template_with_too_much_text_is_not_kept_and_its_job_not_moved():
    source = job(1, option="cpu")
    (container,) = source["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "A", "value": NOTE}]

    found = pending_jobs.read_job(source)

    assert found.obstacle is Obstacle.TOO_LARGE
    assert texts(found.job) < 5_000
    assert sys.getsizeof(found.job.pod_sets) < 200
