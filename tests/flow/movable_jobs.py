"""Jobs that can be moved, and what the API server stores of them."""

from tests.builders import policy
from tests.flow.moves import (
    pending,
)
from tests.reviews import light_job

QUEUE = "kueue.x-k8s.io/queue-name"


ENV = "kueue-fallback.dev/env.RUN_ENV"


ALIKE = policy({"name": "gpu", "queue": "gpu-lq"}, {"name": "cpu", "queue": "cpu-lq"}).spec.options
"""Options that differ in nothing but their queue."""


UNNAMED = policy(
    {"name": "gpu", "queue": "gpu-lq"},
    {"name": "cpu", "queue": "cpu-lq", "adaptation": {"accelerator": "Remove"}},
).spec.options
"""Options that differ in no variable."""


def stored(server, job=None):
    return pending(server.create(job or light_job())[0])


def small_job():
    job = light_job()
    del pod_of(job)["spec"]["containers"][0]["resources"]["limits"]
    del pod_of(job)["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]
    return job


def pod_of(job):
    return job["spec"]["template"]
